// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// MinForceDeleteAfter is the minimum of ForceDeleteAfter. The condition that names the pod comes
// before its force deletion.
const MinForceDeleteAfter = podstate.TerminatingGracePeriod

// nodeInterval is how often the node of a pod that does not terminate is read.
const nodeInterval = 30 * time.Second

// forceDeleteIn returns after how long a pod may be force-deleted; false for one that never is. The
// time is that since this operator saw the deletion: the deletionTimestamp is by the API server's clock.
// Force deletion removes no finalizer, so it does not help a pod that has one.
func forceDeleteIn(o *state.Observed, pod *corev1.Pod) (time.Duration, bool) {
	if o.ForceDeleteAfter <= 0 || !podstate.Terminating(pod) || pod.Spec.NodeName == "" || len(pod.Finalizers) > 0 {
		return 0, false
	}
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
	return o.DeletionSeen(pod).Add(grace + o.ForceDeleteAfter).Sub(o.Now), true
}

// FindStuckNodes returns the names of the nodes whose pods have been terminating long enough for
// force deletion. Force deletion also requires that the node does not respond.
func FindStuckNodes(observed state.Observed) []string {
	var found []string
	for _, pod := range observed.Pods {
		if left, isLeaving := forceDeleteIn(&observed, pod); isLeaving && left <= 0 {
			found = append(found, pod.Spec.NodeName)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// DeleteByForce force-deletes terminating pods on nodes that do not respond, if the installation
// allows it.
func (u Rules) DeleteByForce() {
	var texts []string
	for _, pod := range u.in.Pods {
		left, isLeaving := forceDeleteIn(&u.in.Observed, pod)
		if !isLeaving {
			continue
		}
		if left > 0 {
			u.out.RequeueAfter(left)
			continue
		}
		node, isKnown := u.in.Nodes[pod.Spec.NodeName]
		how := howNodeIsLost(node)
		if !isKnown || how == "" {
			u.out.RequeueAfter(nodeInterval)
			continue
		}
		u.out.Decision.ForceDeletePods = append(u.out.Decision.ForceDeletePods, pod)
		texts = append(texts, fmt.Sprintf("pod %s on node %s, which %s", pod.Name, pod.Spec.NodeName, how))
	}
	if len(texts) == 0 {
		return
	}
	message := "force-deleted: " + state.Few(texts, "; ") + ". Make sure that nothing runs there anymore"
	const condition = v2alpha1.ConditionPodsForceDeleted
	if u.out.RecordCondition(condition, corev1.ConditionTrue, condition, message) {
		u.out.Event(corev1.EventTypeWarning, condition, message)
	}
}

// howNodeIsLost describes why a node cannot confirm that a pod has stopped; "" if the node
// responds. A nil node is one that is gone.
func howNodeIsLost(node *corev1.Node) string {
	if node == nil {
		return "is gone"
	}
	for i := range node.Spec.Taints {
		switch key := node.Spec.Taints[i].Key; key {
		case corev1.TaintNodeOutOfService, corev1.TaintNodeUnreachable:
			return "has taint " + key
		}
	}
	if conditions.IsNodeReady(node) {
		return ""
	}
	return "is not ready"
}
