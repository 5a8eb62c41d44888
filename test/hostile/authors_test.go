// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build hostile

package hostile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// These are the outcomes of an author's requests to the API server.
const (
	refused  = "refused"
	accepted = "accepted"
)

// byAuthors are attacks through the API server by users who may write jobs, pods or Memberships of
// one namespace.
func byAuthors() []attack {
	return []attack{
		{name: "2,147,483,647 replicas are refused", gets: []string{refused}, step: create(func() *unstructured.Unstructured {
			return decoded(v2Raw(`{"tasks":[{"type":"learner","replicas":2147483647,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}]}`))
		})},
		{name: "two tasks whose replicas overflow are refused", gets: []string{refused}, step: create(func() *unstructured.Unstructured {
			const task = `{"type":"none","name":"%s","replicas":2147483647,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`
			return decoded(v2Raw(`{"tasks":[` + fmt.Sprintf(task, "a") + "," + fmt.Sprintf(task, "b") + `]}`))
		})},
		{name: "a quantity of ten million digits is refused at the API server", gets: []string{refused}, step: create(func() *unstructured.Unstructured {
			return decoded(v2Job(memoryOf("1e-10000000")))
		})},
		{name: "2,000 tasks are refused at the API server", gets: []string{refused}, step: create(func() *unstructured.Unstructured {
			return decoded(manyTasks(2_000))
		})},
		{name: "8,000 tasks and references to none are refused at the API server", gets: []string{refused}, step: create(func() *unstructured.Unstructured {
			return decoded(manyReferences())
		})},
		{name: "scaling to 10,000,000 leaves the job and the operator as they are", once: true, step: patchJob("scaled", "scale", `{"spec":{"replicas":10000000}}`), holds: stillHas("scaled")},
		{name: "a status of 2,147,483,647 replicas leaves the job as it is", once: true, step: patchJob("counted", "status", `{"status":{"replicas":2147483647}}`), holds: stillHas("counted")},
		{name: "a pod of rank 20,000,000 is not sized by", once: true, step: annotatePod("ranked", names.AnnotationRank, "20000000")},
		{name: "a pod of rank 2,147,483,647 is not sized by", once: true, step: annotatePod("ranked-last", names.AnnotationRank, "2147483647")},
		{name: "a forged count of restarts does not become the job's", once: true,
			step: annotatePod("restarted", names.AnnotationAttempt, "2147483647"), holds: neverRestarted("restarted")},
		{name: "a forged Membership is not sized by", once: true, step: forgeMembership},
		{name: "a pod with only the labels of a job stays unchanged", once: true, step: labelPod, holds: isLetBe},
	}
}

// create returns a step that creates an object in the intruders' namespace.
func create(object func() *unstructured.Unstructured) func(context.Context, *world, int) string {
	return func(ctx context.Context, w *world, attacker int) string {
		made := object()
		made.SetNamespace(intruders)
		made.SetName(fmt.Sprintf("huge-%d", attacker))
		return outcomeOf(ctx, w.API.Create(ctx, made))
	}
}

// outcomeOf returns the outcome of a write to the API server.
func outcomeOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return accepted
	case ctx.Err() != nil:
		return outOfTime
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return refused
	}
	return fmt.Sprintf("%.60s", err)
}

func decoded(raw []byte) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return atV1(intruders, "undecodable")
	}
	return object
}

// workers is the number of replicas of an intruder's job.
const workers = 2

func workerJob(name string) *v2alpha1.DIJob {
	return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{
		Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To[int32](workers),
		Template: jobs.Template(),
	}}}}
}

// ledJob returns a coordinator-led job with tasks in addition to its coordinator.
func ledJob(name string, tasks ...v2alpha1.TaskType) *v2alpha1.DIJob {
	job := workerJob(name)
	template := job.Spec.Tasks[0].Template
	job.Spec = v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed}
	for _, task := range append([]v2alpha1.TaskType{v2alpha1.TaskTypeCoordinator}, tasks...) {
		job.Spec.Tasks = append(job.Spec.Tasks, v2alpha1.Task{Type: task, Template: template})
	}
	return job
}

// running returns an intruder's job whose pods are running.
func (w *world) running(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.DIJob, error) {
	created, err := w.job(ctx, job)
	if err != nil {
		return nil, err
	}
	return created, eventually(ctx, "job "+job.Name+" runs", func(ctx context.Context) error {
		if err := w.API.Get(ctx, client.ObjectKeyFromObject(created), created); err != nil {
			return err
		}
		if created.Status.Phase != v2alpha1.JobRunning {
			return fmt.Errorf("its phase is %q", created.Status.Phase)
		}
		return nil
	})
}

