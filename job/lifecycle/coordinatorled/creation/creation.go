// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package creation creates the pods of a coordinator-led job with their services.
package creation

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/workload"
)

// Rules are the rules of pods that are created.
type Rules struct {
	out *state.Plan
	in  *state.Input
}

// New returns the rules of pods that are created.
func New(out *state.Plan, in *state.Input) Rules { return Rules{out: out, in: in} }

// May reports whether a pod is created now. If the pod exists, it creates its service instead. No client can
// reach a pod before it has its service. So no name that was reached is used twice, even if the operator exits
// before it has recorded the pod.
func (c Rules) May(role names.ReplicaType, name string) bool {
	if pod := c.in.PodNamed[name]; pod != nil {
		c.EnsureService(pod)
		return false
	}
	return !c.out.IsPodTaken(name) && c.out.MayCreate(string(role))
}

// Create creates a pod that was built, with Kueue's metadata, or records why it could not be built.
func (c Rules) Create(pod *corev1.Pod, err error, meta queueing.PodMeta) {
	if err != nil {
		c.out.Invalidate(err.Error())
		return
	}
	meta.Apply(pod)
	c.out.CreatePod(pod)
}

// SetRank gives a new pod of a job that holds state its rank.
func (c Rules) SetRank(pod *corev1.Pod, rank int32) {
	if pod != nil && handshake.HasStateful(c.in.Job) {
		workload.SetRank(pod, rank)
	}
}

// EnsureService creates the service of a pod, or lets it select the pod. It may have
// belonged to an earlier pod with the same name, under another template.
func (c Rules) EnsureService(pod *corev1.Pod) {
	c.out.EnsureService(workload.ReplicaService(c.in.Job, pod), names.ReplicaLabels(c.in.Job.Name, names.RoleOf(pod), pod.Name))
}
