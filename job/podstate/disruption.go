// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
)

// outOf is the prefix, in lower case, of the kubelet's reasons for a pod whose node is short of a
// resource: OutOfcpu, OutOfpods, OutOfnvidia.com/gpu.
const outOf = "outof"

// evicted is the kubelet's reason for a pod that it evicts. lowOnResource is the
// prefix of its message if the node itself is short of a resource; kubelets that
// set no condition write it, too.
const (
	evicted       = "Evicted"
	lowOnResource = "The node was low on resource: "
)

// Disrupted reports whether a failed pod was terminated by the infrastructure
// rather than by its own process. Such a pod is recreated and does not count as a
// failure.
func Disrupted(pod *corev1.Pod) bool {
	return Terminating(pod) || Disruption(pod) != ""
}

// Disruption returns what disrupted a failed pod, as a reason of the condition ReplicasDisrupted.
// It returns "" if the pod failed by its own process. The pod's reason comes first: the kubelet
// sets the condition DisruptionTarget only on pods that it had accepted.
func Disruption(pod *corev1.Pod) string {
	switch reason := pod.Status.Reason; {
	case pod.Status.Phase != corev1.PodFailed:
		// A lost node counts as a failure, unless a DisruptionTarget explains it.
	case reason == evicted:
		return evictionReason(pod)
	case reason == "Preempting":
		return v2alpha1.ReasonPreempted
	case reason == "NodeShutdown", reason == "Terminated", reason == "Shutdown", reason == "NodeLost":
		return v2alpha1.ReasonNodeLost
	case isRejection(reason):
		return v2alpha1.ReasonRejected
	}
	target := conditions.OfPod(pod, corev1.DisruptionTarget)
	switch {
	case target == nil || target.Status != corev1.ConditionTrue:
		return ""
	case target.Reason == corev1.PodReasonPreemptionByScheduler:
		return v2alpha1.ReasonPreempted
	case target.Reason == "DeletionByPodGC":
		return v2alpha1.ReasonNodeLost
	}
	return v2alpha1.ReasonEvicted
}

// evictionReason classifies a pod that its kubelet evicted: its node was short of a resource, or
// rejected the pod. A pod that exceeded its own limit, for example of an emptyDir, failed by its
// own process. The kubelet sets no condition then. A coordinator counts as evicted either way,
// because deployed users rely on that.
func evictionReason(pod *corev1.Pod) string {
	statuses, target := pod.Status.ContainerStatuses, conditions.OfPod(pod, corev1.DisruptionTarget)
	switch {
	case target != nil && target.Status == corev1.ConditionTrue, strings.HasPrefix(pod.Status.Message, lowOnResource):
		return v2alpha1.ReasonEvicted
	case len(statuses)+len(pod.Status.InitContainerStatuses) == 0:
		return v2alpha1.ReasonRejected
	case names.RoleOf(pod) == names.ReplicaTypeCoordinator:
		return v2alpha1.ReasonEvicted
	}
	return ""
}

// isRejection reports whether a kubelet rejected a pod because of a requirement that another node,
// or the same node later, may meet. A requirement that no node ever meets, such as another
// operating system or a forbidden sysctl, is a failure.
func isRejection(reason string) bool {
	switch reason {
	case "UnexpectedAdmissionError", "TopologyAffinityError", "InvalidNodeInfo",
		"NodeAffinity", "NodeName", "NodePorts", "TaintToleration":
		return true
	}
	return strings.HasPrefix(strings.ToLower(reason), outOf)
}
