// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestATableSaysInOneWordWhyAJobDoesNotRun(t *testing.T) {
	t.Parallel()
	condition := func(kind string, status corev1.ConditionStatus, reason string) v2alpha1.DIJobCondition {
		return v2alpha1.DIJobCondition{Type: kind, Status: status, Reason: reason}
	}
	isTrue := func(kind, reason string) v2alpha1.DIJobCondition {
		return condition(kind, corev1.ConditionTrue, reason)
	}
	isFalse := func(kind, reason string) v2alpha1.DIJobCondition {
		return condition(kind, corev1.ConditionFalse, reason)
	}
	for name, tc := range map[string]struct {
		phase      v2alpha1.Phase
		conditions []v2alpha1.DIJobCondition
		suspended  bool
		empty      bool
		failure    string
		want       string
	}{
		"a running job needs none":             {phase: v2alpha1.JobRunning},
		"a problem that is over is none":       {phase: v2alpha1.JobRunning, conditions: []v2alpha1.DIJobCondition{isFalse(v2alpha1.ConditionReplicasStalled, "")}},
		"an image that cannot be pulled":       {phase: v2alpha1.JobStarting, conditions: []v2alpha1.DIJobCondition{isTrue(v2alpha1.ConditionReplicasStalled, "ImagePull")}, want: "ImagePull"},
		"a quota comes before a stalled pod":   {phase: v2alpha1.JobStarting, conditions: []v2alpha1.DIJobCondition{isTrue(v2alpha1.ConditionReplicasStalled, "ImagePull"), isTrue(v2alpha1.ConditionReplicaFailure, "QuotaExceeded")}, want: "QuotaExceeded"},
		"a suspended job that has problems":    {phase: v2alpha1.JobPending, suspended: true, conditions: []v2alpha1.DIJobCondition{isTrue(v2alpha1.ConditionReplicasStalled, "Terminating")}, want: "Suspended"},
		"a job that waits for room":            {phase: v2alpha1.JobPending, conditions: []v2alpha1.DIJobCondition{isFalse(v2alpha1.ConditionAllocated, "InsufficientCapacity")}, want: "InsufficientCapacity"},
		"a job that is placed":                 {phase: v2alpha1.JobRunning, conditions: []v2alpha1.DIJobCondition{isTrue(v2alpha1.ConditionAllocated, "PartiallyPlaced")}},
		"a job in a queue":                     {phase: v2alpha1.JobPending, conditions: []v2alpha1.DIJobCondition{isFalse(v2alpha1.ConditionAdmitted, "WaitingInQueue")}, want: "WaitingInQueue"},
		"a job whose queue was cleared":        {phase: v2alpha1.JobRunning, conditions: []v2alpha1.DIJobCondition{isFalse(v2alpha1.ConditionAdmitted, "")}},
		"a resize is named by its condition":   {phase: v2alpha1.JobRunning, conditions: []v2alpha1.DIJobCondition{isTrue(v2alpha1.ConditionResizing, "Resized")}, want: "Resizing"},
		"a job without replicas":               {phase: v2alpha1.JobPending, empty: true, want: "NoReplicas"},
		"a restart is named by its failure":    {phase: v2alpha1.JobRestarting, failure: "OOMKilled", want: "OOMKilled"},
		"an earlier failure of a running job":  {phase: v2alpha1.JobRunning, failure: "OOMKilled"},
		"a failed job is named by its failure": {phase: v2alpha1.JobFailed, failure: "DeadlineExceeded", conditions: []v2alpha1.DIJobCondition{isTrue(v2alpha1.ConditionReplicasStalled, "ImagePull")}, want: "DeadlineExceeded"},
		"a job that succeeded in spite of it":  {phase: v2alpha1.JobSucceeded, failure: "OOMKilled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Suspend: &tc.suspended}}
			status := v2alpha1.DIJobStatus{Phase: tc.phase, Replicas: 5, Conditions: tc.conditions}
			if tc.empty {
				status.Replicas = 0
			}
			if tc.failure != "" {
				status.LastFailure = &v2alpha1.LastFailure{Reason: tc.failure}
			}
			expect.Equal(t, "reason", tc.want, summarize(job, &status, noon).Reason)
		})
	}
}

func TestATableCountsTheReadyOfTheDesiredReplicas(t *testing.T) {
	t.Parallel()
	for want, counts := range map[string]struct{ ready, desired int32 }{
		"3/5": {3, 5}, "0/1": {0, 1},
		// Two replicas that a resize removes still run.
		"6/6": {8, 6},
	} {
		status := v2alpha1.DIJobStatus{Phase: v2alpha1.JobRunning, ReadyReplicas: counts.ready, Replicas: counts.desired, Restarts: 2}
		summary := summarize(&v2alpha1.DIJob{}, &status, noon)
		expect.Equal(t, "summary", v2alpha1.StatusSummary{Ready: want, Restarts: 2}, *summary)
	}
}

func TestATableSaysHowLongAFinishedJobWasActive(t *testing.T) {
	t.Parallel()
	job := &v2alpha1.DIJob{}
	job.CreationTimestamp = metav1.NewTime(noon.Add(-5 * time.Hour))
	resumed := v2alpha1.DIJobCondition{Type: v2alpha1.ConditionSuspended, Status: corev1.ConditionFalse, LastTransitionTime: ptr.To(metav1.NewTime(noon.Add(-90 * time.Minute)))}
	finished := v2alpha1.DIJobCondition{Type: string(v2alpha1.JobSucceeded), Status: corev1.ConditionTrue}
	status := v2alpha1.DIJobStatus{Phase: v2alpha1.JobSucceeded, CompletionTimestamp: ptr.To(metav1.NewTime(noon)), Conditions: []v2alpha1.DIJobCondition{finished}}
	// Those of its replicas that are still ready will soon be gone.
	status.ReadyReplicas, status.Replicas = 4, 5
	expect.Equal(t, "summary", v2alpha1.StatusSummary{Duration: "5h"}, *summarize(job, &status, noon))
	job.Status.Conditions = []v2alpha1.DIJobCondition{resumed}
	expect.Equal(t, "duration since it was resumed", "90m", summarize(job, &status, noon).Duration)

	// What is recorded of a finished job stays: a later reconcile must not write every finished job again.
	job.Status = status
	expect.Equal(t, "summary of a job that finished under an earlier release", nil, summarize(job, &status, noon))
}
