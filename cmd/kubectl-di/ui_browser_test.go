// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
)

var manyJobs = flag.Int("web.jobs", 5000, "how many jobs the page shows")

// inABrowser runs a script of web/e2e, which uses the page in Chromium.
func inABrowser(t *testing.T, script string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "node", append([]string{"e2e/" + script}, args...)...)
	command.Dir, command.Stdout, command.Stderr = "../../web", os.Stdout, os.Stderr
	expect.NoError(t, command.Run())
}

// viewer grants a user to see the jobs of a namespace, and nothing else.
func (w *world) viewer(t *testing.T, namespace string) string {
	t.Helper()
	const name = "viewer"
	w.grant(t, namespace, user(name), rule(v2alpha1.GroupName, "dijobs", "get"), rule(v2alpha1.GroupName, "dijobs", "list"),
		rule(v2alpha1.GroupName, "dijobs", "watch"))
	return name
}

func TestPageIsUsableInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	w.trainer(t, ns, "breakout")
	w.setStatus(t, w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector}), func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Summary = v2alpha1.JobPending, &v2alpha1.StatusSummary{Reason: "ImagePull"}
		status.Conditions = []v2alpha1.DIJobCondition{{
			Type: "Stalled", Status: corev1.ConditionTrue, Reason: "ImagePull", Message: "pong-collector-0 cannot pull image di",
		}}
	})
	create, ctx := errgroup.WithContext(t.Context())
	create.SetLimit(16)
	for i := range *manyJobs {
		create.Go(func() error {
			return w.live.Create(ctx, &v2alpha1.DIJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("many-%04d", i)},
				Spec:       v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Template: jobs.Serving()}}},
			})
		})
	}
	expect.NoError(t, create.Wait())
	inABrowser(t, "page.mjs", w.printedURL(t, ns, "-n", ns).String(), w.printedURL(t, ns, "-n", ns, "--as", w.viewer(t, ns)).String(),
		ns, strconv.Itoa(*manyJobs+2))
}

func TestEveryViewIsAccessibleInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	w.trainer(t, ns, "breakout")
	w.waits(t, ns, "waiting")
	w.grown(t, ns, "curves")
	w.failing(t, ns, "failed")
	w.operated(t, ns, "failed", func(status *v2alpha1.DIJobStatus) {
		const why = "the replicas failed more often than spec.backoffLimit allows"
		status.LastFailure.Reason, status.LastFailure.ExitCode = v2alpha1.ReasonOOMKilled, ptr.To[int32](137)
		status.Phase, status.Profilings = v2alpha1.JobFailed, ptr.To(jobs.Raw(`{"reward": 7}`))
		status.Conditions = []v2alpha1.DIJobCondition{condition(string(v2alpha1.JobFailed), corev1.ConditionTrue, v2alpha1.ReasonJobFailed, why, time.Minute)}
	})
	w.scalable(t, ns, "pong", func(job *v2alpha1.DIJob) { job.Spec.Elastic.MaxReplicas = ptr.To[int32](6) })
	w.scalable(t, ns, "paused", func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	control := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		w.operated(t, ns, "curves", func(status *v2alpha1.DIJobStatus) { status.Profilings.Raw = []byte(`{"reward": 180}`) })
	}))
	t.Cleanup(control.Close)
	inABrowser(t, "accessible.mjs", w.printedURL(t, ns, "-n", ns).String(), w.printedURL(t, ns, "-n", ns, "--as", w.viewer(t, ns)).String(), control.URL, ns)
}

func TestNewcomersQuestionsAreAnsweredInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	w.failing(t, ns, "breakout")
	job := w.grown(t, ns, "pong")
	w.waits(t, ns, "waiting")
	w.runs(t, ns, "walker", "", "node", 1, 0)
	address := w.printedURL(t, ns, "-n", ns, "--price", "gpu=2.5")
	b := w.browse(t, ns, "-n", ns)
	until(t, b, b.listen(t, "/api/v1/jobs/stream"), "page", "JobPage", isSynced)
	w.learns(t, job)
	inABrowser(t, "questions.mjs", address.String(), ns)
}

// waits creates a job that the allocator cannot place.
func (w *world) waits(t *testing.T, namespace, name string) {
	t.Helper()
	job := w.workers(t, namespace, name, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	job.Spec.Tasks[0].Replicas, job.Spec.Tasks[0].Template = ptr.To[int32](2), gpuTemplate(2)
	expect.NoError(t, w.live.Update(t.Context(), job))
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Replicas, status.Summary = v2alpha1.JobPending, 2, &v2alpha1.StatusSummary{Reason: v2alpha1.ReasonInsufficientCapacity}
		status.Conditions = []v2alpha1.DIJobCondition{condition(v2alpha1.ConditionAllocated, corev1.ConditionFalse,
			v2alpha1.ReasonInsufficientCapacity, "the job needs 4 GPUs, and 2 of 8 are free", time.Minute)}
	})
}