// patchJob returns a step that patches a subresource of a running job.
func patchJob(name, subresource, patch string) func(context.Context, *world, int) string {
	return func(ctx context.Context, w *world, _ int) string {
		job, err := w.running(ctx, workerJob(name))
		if err != nil {
			return err.Error()
		}
		return outcomeOf(ctx, w.API.SubResource(subresource).Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
}

// stillHas returns a check that a job still has its pods, and at most as many as an installation
// allows.
func stillHas(name string) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		pods, err := w.podsOf(ctx, name)
		if err != nil {
			return err
		}
		if len(pods) != workers {
			return fmt.Errorf("job %s has %d pods, not %d", name, len(pods), workers)
		}
		return nil
	}
}

func (w *world) podsOf(ctx context.Context, job string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := w.API.List(ctx, &pods, client.InNamespace(intruders), client.MatchingLabels(names.WorkerJobLabels(job))); err != nil {
		return nil, fmt.Errorf("listing the pods of job %s: %w", job, err)
	}
	return pods.Items, nil
}

// annotatePod returns a step that forges an annotation of a pod of a running job.
func annotatePod(name, key, value string) func(context.Context, *world, int) string {
	return func(ctx context.Context, w *world, _ int) string {
		if _, err := w.running(ctx, workerJob(name)); err != nil {
			return err.Error()
		}
		pods, err := w.podsOf(ctx, name)
		if err != nil || len(pods) == 0 {
			return fmt.Sprintf("%d pods, %v", len(pods), err)
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
		return outcomeOf(ctx, w.API.Patch(ctx, &pods[0], client.RawPatch(types.MergePatchType, patch)))
	}
}

func neverRestarted(name string) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		job, err := w.job(ctx, workerJob(name))
		if err != nil {
			return err
		}
		if job.Status.Restarts == math.MaxInt32 {
			return fmt.Errorf("job %s counts %d restarts", name, job.Status.Restarts)
		}
		return nil
	}
}

// forgeMembership writes impossibly high counts into the Membership of an intruder's job.
func forgeMembership(ctx context.Context, w *world, _ int) string {
	job, err := w.job(ctx, ledJob("forged", v2alpha1.TaskTypeCollector))
	if err != nil {
		return err.Error()
	}
	list := &v2alpha1.Membership{}
	err = eventually(ctx, "the Membership is there", func(ctx context.Context) error {
		return w.API.Get(ctx, client.ObjectKeyFromObject(job), list)
	})
	if err != nil {
		return err.Error()
	}
	spec := `{"spec":{"members":[{"slot":"s","task":"collector","podName":"forged-collector-aaaaa","failureReports":2000000000,"advertisedFrom":0}]}}`
	first := outcomeOf(ctx, w.API.Patch(ctx, list, client.RawPatch(types.MergePatchType, []byte(spec))))
	status := `{"status":{"slots":[{"slot":"s","losses":2000000000}]}}`
	second := outcomeOf(ctx, w.API.SubResource("status").Patch(ctx, list, client.RawPatch(types.MergePatchType, []byte(status))))
	pod := names.CoordinatorPod("forged")
	read := message{method: "GET", url: "/v1alpha1/replicas?namespace=" + intruders + "&coordinator=" + pod}
	return strings.Join([]string{first, second, w.sendAs(ctx, pod, read)}, ", ")
}

// labelPod creates a pod that has the labels of a bystander's job and no owner.
func labelPod(ctx context.Context, w *world, _ int) string {
	pod := strayPod()
	return outcomeOf(ctx, w.API.Create(ctx, pod))
}

func strayPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: intruders, Name: "stray", Labels: names.WorkerLabels("scaled", v2alpha1.TaskTypeCollector, "collector", "stray")},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func isLetBe(ctx context.Context, w *world) error {
	pod := strayPod()
	if err := w.API.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return fmt.Errorf("reading the pod with the labels alone: %w", err)
	}
	if pod.DeletionTimestamp != nil || len(pod.OwnerReferences) > 0 {
		return errors.New("the pod with the labels alone was adopted or deleted")
	}
	return w.API.Delete(ctx, pod, client.GracePeriodSeconds(0))
}
