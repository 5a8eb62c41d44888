// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

// scalable makes a worker-led job of three collectors, as its webhook leaves it.
func (w *world) scalable(t *testing.T, namespace, name string, change func(*v2alpha1.DIJob)) *v2alpha1.DIJob {
	t.Helper()
	job := w.workers(t, namespace, name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	job.Spec.Elastic = &v2alpha1.Elastic{Task: "collector", Replicas: ptr.To[int32](3)}
	if change != nil {
		change(job)
	}
	must(t, w.live.Update(t.Context(), job))
	return job
}

// scale runs kubectl di scale, which does not call di-server.
func (w *world) scale(t *testing.T, namespace string, args ...string) ran {
	t.Helper()
	return kubectlDI(t, "", append(append([]string{"scale"}, args...), "--kubeconfig", w.kubeconfig, "-n", namespace)...)
}

func TestAJobIsScaledByItsScaleSubresource(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.scalable(t, ns, "pong", func(job *v2alpha1.DIJob) { job.Spec.Elastic.MaxReplicas = ptr.To[int32](6) })
	for _, step := range []struct {
		args           []string
		code           int
		stdout, stderr string
		want           int32
	}{
		{[]string{"--replicas=5"}, 0, "dijob.diengine.opendilab.org/pong scaled\n", "", 5},
		{[]string{"--replicas=5"}, 0, "dijob.diengine.opendilab.org/pong scaled\n", "", 5},
		{[]string{"--replicas=4", "--current-replicas=5", "--task=collector", "-o", "name"}, 0, "dijob.diengine.opendilab.org/pong\n", "", 4},
		{[]string{"--replicas=3", "--current-replicas=5"}, exit.Failed, "", "job NS/pong is to have 4 replicas of task \"collector\", not 5: nothing was done", 4},
		{[]string{"--replicas=2", "--dry-run=client"}, 0, "dijob.diengine.opendilab.org/pong scaled (dry run)\n", "", 4},
		{[]string{"--replicas=2", "--dry-run=server"}, 0, "dijob.diengine.opendilab.org/pong scaled (server dry run)\n", "", 4},
		{[]string{"--replicas=7", "--dry-run=server"}, exit.Failed, "", "must be at most maxReplicas, which is 6", 4},
		{[]string{"--replicas=7"}, exit.Failed, "", "job NS/pong cannot be scaled so: ", 4},
		{[]string{"--replicas=2", "--task=learner"}, exit.Failed, "", "job NS/pong resizes task \"collector\" and not \"learner\"", 4},
		{[]string{"--replicas=-2"}, exit.Usage, "", "--replicas -2: want 0 or more", 4},
		{nil, exit.Usage, "", "--replicas is missing", 4},
		{[]string{"--replicas=2", "-o", "wide"}, exit.Usage, "", "-o \"wide\": want one of json, yaml", 4},
		{[]string{"--replicas=2", "--dry-run=maybe"}, exit.Usage, "", "--dry-run \"maybe\": want none, client or server", 4},
		{[]string{"other", "--replicas=2"}, exit.Usage, "", "\"other\": one job at a time", 4},
	} {
		got := w.scale(t, ns, append([]string{"dijob/pong"}, step.args...)...)
		if got.code != step.code || plain(got.stdout, ns) != step.stdout || !strings.Contains(plain(got.stderr, ns), step.stderr) {
			t.Errorf("%v: got %+v", step.args, got)
		}
		must(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		if *job.Spec.Elastic.Replicas != step.want {
			t.Errorf("%v: the job is to have %d replicas, want %d", step.args, *job.Spec.Elastic.Replicas, step.want)
		}
	}
	var printed v2alpha1.DIJob
	must(t, json.Unmarshal([]byte(w.scale(t, ns, "pong", "--replicas=6", "-o", "json").stdout), &printed))
	if printed.Kind != "DIJob" || printed.Name != "pong" || *printed.Spec.Elastic.Replicas != 6 {
		t.Errorf("printed %+v", printed)
	}
	if got := w.scale(t, ns, "pong", "--replicas=6", "-o", "yaml"); !strings.Contains(got.stdout, "\nkind: DIJob\n") {
		t.Errorf("printed %s", got.stdout)
	}
}

func TestWhatCannotBeScaledSaysWhatCanBeDone(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	w.trainer(t, ns, "cartpole")
	w.scalable(t, ns, "ranged", func(job *v2alpha1.DIJob) {
		job.Spec.Preemptible = true
		job.Spec.Elastic.MinReplicas, job.Spec.Elastic.MaxReplicas = ptr.To[int32](2), ptr.To[int32](5)
	})
	w.scalable(t, ns, "fixed", func(job *v2alpha1.DIJob) { job.Spec.Preemptible = true })
	w.scalable(t, ns, "open", func(job *v2alpha1.DIJob) {
		job.Spec.Preemptible, job.Spec.Elastic.MaxReplicas = true, ptr.To[int32](5)
	})
	w.workers(t, ns, "unset", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.setStatus(t, w.scalable(t, ns, "finished", nil), func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobFailed })
	w.setStatus(t, w.scalable(t, ns, "resized", nil), func(status *v2alpha1.DIJobStatus) {
		status.Replicas, status.Scaling = 7, &v2alpha1.ScalingStatus{SpecReplicas: map[string]int32{"collector": 3}, LastReplicas: 7}
	})
	w.job(t, ns, "rigid", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner}, v2alpha1.Task{Type: v2alpha1.TaskTypeEvaluator})
	for job, want := range map[string]string{
		"nope":     `reading job NS/nope: dijobs.diengine.opendilab.org "nope" not found`,
		"cartpole": "job NS/cartpole is coordinator-led, and its coordinator decides about its replicas: see kubectl di add collector cartpole, and delete",
		"ranged":   "job NS/ranged is preemptible, and the allocator gives task \"collector\" 2 to 5 replicas: move this range by kubectl di add and delete",
		"fixed":    "the allocator gives task \"collector\" 3 to 3 replicas",
		"open":     "the allocator gives task \"collector\" 3 to 5 replicas",
		"unset":    "kubectl -n NS patch dijob unset --type merge -p '{\"spec\":{\"elastic\":{\"replicas\":3}}}'",
		"finished": "job NS/finished has finished: Failed",
		"resized":  "kubectl -n NS patch dijob resized --subresource status --type merge -p '{\"status\":{\"replicas\":3}}'",
		"rigid":    "job NS/rigid has no task that can be resized: name one in spec.elastic.task",
	} {
		got := w.scale(t, ns, job, "--replicas", "3")
		if got.code != exit.Failed || got.stdout != "" || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("%s: got %+v, want %s", job, got, want)
		}
	}
}

func TestScaleTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.scalable(t, ns, "pong", nil)
	state := func(running int32) {
		must(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
			status.ObservedGeneration, status.ElasticReplicas = job.Generation+1, 4
			status.TaskStatus = map[string]v2alpha1.TaskStatus{"collector": {corev1.PodRunning: running}}
		})
	}
	state(3)
	got := w.scale(t, ns, "pong", "--replicas=4", "--timeout=1ms")
	if got.code != exit.Failed || !strings.Contains(got.stderr, "stopped to wait: ") || !strings.HasPrefix(got.stdout, "dijob.diengine.opendilab.org/pong scaled\n") {
		t.Errorf("got %+v", got)
	}
	state(4)
	got = w.scale(t, ns, "pong", "--replicas=4", "--wait")
	if diff := cmp.Diff(ran{stdout: "dijob.diengine.opendilab.org/pong scaled\ntask \"collector\": 4 of 4 replicas run\n"}, got, cmp.AllowUnexported(ran{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = w.scale(t, ns, "pong", "--replicas=4", "--wait", "-o", "name")
	if got.stdout != "dijob.diengine.opendilab.org/pong\n" || got.stderr != "task \"collector\": 4 of 4 replicas run\n" {
		t.Errorf("got %+v", got)
	}
	must(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Spec.Suspend = ptr.To(true)
	must(t, w.live.Update(t.Context(), job))
	got = w.scale(t, ns, "pong", "--replicas=4", "--wait")
	if got.code != exit.Failed || !strings.Contains(got.stderr, "is suspended: its replicas come when it is resumed") {
		t.Errorf("got %+v", got)
	}
}

func TestScaleNeedsTheRightsThatItNames(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	w.scalable(t, ns, "pong", nil)
	as := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "scaler-" + ns}
	group := []string{v2alpha1.GroupName}
	for _, rule := range []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"dijobs"}, Verbs: []string{"get"}},
		{APIGroups: group, Resources: []string{"dijobs/scale"}, Verbs: []string{"get"}},
		{APIGroups: group, Resources: []string{"dijobs/scale"}, Verbs: []string{"update"}},
	} {
		want := "kubectl -n " + ns + " create role kubectl-di-"
		if got := w.scale(t, ns, "pong", "--replicas=4", "--as", as.Name); got.code != exit.Failed ||
			!strings.Contains(got.stderr, want) || !strings.Contains(got.stderr, "--verb="+rule.Verbs[0]+" --resource=dijobs.diengine.opendilab.org"+strings.TrimPrefix(rule.Resources[0], "dijobs")) {
			t.Errorf("got %+v", got)
		}
		w.grant(t, ns, as, rule)
	}
	if got := w.scale(t, ns, "pong", "--replicas=4", "--as", as.Name); got.code != 0 {
		t.Errorf("got %+v", got)
	}
}