// failing creates a job whose collectors fail again and again, each for its own reason.
func (w *world) failing(t *testing.T, namespace, name string) {
	t.Helper()
	job := w.workers(t, namespace, name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	for i := range int32(3) {
		pod := names.WorkerPod(name, "collector", i)
		if i > 0 {
			w.pod(t, job, pod, names.WorkerLabels(name, v2alpha1.TaskTypeCollector, "collector", pod))
		}
	}
	last := names.WorkerPod(name, "collector", 2)
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Replicas, status.ReadyReplicas, status.Restarts = v2alpha1.JobRunning, 3, 2, 5
		status.ReplicaRestarts = map[string]int32{names.WorkerPod(name, "collector", 1): 3, last: 2}
		status.Conditions = []v2alpha1.DIJobCondition{condition(string(v2alpha1.JobRunning), corev1.ConditionTrue, "", "", 36*time.Hour)}
		status.LastFailure = &v2alpha1.LastFailure{
			Message: "Traceback (most recent call last):\n  File \"train.py\", line 12, in loss\nValueError: the shapes (4,) and (5,) differ",
			Pod:     last, ExitCode: ptr.To[int32](1), Reason: "Error", Time: ptr.To(metav1.Now()),
		}
	})
	yesterday := time.Now().AddDate(0, 0, -1)
	for minute, index := range map[int]int32{2: 2, 5: 1, 9: 1} {
		at := time.Date(yesterday.Year(), yesterday.Month(), yesterday.Day(), 14, minute, 0, 0, time.Local)
		pod := names.WorkerPod(name, "collector", index)
		w.eventAt(t, job, corev1.EventTypeWarning, v2alpha1.ReasonReplicaRestarting, fmt.Sprintf("replica collector-%d restarts: pod %s failed with exit code 137", index, pod), at)
	}
}

// grown creates a running job that was resized, and reports its throughput with each size.
func (w *world) grown(t *testing.T, namespace, name string) *v2alpha1.DIJob {
	t.Helper()
	job := w.workers(t, namespace, name, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	job.Spec.Tasks[0].Replicas, job.Spec.Tasks[0].Template = ptr.To[int32](4), gpuTemplate(2)
	expect.NoError(t, w.live.Update(t.Context(), job))
	for i := range int32(3) {
		name := names.WorkerPod(name, "learner", 10+i)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Labels: names.WorkerLabels(job.Name, v2alpha1.TaskTypeLearner, "learner", name),
				OwnerReferences: jobs.Owner(job),
			},
			Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
				Name: names.Container, Image: "di", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{names.DefaultGPU: resource.MustParse("2")}},
			}}},
		}
		expect.NoError(t, w.live.Create(t.Context(), pod))
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, ptr.To(metav1.NewTime(time.Now().Add(-time.Hour)))
		expect.NoError(t, w.live.Status().Update(t.Context(), pod))
	}
	w.event(t, job, corev1.EventTypeNormal, v2alpha1.ReasonResized, "task learner changes from 2 to 4 replicas")
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Replicas, status.ReadyReplicas = v2alpha1.JobRunning, 4, 4
		status.Profilings = ptr.To(jobs.Raw(`{"reward": 120, "throughput": [{"replicas": 2, "per_second": 40}, {"replicas": 4, "per_second": 70}]}`))
	})
	return job
}

// learns reports a reward that grows.
func (w *world) learns(t *testing.T, job *v2alpha1.DIJob) {
	t.Helper()
	for i := range 12 {
		w.operated(t, job.Namespace, job.Name, func(status *v2alpha1.DIJobStatus) {
			status.Profilings = ptr.To(jobs.Raw(fmt.Sprintf(`{"reward": %d, "throughput": [{"replicas": 2, "per_second": 40}, {"replicas": 4, "per_second": 70}]}`, 120+i)))
		})
	}
}

func TestJobsAreChangedInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	w.operate(t, ns)
	job := w.job(t, ns, "pong", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To[int32](3)})
	job.Spec.Elastic = &v2alpha1.Elastic{Task: "collector", Replicas: ptr.To[int32](3), MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](6)}
	expect.NoError(t, w.live.Update(t.Context(), job))
	restarted := &corev1.Pod{}
	key := client.ObjectKey{Namespace: ns, Name: names.WorkerPod("pong", "collector", 1)}
	eventually(t, "the operator creates the pods", func() bool { return w.live.Get(t.Context(), key, restarted) == nil })
	inABrowser(t, "actions.mjs", w.printedURL(t, ns, "-n", ns).String(), w.printedURL(t, ns, "-n", ns, "--as", w.viewer(t, ns)).String(), ns)
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	if replicas := *job.Spec.Elastic.Replicas; replicas != 4 || ptr.Deref(job.Spec.Suspend, false) {
		t.Errorf("the job has %d replicas desired, and suspend %v", replicas, job.Spec.Suspend)
	}
	pod := &corev1.Pod{}
	if err := w.live.Get(t.Context(), key, pod); client.IgnoreNotFound(err) != nil || pod.UID == restarted.UID {
		t.Errorf("pod %s was not replaced: %v", key, err)
	}
}

func TestCoordinatorLedJobsAreChangedInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: names.AggregatorConfig}}
	config.Spec.Aggregator.Template = jobs.Serving()
	expect.NoError(t, w.live.Create(t.Context(), config))
	// Nothing but the test creates it here, and the plugin calls di-server as the coordinator.
	expect.NoError(t, w.live.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}}))
	w.operate(t, ns)
	job, newborn := w.led(t, ns, "cartpole"), w.led(t, ns, "newborn")
	w.did(t, ns, "add", "collectors", job.Name, "--replicas", "2")
	w.did(t, ns, "add", "learner", job.Name, "--gpus", "2")
	first := w.members(t, job, v2alpha1.TaskTypeCollector)[0]
	coordinator := &corev1.Pod{}
	key := client.ObjectKey{Namespace: ns, Name: names.CoordinatorPod(job.Name)}
	expect.NoError(t, w.live.Get(t.Context(), key, coordinator))
	before := coordinator.UID
	inABrowser(t, "led.mjs", w.printedURL(t, ns, "-n", ns).String(), ns, job.Name, newborn.Name)
	plans := &v2alpha1.ScalePlanList{}
	expect.NoError(t, w.live.List(t.Context(), plans, client.InNamespace(ns)))
	migrated := 0
	for i := range plans.Items {
		for _, migration := range plans.Items[i].Spec.Migrate {
			migrated++
			if err := w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: migration.Pod}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
				t.Errorf("pod %s was not replaced: %v", migration.Pod, err)
			}
		}
		if plans.Items[i].Spec.Origin != v2alpha1.PlanManual || plans.Items[i].Spec.Job != job.Name {
			t.Errorf("a plan is %+v", plans.Items[i].Spec)
		}
	}
	if len(plans.Items) != 4 || migrated != 2 {
		t.Errorf("there are %d plans, and %d pods were replaced", len(plans.Items), migrated)
	}
	eventually(t, "the coordinator is created again", func() bool {
		return w.live.Get(t.Context(), key, coordinator) == nil && coordinator.UID != before
	})
	if left := w.members(t, job, v2alpha1.TaskTypeCollector); slices.ContainsFunc(left, func(member v2alpha1.Member) bool { return member.Slot == first.Slot }) {
		t.Errorf("collector %+v of the coordinator before is still a member", first)
	}
}

// led creates a coordinator-led job, and waits until the operator observes that its coordinator runs.
func (w *world) led(t *testing.T, namespace, name string) *v2alpha1.DIJob {
	t.Helper()
	job := w.job(t, namespace, name, v2alpha1.LifecycleCoordinatorLed,
		v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator}, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector}, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	coordinator := &corev1.Pod{}
	eventually(t, "the operator creates the coordinator", func() bool {
		return w.live.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.CoordinatorPod(name)}, coordinator) == nil
	})
	coordinator.Status.Phase = corev1.PodRunning
	expect.NoError(t, w.live.Status().Update(t.Context(), coordinator))
	eventually(t, "the operator observes that the coordinator runs", func() bool {
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		return job.Status.Phase == v2alpha1.JobRunning
	})
	w.cacheKnows(t, job)
	return job
}

// TestPageFollowsAnAPIServerThatIsLostInABrowser closes the address of the API server while the page is open.
func TestPageFollowsAnAPIServerThatIsLostInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobStarting })
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	expect.NoError(t, err)
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	server := strings.TrimPrefix(cluster.Server, "https://")
	path, err := proxy.New(t.Context(), "127.0.0.1:0", server)
	expect.NoError(t, err)
	address := path.Address()
	cluster.Server = "https://" + address
	through := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*config, through))
	control := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cut":
			err = path.Close()
		case "/change", "/change-again":
			job.Status.Phase = map[string]v2alpha1.Phase{"/change": v2alpha1.JobRunning, "/change-again": v2alpha1.JobRestarting}[r.URL.Path]
			err = w.live.Status().Update(r.Context(), job)
		case "/restore":
			path, err = proxy.New(t.Context(), address, server)
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(func() { control.Close(); expect.NoError(t, path.Close()) })
	inABrowser(t, "lost.mjs", w.printedURL(t, ns, "-n", ns, "--kubeconfig", through).String(), control.URL, ns)
}

func condition(kind string, status corev1.ConditionStatus, reason, message string, age time.Duration) v2alpha1.DIJobCondition {
	return v2alpha1.DIJobCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ptr.To(metav1.NewTime(time.Now().Add(-age)))}
}

func gpuTemplate(gpus int) v2alpha1.RawObject {
	return jobs.Raw(fmt.Sprintf(`{"spec":{"containers":[{"name":"di-container","image":"di","resources":{"limits":{"nvidia.com/gpu":"%d"}}}]}}`, gpus))
}
