// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/workload"
)

// Requirements are what a replica requests, and which nodes it accepts.
type Requirements struct {
	amounts []int64
	// names are the requested resources by their position, for messages.
	names       map[int]corev1.ResourceName
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	// impossible is a requested resource that no node has.
	impossible corev1.ResourceName
	// extended and native are the largest shares that it requests of what all nodes have: of a
	// resource that only some nodes have, such as GPUs, and of CPU, memory and the like.
	extended, native float64
	// key is equal for equal requirements. nodesKey is the part that nodes are accepted by.
	key, nodesKey string
}

// RequirementsOf returns the requirements of pods of a spec, with the requests that the API server
// defaults. Existing pods of the spec may request more: admission adds sidecars, the overhead of a
// RuntimeClass and the defaults of a LimitRange. The largest amount of each resource counts.
func (s *Snapshot) RequirementsOf(spec *corev1.PodSpec, existing ...*corev1.Pod) *Requirements {
	pod := &corev1.Pod{Spec: *workload.DefaultRequests(spec)}
	requests := s.requestsOf(pod)
	for _, other := range existing {
		for name, quantity := range s.requestsOf(other) {
			if quantity.Cmp(requests[name]) > 0 {
				requests[name] = quantity
			}
		}
	}
	requirements := &Requirements{
		amounts:     s.amounts(requests),
		names:       map[int]corev1.ResourceName{},
		affinity:    nodeaffinity.GetRequiredNodeAffinity(pod),
		tolerations: spec.Tolerations,
	}
	for name, quantity := range requests {
		switch i, known := s.axis[name]; {
		case known:
			requirements.names[i] = name
			requirements.share(name, requirements.amounts[i], s.total[i])
		case !quantity.IsZero() && (requirements.impossible == "" || name < requirements.impossible):
			requirements.impossible = name
		}
	}
	requirements.setKeys(spec)
	return requirements
}

// share updates the shares by one resource.
func (r *Requirements) share(name corev1.ResourceName, amount, total int64) {
	if amount <= 0 {
		return
	}
	share := float64(amount) / float64(max(total, 1))
	if isNative(name) {
		r.native = max(r.native, share)
	} else {
		r.extended = max(r.extended, share)
	}
}

// isNative reports whether every node has a resource.
func isNative(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || name == corev1.ResourcePods
}

func (r *Requirements) setKeys(spec *corev1.PodSpec) {
	var required *corev1.NodeSelector
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		required = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(spec.NodeSelector) > 0 || required != nil || len(spec.Tolerations) > 0 || r.impossible != "" {
		// Both print maps in the order of their keys, and values instead of pointers.
		r.nodesKey = fmt.Sprintf("%q %s %s %q", spec.NodeSelector, required, stringOf(spec.Tolerations), r.impossible)
	}
	r.key = fmt.Sprint(r.amounts, r.nodesKey)
}

func stringOf(tolerations []corev1.Toleration) string {
	var all strings.Builder
	for i := range tolerations {
		all.WriteString(tolerations[i].String())
	}
	return all.String()
}

// byScarcity orders tasks: those that request the largest share of a scarce resource are first.
func byScarcity(a, b *Requirements) int {
	return cmp.Or(cmp.Compare(b.extended, a.extended), cmp.Compare(b.native, a.native))
}

// accepts reports whether a node may run pods of these requirements if it has the capacity.
func (r *Requirements) accepts(node *corev1.Node) bool {
	if r.impossible != "" {
		return false
	}
	if match, err := r.affinity.Match(node); err != nil || !match {
		return false
	}
	return r.tolerates(node, repels(node))
}

// MayStay reports whether pods of these requirements that run on a node may stay there.
func (r *Requirements) MayStay(node *corev1.Node) bool {
	return r.tolerates(node, evicts)
}

func (r *Requirements) tolerates(node *corev1.Node, matters func(*corev1.Taint) bool) bool {
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return matters(&taint) }) {
		return true
	}
	_, repelled := schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, r.tolerations, matters, false)
	return !repelled
}

// repels returns a predicate for the taints of a node that repel new pods. The taint for a node that
// is not ready does not count if the node reports that it is ready: Kubernetes removes it soon.
func repels(node *corev1.Node) func(*corev1.Taint) bool {
	ready := conditions.IsNodeReady(node)
	return func(taint *corev1.Taint) bool {
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule:
			return taint.Key != corev1.TaintNodeNotReady || !ready
		case corev1.TaintEffectNoExecute:
			return true
		case corev1.TaintEffectPreferNoSchedule:
		}
		return false
	}
}

// evicts reports whether a taint evicts pods at once. A node that is unreachable may come back.
func evicts(taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoExecute &&
		taint.Key != corev1.TaintNodeNotReady && taint.Key != corev1.TaintNodeUnreachable
}

// room returns how many pods of these requirements the amounts hold, at most a number.
func (r *Requirements) room(free []int64, most int32) int32 {
	room := int64(most)
	for i, amount := range r.amounts {
		if amount > 0 {
			room = min(room, max(free[i], 0)/amount)
		}
	}
	return int32(room)
}

// take subtracts amounts a number of times.
func take(free, amounts []int64, times int32) {
	for i := range free {
		free[i] -= amounts[i] * int64(times)
	}
}
