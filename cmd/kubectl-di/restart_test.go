// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestATenantRestartsAJobWithNewPods(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobRunning })
	isSuspended := func() bool {
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		return ptr.Deref(job.Spec.Suspend, false)
	}
	// The job stays suspended if its pods do not go.
	late := w.run(t, ns, "restart", "pong", "--timeout", "1s", "--as", tenant)
	const stays = "\njob NS/pong stays suspended: kubectl di resume pong -n NS continues it\n"
	if late.code != cli.TimedOut || !strings.HasSuffix(plain(late.stderr, ns), "job NS/pong to go: pods that are left: 1"+stays) || !isSuspended() {
		t.Errorf("got %+v", late)
	}
	again := w.run(t, ns, "restart", "pong", "--as", tenant)
	if again.code != cli.Failed || plain(again.stderr, ns) != "kubectl-di: job NS/pong is suspended: kubectl di resume pong -n NS continues it, with new pods\n" {
		t.Errorf("got %+v", again)
	}
	if got := w.run(t, ns, "resume", "pong"); got.code != 0 || isSuspended() {
		t.Fatalf("got %+v", got)
	}

	restarting := w.start(t, ns, "", "restart", "pong", "--as", tenant)
	restarting.report.shows(t, "job "+ns+"/pong: pods that are left: 1\n")
	if !isSuspended() {
		t.Error("the job is not suspended while its pods exist")
	}
	var pods corev1.PodList
	expect.NoError(t, w.live.List(t.Context(), &pods, client.InNamespace(ns)))
	for i := range pods.Items {
		expect.NoError(t, w.live.Delete(t.Context(), &pods.Items[i], client.GracePeriodSeconds(0)))
	}
	if code := restarting.ended(t); code != 0 || restarting.out.String() != "dijob.diengine.opendilab.org/pong restarted\n" || isSuspended() {
		t.Errorf("exit code %d, %s%s", code, restarting.out, restarting.report)
	}
}

func TestATenantRestartsAJobThatHasFinished(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	old := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobFailed })
	got := w.run(t, ns, "restart", "pong", "--as", tenant)
	if got.code != 0 || got.stdout != "dijob.diengine.opendilab.org/pong restarted\n" || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
	created := &v2alpha1.DIJob{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(old), created))
	if created.UID == old.UID || created.Status.Phase != "" {
		t.Errorf("the job is not a new one: %+v", created)
	}
	expect.Equal(t, "tasks", old.Spec.Tasks, created.Spec.Tasks)

	// A user who may not create jobs loses none.
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	const jane = "jane"
	w.grant(t, ns, user(jane), rule(v2alpha1.GroupName, "dijobs", "get"), rule(v2alpha1.GroupName, "dijobs", "delete"))
	denied := w.run(t, ns, "restart", "pong", "--as", jane)
	if denied.code != cli.Failed || !strings.Contains(denied.stderr, "--verb=create --resource=dijobs.diengine.opendilab.org\nnothing was done\n") {
		t.Errorf("got %+v", denied)
	}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(old), created))
}
