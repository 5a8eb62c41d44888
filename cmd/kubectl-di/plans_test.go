// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAPlanIsCreatedAndReadAgain(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	got := w.run(t, ns, "plan", "history", "pong")
	if got.code != 0 || got.stdout != "" || !strings.Contains(plain(got.stderr, ns), "job NS/pong has no plans") {
		t.Errorf("without plans: %+v", got)
	}
	got = w.run(t, ns, "plan", "pong", "--task", "collector=8", "--memory", "4Gi", "--migrate", "pong-collector-1", "--remove", "pong-collector-2",
		"--reason", "larger\nbatches", "--deadline", "5m", "-o", "jsonpath={.spec}")
	const want = `{"deadlineSeconds":300,"job":"pong","migrate":[{"pod":"pong-collector-1","resources":{"memory":"4Gi"}}],"origin":"Manual",` +
		`"reason":"larger\nbatches","remove":["pong-collector-2"],"tasks":[{"name":"collector","replicas":8,"resources":{"memory":"4Gi"}}]}`
	if got.code != 0 || got.stdout != want {
		t.Fatalf("got %+v", got)
	}
	var plans v2alpha1.ScalePlanList
	expect.NoError(t, w.live.List(t.Context(), &plans, client.InNamespace(ns)))
	if len(plans.Items) != 1 {
		t.Fatalf("the plans are %v", plans.Items)
	}
	plan := &plans.Items[0]
	plan.Status.Phase, plan.Status.Message = v2alpha1.PlanRefused, "the job is full"
	expect.NoError(t, w.live.Status().Update(t.Context(), plan))
	for _, args := range [][]string{{"plan", "history", "pong"}, {"describe", "pong", "--show-events=false"}} {
		got = w.run(t, ns, args...)
		for _, text := range []string{plan.Name, "Refused", "Manual", "the job is full", "larger batches",
			"collector=8 memory=4Gi, remove pong-collector-2, migrate pong-collector-1 memory=4Gi"} {
			if got.code != 0 || !strings.Contains(got.stdout, text) {
				t.Errorf("%v does not show %q: %+v", args, text, got)
			}
		}
	}
}

func TestADryRunOfAPlanStoresNothing(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	for _, dryRun := range []string{"client", "server"} {
		if got := w.run(t, ns, "plan", "pong", "--task", "collector=8", "--dry-run="+dryRun); got.code != 0 {
			t.Errorf("got %+v", got)
		}
	}
	var plans v2alpha1.ScalePlanList
	expect.NoError(t, w.live.List(t.Context(), &plans, client.InNamespace(ns)))
	if len(plans.Items) > 0 {
		t.Errorf("stored are %v", plans.Items)
	}
}

func TestFlagsOfAPlanThatSayNothingAreRefused(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	for wrong, args := range map[string][]string{
		"the plan changes nothing: want --task":                         {},
		`--task "collector=x": want NAME=COUNT`:                         {"--task", "collector=x"},
		`--task "collector": want a count, as in collector=4`:           {"--task", "collector"},
		`--memory "0": want a quantity above 0`:                         {"--task", "collector", "--memory", "0"},
		`--cpu "1e-1000000000": the exponent of a quantity must be`:     {"--task", "collector", "--cpu", "1e-1000000000"},
		"--cpu and --memory need --task or --migrate, which they apply": {"--remove", "pong-collector-0", "--cpu", "1"},
		"--deadline 1ms: want 1s or more":                               {"--remove", "pong-collector-0", "--deadline", "1ms"},
	} {
		got := w.run(t, ns, append([]string{"plan", "pong"}, args...)...)
		if got.code != cli.Usage || !strings.Contains(got.stderr, wrong) {
			t.Errorf("%v: want %q, got %+v", args, wrong, got)
		}
	}
}

func TestAPlanIsWaitedForUntilItHasFinished(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	for _, end := range []struct {
		phase   v2alpha1.PlanPhase
		message string
		code    int
	}{
		{v2alpha1.PlanSucceeded, "8 of 8 replicas run", 0},
		{v2alpha1.PlanFailed, "no node has room", cli.Failed},
	} {
		waiting := w.start(t, ns, "", "plan", "pong", "--task", "collector=8", "--wait", "-o", "name")
		waiting.out.shows(t, "scaleplan.diengine.opendilab.org/")
		name := strings.TrimSpace(strings.TrimPrefix(waiting.out.String(), "scaleplan.diengine.opendilab.org/"))
		plan := &v2alpha1.ScalePlan{}
		for _, step := range []struct {
			phase   v2alpha1.PlanPhase
			message string
		}{{v2alpha1.PlanExecuting, "3 of 8 replicas run"}, {end.phase, end.message}} {
			expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, plan))
			plan.Status.Phase, plan.Status.Message = step.phase, step.message
			expect.NoError(t, w.live.Status().Update(t.Context(), plan))
			waiting.report.shows(t, "plan "+ns+"/"+name+": "+string(step.phase)+", "+step.message+"\n")
		}
		code := waiting.ended(t)
		if failure := "has not succeeded: Failed: no node has room"; code != end.code || strings.Contains(waiting.report.String(), failure) != (code != 0) {
			t.Errorf("exit code is %d, want %d: %s", code, end.code, waiting.report)
		}
	}
}

func TestAPlanIsWaitedForNoLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	got := w.run(t, ns, "plan", "pong", "--task", "collector=8", "--timeout=1ms")
	if got.code != cli.TimedOut || !strings.Contains(got.stderr, "stopped waiting for plan "+ns+"/pong-") || !strings.Contains(got.stdout, " created") {
		t.Errorf("got %+v", got)
	}
}
