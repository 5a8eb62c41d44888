// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// concluded returns the conclusion for a job that acted on a new generation.
func concluded(edit func(*Observed, *Decision, *Effects)) (*Observed, Outcome) {
	job := &v2alpha1.DIJob{}
	job.Generation, job.Status.ObservedGeneration = 2, 1
	observed, decision, effects := &Observed{Job: job, Now: noon}, &Decision{}, &Effects{}
	decision.Status.ObservedGeneration = 2
	edit(observed, decision, effects)
	return observed, Conclude(observed, decision, effects)
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestAGenerationIsObservedOnceAllOfItIsWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Observed, *Decision, *Effects)
		want int64
	}{
		"everything was written": {func(*Observed, *Decision, *Effects) {}, 2},
		"a write failed":         {func(_ *Observed, _ *Decision, e *Effects) { e.Failed = true }, 1},
		"a write failed, and a condition says why": {func(_ *Observed, _ *Decision, e *Effects) {
			e.Failed, e.RejectedReason, e.Rejected = true, v2alpha1.ReasonQuotaExceeded, "no quota"
		}, 2},
		"a rejected write waits":      {func(_ *Observed, _ *Decision, e *Effects) { e.Waiting = true }, 1},
		"creations are held back":     {func(_ *Observed, d *Decision, _ *Effects) { d.HeldBack = true }, 1},
		"another owner has a name":    {func(_ *Observed, _ *Decision, e *Effects) { e.Taken = true }, 2},
		"the next batch is to follow": {func(_ *Observed, d *Decision, e *Effects) { d.More, e.Created = true, true }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if _, outcome := concluded(tc.edit); outcome.Status.ObservedGeneration != tc.want {
				t.Errorf("generation %d counts as observed, want %d", outcome.Status.ObservedGeneration, tc.want)
			}
		})
	}
}

func TestARejectionStaysReportedWhileItsWritesWait(t *testing.T) {
	const condition = v2alpha1.ConditionReplicaFailure
	reported := func(_ *Observed, d *Decision, _ *Effects) {
		conditions.Report(&d.Status, condition, v2alpha1.ReasonQuotaExceeded, "no quota", noon)
	}
	for name, tc := range map[string]struct {
		edit func(*Observed, *Decision, *Effects)
		want string
	}{
		"a rejection": {func(_ *Observed, _ *Decision, e *Effects) {
			e.RejectedReason, e.Rejected = v2alpha1.ReasonQuotaExceeded, "no quota"
		}, "no quota"},
		"a write waits":     {func(_ *Observed, _ *Decision, e *Effects) { e.Waiting = true }, "no quota"},
		"creations wait":    {func(_ *Observed, d *Decision, _ *Effects) { d.HeldBack = true }, "no quota"},
		"nothing is waited": {func(*Observed, *Decision, *Effects) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, outcome := concluded(func(o *Observed, d *Decision, e *Effects) {
				reported(o, d, e)
				tc.edit(o, d, e)
			})
			if got := conditions.Find(&outcome.Status, condition); got.Message != tc.want || conditions.IsTrue(&outcome.Status, condition) != (tc.want != "") {
				t.Errorf("the condition is %+v, want message %q", got, tc.want)
			}
		})
	}
}

func TestAConflictIsReportedOnceAnInterval(t *testing.T) {
	const condition = v2alpha1.ConditionNameConflict
	conflict := func(names ...string) func(*Observed, *Decision, *Effects) {
		return func(_ *Observed, d *Decision, e *Effects) { d.Conflicts, e.Conflicts = names[:1], names[1:] }
	}
	observed, outcome := concluded(conflict("pod b exists", "pod a exists"))
	if got := conditions.Find(&outcome.Status, condition); got == nil || got.Message != "pod a exists; pod b exists" {
		t.Errorf("the condition is %+v", got)
	}
	if len(outcome.Events) != 1 || outcome.RequeueAfter != ConflictDelay {
		t.Errorf("there are events %v and a requeue after %v", outcome.Events, outcome.RequeueAfter)
	}
	recorded := outcome.Status
	for age, want := range map[time.Duration]string{time.Second: "pod a exists; pod b exists", ConflictDelay: "pod c exists"} {
		_, again := concluded(func(o *Observed, d *Decision, e *Effects) {
			recorded.DeepCopyInto(&o.Job.Status)
			recorded.DeepCopyInto(&d.Status)
			o.Now = observed.Now.Add(age)
			conflict("pod c exists")(o, d, e)
		})
		if got := conditions.Find(&again.Status, condition).Message; got != want || len(again.Events) > 0 != (age == ConflictDelay) {
			t.Errorf("after %v the message is %q with events %v, want %q", age, got, again.Events, want)
		}
	}
}

func TestAJobIsRequeuedForWhatComesFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Observed, *Decision, *Effects)
		want time.Duration
	}{
		"nothing":                  {func(*Observed, *Decision, *Effects) {}, 0},
		"the decision":             {func(_ *Observed, d *Decision, e *Effects) { d.RequeueAfter, e.RetryAfter = time.Second, time.Minute }, time.Second},
		"a rejected write":         {func(_ *Observed, d *Decision, e *Effects) { d.RequeueAfter, e.RetryAfter = time.Minute, time.Second }, time.Second},
		"assumed objects":          {func(_ *Observed, d *Decision, e *Effects) { d.RequeueAfter, e.AssumedFor = time.Hour, time.Minute }, time.Minute},
		"the next batch":           {func(_ *Observed, d *Decision, e *Effects) { d.More, e.Created, e.AssumedFor = true, true, time.Minute }, batchDelay},
		"a batch without progress": {func(_ *Observed, d *Decision, e *Effects) { d.More, e.RetryAfter = true, time.Minute }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if _, outcome := concluded(tc.edit); outcome.RequeueAfter != tc.want {
				t.Errorf("the job is requeued after %v, want %v", outcome.RequeueAfter, tc.want)
			}
		})
	}
}

func TestConcludingChangesNoDecision(t *testing.T) {
	job := &v2alpha1.DIJob{}
	decision := Decision{Events: []Event{{Type: corev1.EventTypeNormal}}, Conflicts: []string{"b", "a"}}
	conditions.Report(&decision.Status, v2alpha1.ConditionReplicaFailure, v2alpha1.ReasonQuotaExceeded, "no quota", noon)
	Conclude(&Observed{Job: job, Now: noon}, &decision, &Effects{Failed: true})
	if !conditions.IsTrue(&decision.Status, v2alpha1.ConditionReplicaFailure) || len(decision.Events) != 1 || !slices.Equal(decision.Conflicts, []string{"b", "a"}) {
		t.Errorf("the decision has become %+v", decision)
	}
}
