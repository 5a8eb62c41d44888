// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func nodeThat(ready corev1.ConditionStatus, taints ...string) *corev1.Node {
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key})
	}
	return node
}

func TestAPodIsDeletedByForceWhereThatIsAllowedAndItsNodeDoesNotAnswer(t *testing.T) {
	const after = 10 * time.Minute
	for name, tc := range map[string]struct {
		after     time.Duration
		since     time.Duration
		clock     time.Duration
		grace     int64
		isAnew    bool
		node      *corev1.Node
		isUnknown bool
		finalizer string
		want      string
	}{
		"its node is gone":                 {after: after, since: after, want: "is gone"},
		"its node is not ready":            {after: after, since: after, node: nodeThat(corev1.ConditionFalse), want: "is not ready"},
		"nobody hears of its node":         {after: after, since: after, node: nodeThat(corev1.ConditionUnknown), want: "is not ready"},
		"its node says nothing":            {after: after, since: after, node: &corev1.Node{}, want: "is not ready"},
		"its node is out of service":       {after: after, since: after, node: nodeThat(corev1.ConditionTrue, corev1.TaintNodeOutOfService), want: "has taint " + corev1.TaintNodeOutOfService},
		"its node is unreachable":          {after: after, since: after, node: nodeThat(corev1.ConditionTrue, corev1.TaintNodeUnreachable), want: "has taint " + corev1.TaintNodeUnreachable},
		"its node answers":                 {after: after, since: 10 * after, node: nodeThat(corev1.ConditionTrue, corev1.TaintNodeUnschedulable)},
		"its node was not looked up":       {after: after, since: after, isUnknown: true},
		"its time is not over":             {after: after, since: after - time.Second},
		"it is not allowed":                {since: 1000 * after},
		"a finalizer holds it":             {after: after, since: after, finalizer: "user/holds"},
		"it is asked to go in ten minutes": {after: after, since: after, grace: 600},
		"its grace period is over as well": {after: after, since: 2 * after, grace: 600, want: "is gone"},
		"the operator's clock is ahead":    {after: after, since: time.Second, clock: -24 * time.Hour},
		"the operator's clock is behind":   {after: after, since: after, clock: 24 * time.Hour, want: "is gone"},
		"the operator has restarted":       {after: after, since: after, isAnew: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := startedJob(t)
			pod := w.pod("job-collector-0")
			pod.Spec.NodeName = "dead"
			// The clock of the API server differs by a day.
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: w.now.Add(tc.clock)}, &tc.grace
			if tc.finalizer != "" {
				pod.Finalizers = []string{tc.finalizer}
			}
			w.observe()
			w.now = w.now.Add(tc.since)
			if tc.isAnew {
				w.sightings = state.Sightings{}
			}
			observed := w.observe()
			observed.ForceDeleteAfter = tc.after
			if !tc.isUnknown {
				observed.Nodes = map[string]*corev1.Node{"dead": tc.node}
			}
			decision := Decide(observed)
			said := conditions.Find(&decision.Status, v2alpha1.ConditionPodsForceDeleted)
			if tc.want == "" {
				if len(decision.ForceDeletePods) > 0 || said != nil {
					t.Errorf("%v are deleted by force, saying %+v", decision.ForceDeletePods, said)
				}
				if isAllowed := tc.after > 0 && tc.finalizer == ""; isAllowed && decision.RequeueAfter == 0 {
					t.Error("it is not looked at again")
				}
				return
			}
			if len(decision.ForceDeletePods) != 1 || decision.ForceDeletePods[0].UID != pod.UID {
				t.Fatalf("%v are deleted by force, want %s", decision.ForceDeletePods, pod.Name)
			}
			if want := "pod job-collector-0 on node dead, which " + tc.want; said == nil || !strings.Contains(said.Message, want) {
				t.Errorf("the condition is %+v, want %q in it", said, want)
			}
			event := Event{Type: corev1.EventTypeWarning, Reason: v2alpha1.ConditionPodsForceDeleted, Message: said.Message}
			expect.Equal(t, "the last event", event, decision.Events[len(decision.Events)-1])
			expect.Equal(t, "nodes to look up", []string{"dead"}, upkeep.FindStuckNodes(observed))
		})
	}
}

// TestThatAPodWasDeletedByForceStaysKnown: the pod's program may run again when its node returns.
func TestThatAPodWasDeletedByForceStaysKnown(t *testing.T) {
	w := startedJob(t)
	pod := w.pod("job-collector-0")
	pod.Spec.NodeName, pod.DeletionTimestamp = "dead", &metav1.Time{Time: w.now.Add(-time.Hour)}
	w.observe()
	w.now = w.now.Add(time.Minute)
	observed := w.observe()
	observed.ForceDeleteAfter, observed.Nodes = time.Minute, map[string]*corev1.Node{"dead": nil}
	w.job.Status = Decide(observed).Status
	delete(w.pods, pod.Name)
	w.allRun()
	if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionPodsForceDeleted) {
		t.Error("nothing tells of it any more")
	}
}
