// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/job/podstate"
)

// Removals are the pods that the rules of one stage want to release. The next version of the membership needs them.
type Removals struct {
	of *Handshake
	// asked are those that hold state, by rank.
	asked map[int32]*corev1.Pod
}

// NewRemovals returns no removals from a recorded membership.
func NewRemovals(of *Handshake) Removals { return Removals{of: of, asked: map[int32]*corev1.Pod{}} }

// MayRelease reports whether a pod may be deleted or replaced by intent now: by a shrink, a
// migration or a change of resources. A pod of a task with drain must hand over its state first,
// which begins when a rule asks for it here. Other pods always may.
func (r Removals) MayRelease(pod *corev1.Pod) bool {
	drain := r.of.DrainOf(pod)
	if drain == nil || !r.of.isRunningMember(pod) {
		return true
	}
	rank := podstate.Rank(pod)
	if r.of.published != nil && !r.of.IsListed(pod) {
		// It never joined, so no peer gave it state.
		return true
	}
	r.asked[rank] = pod
	return r.of.leaving.Has(rank) && r.of.result(drain) == released
}
