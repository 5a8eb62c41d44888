// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/top"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// reports returns a profiling report.
func reports(raw string) *v2alpha1.RawObject {
	return ptr.To(jobs.Raw(raw))
}

// ready marks a pod as ready.
func (w *world) ready(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Status.Phase = corev1.PodRunning
	pods.Ready(pod)
	expect.NoError(t, w.live.Status().Update(t.Context(), pod))
}

func TestAJobIsShownOnce(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.did(t, ns, "add", "collector", "cartpole", "--replicas", "2")
	pod := &corev1.Pod{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: names.CoordinatorPod("cartpole")}, pod))
	w.ready(t, pod)
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "e"}, Type: corev1.EventTypeWarning, Reason: "BackOff", Message: "back-off",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: pod.Name, UID: pod.UID},
	}))
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Profilings = v2alpha1.JobRunning, reports(`{"reward":20.5,"text":"no number"}`)
		status.Replicas, status.ReadyReplicas = 3, 1
		status.Autoscaling = &v2alpha1.AutoscalingStatus{
			Ratio:     &v2alpha1.RatioStatus{Reason: "Grown", Message: "from 2 to 4 producers"},
			Optimizer: &v2alpha1.OptimizerStatus{Stage: "RUNNING", Message: "nothing to change"},
		}
		status.Scaling = &v2alpha1.ScalingStatus{Plan: &v2alpha1.PlanRecord{Name: "cartpole-1", UID: "u", Phase: v2alpha1.PlanExecuting}}
	})
	for _, args := range [][]string{{"top", "cartpole"}, {"top", "dijob/cartpole", "--once"}} {
		got := w.run(t, ns, args...)
		for _, want := range []string{
			"Job:         " + ns + "/cartpole\n", "Phase:       Running\n", "Ready:       1/3\n", "Tasks:       coordinator 1/1 · collector 0/2 · learner 0/0\n",
			"Reported:    reward 20.5\n",
			"Scaled:      plan cartpole-1 Executing\n", "Scaled:      ratio rule Grown: from 2 to 4 producers\n", "Scaled:      optimizer RUNNING: nothing to change\n",
			"\ncoordinator  coordinator  yes    Running  0 ", "Warning  BackOff  coordinator  back-off\n",
		} {
			if !strings.Contains(got.stdout, want) || got.code != 0 || got.stderr != "" {
				t.Errorf("%v: got %d, %s%s\nwant %q in it", args, got.code, got.stderr, got.stdout, want)
			}
		}
	}
	var asJSON, asYAML top.Snapshot
	expect.NoError(t, json.Unmarshal([]byte(w.run(t, ns, "top", "cartpole", "-o", "json").stdout), &asJSON))
	expect.NoError(t, yaml.UnmarshalStrict([]byte(w.run(t, ns, "top", "cartpole", "-o", "yaml").stdout), &asYAML))
	for _, s := range []top.Snapshot{asJSON, asYAML} {
		if s.Ready != 1 || s.Wanted != 3 || len(s.Replicas) != 1 || s.Replicas[0].Pod != pod.Name || len(s.Events) != 1 {
			t.Errorf("got %+v", s)
		}
	}
	if got := w.run(t, ns, "top", "cartpole", "-o", "name"); got != (ran{stdout: "dijob.diengine.opendilab.org/cartpole\n"}) {
		t.Errorf("got %+v", got)
	}
}

// TestEachChangeOfAJobIsPrinted follows a job without a terminal until it has finished.
func TestEachChangeOfAJobIsPrinted(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	command := w.start(t, ns, "", "top", "pong", "--watch")
	command.out.shows(t, " phase=Pending ready=0/3 restarts=0 reschedules=0 collector=0/3\n")
	pod := &corev1.Pod{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pong-collector-0"}, pod))
	w.ready(t, pod)
	command.out.shows(t, " phase=Pending ready=0/3 restarts=0 reschedules=0 collector=1/3\n")
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Replicas, status.ReadyReplicas, status.Profilings = v2alpha1.JobRunning, 4, 1, reports(`{"reward":{"mean":2}}`)
	})
	command.out.shows(t, " phase=Running ready=1/4 restarts=0 reschedules=0 collector=1/4 reward.mean=2\n")
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	if code := command.ended(t); code != 0 || command.report.String() != "" {
		t.Errorf("exit code %d: %s", code, command.report)
	}
	if got := strings.Count(command.out.String(), "\n"); got != 4 || !strings.Contains(command.out.String(), "phase=Succeeded") {
		t.Errorf("%d lines: %s", got, command.out)
	}
}

func TestARightThatTopNeedsIsNamed(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.trainer(t, ns, "cartpole")
	everything := []string{"get", "list", "watch"}
	w.grant(t, ns, user("bob"), rbacv1.PolicyRule{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs"}, Verbs: everything})
	refused := w.run(t, ns, "top", "cartpole", "--as", "bob")
	if refused.code != cli.Failed || !strings.Contains(refused.stderr, "watching the pods of job "+ns+"/cartpole: ") ||
		!strings.Contains(refused.stderr, "--verb=list,watch --resource=pods") {
		t.Errorf("got %+v", refused)
	}
	// Optional parts are omitted with a note.
	w.grant(t, ns, user("bob"), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: everything})
	got := w.run(t, ns, "top", "cartpole", "--as", "bob")
	for _, want := range []string{"coordinator  coordinator  no", "Not shown:   watching the events of namespace " + ns + ": ", "Not shown:   watching the Membership of job " + ns + "/cartpole: "} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("got %+v, want %q in it", got, want)
		}
	}
}
