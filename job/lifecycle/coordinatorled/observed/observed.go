// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observed has what follows from the observation of a coordinator-led job alone.
package observed

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Facts are what follows from the observation of a coordinator-led job alone. No rule changes them.
type Facts struct {
	In *state.Input
	// Coordinator is the pod of the coordinator; nil if there is none.
	Coordinator *corev1.Pod
	// Slots are the job's slots, and IsKnown is set if there is a list of them.
	Slots   []slots.Slot
	IsKnown bool
	// TooMany describes which counts of the list exceed its limits, "" for none.
	TooMany string
	// Wanted are the names of the desired pods, with those of units.
	Wanted map[string]bool
	// Ranks are the ranks of the slots of a job that holds state; nil for other jobs.
	Ranks map[string]int32
}

// Observe returns what follows from an observation.
func Observe(in *state.Input) *Facts {
	in.Restore(identify(in))
	f := &Facts{In: in, Coordinator: in.PodNamed[names.CoordinatorPod(in.Job.Name)]}
	f.readSlots()
	f.Wanted, f.Ranks = f.wanted(), slots.Ranks(in, f.Slots)
	return f
}

// readSlots reads the job's slots. A list that exceeds the limits counts as missing, and is reported: di-server writes
// no such list, so nothing is created or deleted for it.
func (f *Facts) readSlots() {
	list := f.In.Membership
	if list == nil || !list.DeletionTimestamp.IsZero() || list.Spec.JobUID != f.In.Job.UID {
		return
	}
	if f.TooMany = slots.Excess(list.Spec.Members); f.TooMany == "" {
		f.Slots, f.IsKnown = slots.Read(f.In), true
	}
}

// wanted returns the names of the desired pods.
func (f *Facts) wanted() map[string]bool {
	wanted := map[string]bool{names.CoordinatorPod(f.In.Job.Name): true}
	for i := range f.Slots {
		for _, name := range f.Slots[i].Pods {
			wanted[name] = true
		}
	}
	return wanted
}

// Excess returns the pods that belong to no slot. A pod without a slot is foreign.
func (f *Facts) Excess() []*corev1.Pod {
	var excess []*corev1.Pod
	for _, pod := range f.In.Pods {
		if !f.Wanted[pod.Name] && slots.Of(pod) != "" && !podstate.Terminating(pod) {
			excess = append(excess, pod)
		}
	}
	return excess
}

// Members returns how many members the job desires.
func (f *Facts) Members() int {
	if f.In.Membership == nil {
		return 0
	}
	return len(f.In.Membership.Spec.Members)
}

// Drains reports whether the replicas of a task hold state.
func (f *Facts) Drains(kind v2alpha1.TaskType) bool {
	for i := range f.In.Job.Spec.Tasks {
		if f.In.Job.Spec.Tasks[i].Type == kind {
			return f.In.Job.Spec.Tasks[i].Drain != nil
		}
	}
	return false
}

// Replicas returns the pods whose resources the job decides, with their replicas: the coordinator, plain
// members and DDP learners. The template of an aggregator is not the job's.
func (f *Facts) Replicas() iter.Seq[rightsize.Replica] {
	return func(yield func(rightsize.Replica) bool) {
		members := make(map[string]workload.ReplicaID, len(f.Slots))
		for i := range f.Slots {
			members[f.Slots[i].Member.Slot] = workload.MemberID(f.In.Job, f.Slots[i].Member)
		}
		for _, pod := range f.In.Pods {
			id, isKnown := members[slots.Of(pod)]
			if pod == f.Coordinator {
				id, isKnown = workload.CoordinatorID(f.In.Job), true
			}
			isTheirs := isKnown && names.RoleOf(pod) != names.ReplicaTypeAggregator
			if isTheirs && !yield(rightsize.Replica{ReplicaID: id, Pod: pod}) {
				return
			}
		}
	}
}

// Remains returns the pods and settings from which a missing Membership is rebuilt.
func (f *Facts) Remains() membership.Remains {
	gpu := f.In.Settings.Defaults().GPUResource
	return membership.Remains{Job: f.In.Job.Name, Pods: f.In.Pods, GPU: gpu, LearnerGPUs: f.learnerGPUs(gpu)}
}

// learnerGPUs returns the GPUs of the job's learner template, 0 if there is none that decodes. The
// error is reported when the template is used.
func (f *Facts) learnerGPUs(gpu corev1.ResourceName) int32 {
	for i := range f.In.Job.Spec.Tasks {
		task := &f.In.Job.Spec.Tasks[i]
		if task.Type != v2alpha1.TaskTypeLearner {
			continue
		}
		template, err := workload.Template("", task.Template)
		if err != nil {
			return 0
		}
		return membership.LearnerGPUs(v2alpha1.MemberResources{}, &template.Spec, gpu)
	}
	return 0
}
