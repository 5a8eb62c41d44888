// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/webhooks"
)

// required is a cluster whose operator requires the history of jobs.
type required struct {
	*remembered
	t *testing.T
}

// startOperator starts the operator with a timeout for jobs that wait.
func (r *required) startOperator(timeout string) *process {
	r.t.Helper()
	return start(r.t, r.kubeconfigs, nil, "operator", "--metrics-address=0", "--probe-address=0",
		configured(r.t, "operator: {probeInterval: 0s}\nhistory: {require: true, requireTimeout: "+timeout+"}"))
}

// submit creates a job, and waits until it has a pod and is held.
func (r *required) submit(name string) *v2alpha1.DIJob {
	r.t.Helper()
	var job *v2alpha1.DIJob
	await(r.t, "job "+name+" is admitted", func(ctx context.Context) error {
		job = &v2alpha1.DIJob{}
		job.Namespace, job.Name = "default", name
		job.Spec.Lifecycle, job.Spec.BackoffLimit = v2alpha1.LifecycleWorkerLed, ptr.To[int32](0)
		job.Spec.Tasks = []v2alpha1.Task{{Name: "worker", Type: v2alpha1.TaskTypeNone}}
		job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","image":"ding:2"}]}}`)
		return r.api.Create(ctx, job)
	})
	await(r.t, "job "+name+" is held, and has its pod", func(ctx context.Context) error {
		if err := r.api.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if !slices.Contains(job.Finalizers, names.FinalizerHistory) {
			return fmt.Errorf("it has the finalizers %v", job.Finalizers)
		}
		return r.api.Get(ctx, client.ObjectKey{Namespace: "default", Name: name + "-worker-0"}, &corev1.Pod{})
	})
	return job
}

// fail ends the pod of a job, as a kubelet does, and waits until the job has failed.
func (r *required) fail(job *v2alpha1.DIJob) {
	r.t.Helper()
	await(r.t, "job "+job.Name+" has failed", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := r.api.Get(ctx, client.ObjectKey{Namespace: "default", Name: job.Name + "-worker-0"}, pod); client.IgnoreNotFound(err) != nil {
			return err
		} else if err == nil && pod.Status.Phase != corev1.PodFailed {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "di-container", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}},
			}}
			if err := r.api.Status().Update(ctx, pod); err != nil {
				return err
			}
		}
		err := r.api.Get(ctx, client.ObjectKeyFromObject(job), job)
		if err == nil && job.Status.Phase != v2alpha1.JobFailed {
			err = fmt.Errorf("it is in phase %q", job.Status.Phase)
		}
		return err
	})
}

// remove deletes a job, which then waits.
func (r *required) remove(job *v2alpha1.DIJob) {
	r.t.Helper()
	err := r.api.Delete(r.t.Context(), job)
	if err == nil {
		err = r.api.Get(r.t.Context(), client.ObjectKeyFromObject(job), job)
	}
	if err != nil || job.DeletionTimestamp.IsZero() {
		r.t.Fatalf("deleting job %s, which must wait: %v", job.Name, err)
	}
}

func (r *required) awaitGone(job *v2alpha1.DIJob) {
	r.t.Helper()
	await(r.t, "job "+job.Name+" is gone", func(ctx context.Context) error {
		found := &v2alpha1.DIJob{}
		if err := r.api.Get(ctx, client.ObjectKeyFromObject(job), found); !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("it has the finalizers %v", found.Finalizers))
		}
		return nil
	})
}

// awaitEvent waits for an Event of a job with a reason.
func (r *required) awaitEvent(job *v2alpha1.DIJob, reason string) {
	r.t.Helper()
	await(r.t, "an Event says "+reason, func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := r.api.List(ctx, &events, client.InNamespace(job.Namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == reason && e.Regarding.UID == job.UID }) {
			return errors.New("there is none")
		}
		return nil
	})
}

// recorded returns what the history has of a job.
func (r *required) recorded(address, token string, job *v2alpha1.DIJob) (found record.Job) {
	r.t.Helper()
	body, err := r.get(r.t.Context(), address, token, "/v1alpha1/history/jobs/default/"+job.Name+"?uid="+string(job.UID))
	if err == nil {
		err = json.Unmarshal([]byte(body), &found)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func TestADeletedJobWaitsForTheHistoryButNotForever(t *testing.T) {
	r := &required{newRemembered(t), t}
	if err := webhooks.InstallConfigurations(t.Context(), r.environment.Config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.kubeconfigs, "release-jobs"), r.environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	startWebhooks(t, r.kubeconfigs)
	operator := r.startOperator("10s")

	// There never is a history.
	lost := r.submit("lost")
	r.remove(lost)
	r.awaitGone(lost)
	r.awaitEvent(lost, v2alpha1.ReasonNotRecorded)
	operator.stop(t)

	// The history is away while jobs end and are deleted.
	operator = r.startOperator("30m")
	failed, running := r.submit("failed"), r.submit("running")
	r.fail(failed)
	r.remove(failed)
	r.remove(running)
	h := &hunted{remembered: r.remembered, t: t, flags: []string{"--sqlite=" + filepath.Join(t.TempDir(), "history.db")}}
	history, address := h.start()
	r.awaitGone(failed)
	r.awaitGone(running)
	token := r.reader(t)
	if found := r.recorded(address, token, failed); found.Phase != string(v2alpha1.JobFailed) || found.Deleted || found.Unseen ||
		!found.Ended.Equal(failed.Status.CompletionTimestamp.Time) || len(found.Replicas) != 1 || found.Replicas[0].ExitCode == nil || *found.Replicas[0].ExitCode != 3 {
		t.Errorf("the failed job is recorded as %+v", found)
	}
	if found := r.recorded(address, token, running); !found.Deleted || found.Unseen || !found.Ended.Equal(running.DeletionTimestamp.Time) {
		t.Errorf("the job that was deleted at %s is recorded as %+v", running.DeletionTimestamp, found)
	}

	// Its name may be used again. Then the installation ends.
	again := r.submit("failed")
	history.stop(t)
	operator.stop(t)
	r.remove(again)
	if err := start(t, r.kubeconfigs, nil, "release-jobs").command.Wait(); err != nil {
		t.Fatal(err)
	}
	r.awaitGone(again)
}
