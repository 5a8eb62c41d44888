// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAJobGetsAndLosesTheFinalizerOfTheHistory(t *testing.T) {
	const (
		timeout = 10 * time.Minute
		ours    = names.FinalizerHistory
		others  = "example.com/archive"
	)
	for name, tc := range map[string]struct {
		optional, deleted, foreign bool
		finalizers                 []string
		// seen is how long ago this operator saw the deletion first, and clock how far its clock is ahead of the API server's.
		seen, clock time.Duration
		want        upkeep.Hold
	}{
		"a new job":                         {want: upkeep.Hold{Change: true, Finalizers: []string{ours}}},
		"a job that others hold as well":    {finalizers: []string{others}, want: upkeep.Hold{Change: true, Finalizers: []string{others, ours}}},
		"a job that has it":                 {finalizers: []string{ours, others}},
		"no history is required":            {optional: true, finalizers: []string{others}},
		"no history is required anymore":    {optional: true, finalizers: []string{ours, others}, want: upkeep.Hold{Change: true, Finalizers: []string{others}}},
		"nor of a job that is deleted":      {optional: true, deleted: true, finalizers: []string{ours}, want: upkeep.Hold{Change: true, Finalizers: []string{}}},
		"a job of another controller":       {foreign: true},
		"which brought it in its manifest":  {foreign: true, finalizers: []string{ours}},
		"and was deleted long ago":          {foreign: true, deleted: true, finalizers: []string{ours}, seen: timeout, want: upkeep.Hold{Change: true, Finalizers: []string{}, TimedOut: true}},
		"a job is deleted without it":       {deleted: true, finalizers: []string{others}},
		"a job is deleted":                  {deleted: true, finalizers: []string{ours}, want: upkeep.Hold{Left: timeout}},
		"and waits":                         {deleted: true, finalizers: []string{ours}, seen: timeout - time.Second, want: upkeep.Hold{Left: time.Second}},
		"and waits in vain":                 {deleted: true, finalizers: []string{others, ours}, seen: timeout, want: upkeep.Hold{Change: true, Finalizers: []string{others}, TimedOut: true}},
		"the clock of the operator is fast": {deleted: true, finalizers: []string{ours}, clock: 24 * time.Hour, want: upkeep.Hold{Left: timeout}},
		"and its pods are orphaned": {
			deleted: true, finalizers: []string{metav1.FinalizerOrphanDependents, ours}, seen: timeout,
			want: upkeep.Hold{Change: true, Finalizers: []string{metav1.FinalizerOrphanDependents}, TimedOut: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			deletion := time.Unix(1_000_000, 0)
			observed := Observed{Job: &v2alpha1.DIJob{}, Now: deletion.Add(tc.clock), History: state.History{Required: !tc.optional, Timeout: timeout}}
			observed.Job.Finalizers = tc.finalizers
			if tc.deleted {
				observed.Job.DeletionTimestamp = &metav1.Time{Time: deletion}
			}
			if tc.foreign {
				observed.Job.Spec.ManagedBy = ptr.To("example.com/other")
			}
			var sightings state.Sightings
			sightings.See(&observed)
			observed.Now = observed.Now.Add(tc.seen)
			sightings.See(&observed)
			expect.Equal(t, "hold", tc.want, upkeep.FindHold(&observed))
		})
	}
}

func TestAJobThatOnlyTheHistoryHoldsGivesItsPodsBackAndStaysAsItWas(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, _ string) {
		t.Helper()
		w.keeping = state.History{Required: true, Timeout: state.DefaultHistoryTimeout}
		before := w.job.Status.DeepCopy()
		w.job.Finalizers = []string{names.FinalizerHistory, metav1.FinalizerDeleteDependents}
		w.job.DeletionTimestamp, w.job.Generation = &metav1.Time{Time: w.now}, w.job.Generation+1
		w.step()
		w.reap()
		w.expectPods()
		expect.Equal(t, "status at first", *before, w.job.Status)
		w.settle()
		w.now = w.now.Add(time.Minute)
		w.settle()
		said := conditions.Find(&w.job.Status, v2alpha1.ConditionTerminating)
		if said == nil || said.Status != corev1.ConditionTrue || said.Reason != v2alpha1.ReasonWaitsForHistory || !strings.Contains(said.Message, "10m at most") {
			t.Errorf("the condition is %+v", said)
		}
		w.expectPhase(before.Phase)
		expect.Equal(t, "reason", v2alpha1.ReasonWaitsForHistory, w.job.Status.Summary.Reason)
		expect.Equal(t, "observed generation", w.job.Generation, w.job.Status.ObservedGeneration)
	})
}

func TestEndedPodsOfAJobStayUntilTheHistoryHasReadTheirLogs(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.job.Spec.CleanPodPolicy = v2alpha1.CleanPodPolicyNone
		w.end(pod, 0)
		w.settle()
		w.expectPhase(v2alpha1.JobSucceeded)
		w.job.Finalizers = []string{names.FinalizerHistory}
		w.job.DeletionTimestamp, w.job.Generation = &metav1.Time{Time: w.now}, w.job.Generation+1
		w.settle()
		w.expectPods(pod)
		w.job.Finalizers = append(w.job.Finalizers, "example.com/archive")
		w.settle()
		w.expectPods()
	})
}
