// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

const (
	kind   = v2alpha1.ConditionReplicaFailure
	reason = v2alpha1.ReasonFailedCreate
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 999, time.UTC)

func TestOnlyAChangedStatusMovesTheTransitionTime(t *testing.T) {
	var status v2alpha1.DIJobStatus
	later := start.Add(time.Minute)
	if !conditions.Set(&status, kind, corev1.ConditionTrue, reason, "first", start) {
		t.Error("a new condition is no change")
	}
	if conditions.Set(&status, kind, corev1.ConditionTrue, reason, "first", later) {
		t.Error("an equal condition is a change")
	}
	if !conditions.Set(&status, kind, corev1.ConditionTrue, reason, "second", later) {
		t.Error("another message is no change")
	}
	got := conditions.Find(&status, kind)
	if !got.LastTransitionTime.Time.Equal(start.Truncate(time.Second)) || !got.LastUpdateTime.Time.Equal(later.Truncate(time.Second)) {
		t.Errorf("the condition changed at %v and was updated at %v", got.LastTransitionTime, got.LastUpdateTime)
	}
}

func TestAReportWithoutMessageClearsTheCondition(t *testing.T) {
	var status v2alpha1.DIJobStatus
	if conditions.Report(&status, kind, reason, "", start) || len(status.Conditions) > 0 {
		t.Errorf("nothing to report leaves %+v", status.Conditions)
	}
	if !conditions.Report(&status, kind, reason, "a quota is used up", start) || !conditions.IsTrue(&status, kind) {
		t.Errorf("a problem leaves %+v", status.Conditions)
	}
	conditions.Report(&status, kind, reason, "", start)
	if got := conditions.Find(&status, kind); got.Status != corev1.ConditionFalse || got.Reason != "" || got.Message != "" {
		t.Errorf("a problem that is over leaves %+v", got)
	}
}

func TestAMissingConditionIsNeitherFoundNorTrue(t *testing.T) {
	pod, node := &corev1.Pod{}, &corev1.Node{}
	if conditions.OfPod(pod, corev1.PodReady) != nil || conditions.IsTrueOfPod(pod, corev1.PodReady) ||
		conditions.OfNode(node, corev1.NodeReady) != nil || conditions.IsNodeReady(node) || conditions.IsTrue(&v2alpha1.DIJobStatus{}, kind) {
		t.Error("a condition is found that no object has")
	}
}
