// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/workload"
)

// place is what the Membership says of a pod.
type place struct {
	member *v2alpha1.Member
	// rank is the recorded rank of the slot, 0 for none.
	rank int32
	// index is 0 for a replica or an aggregator, and counts DDP learners from 1.
	index int
	// isShared is set if several slots have the pod's name.
	isShared bool
}

// places returns the places of the pods in the Membership, by name; none if it is not of this job, or too long.
func places(in *state.Input) map[string]place {
	list := in.Membership
	if list == nil || list.Spec.JobUID != in.Job.UID || slots.Excess(list.Spec.Members) != "" {
		return nil
	}
	recorded := slots.Recorded(&list.Status)
	found := make(map[string]place, len(list.Spec.Members))
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		of := recorded[member.Slot]
		for index, pod := range membership.PodNames(in.Job.Name, member, of.Losses) {
			_, isShared := found[pod]
			found[pod] = place{member: member, rank: of.Rank, index: index, isShared: isShared}
		}
	}
	return found
}

// publishedList returns the published membership of a job that holds state; an empty one for other jobs.
func publishedList(in *state.Input) handshake.List {
	if scaling := in.Job.Status.Scaling; handshake.HasStateful(in.Job) && scaling != nil && scaling.Membership != nil {
		return handshake.ReadList(scaling.Membership)
	}
	return handshake.List{}
}

// identify returns a function that adds the labels of a pod's role, and the annotations that follow from the
// Membership, or from the published list if its member is gone.
func identify(in *state.Input) func(*corev1.Pod, *state.Identity) {
	all, isStateful, listed := places(in), handshake.HasStateful(in.Job), publishedList(in)
	return func(pod *corev1.Pod, identity *state.Identity) {
		if all == nil {
			// The Membership is built from the pods as they are.
			return
		}
		of, isMember := all[pod.Name]
		role := roleOfName(in.Job.Name, pod.Name)
		if isMember && !of.isShared {
			role = of.identify(pod, identity, isStateful)
		}
		if rank, isListed := listed.RankOf(pod); !isMember && isListed {
			// The record of its rank goes with its member.
			identity.Annotate(names.AnnotationRank, strconv.Itoa(int(rank)))
		}
		if id := of.replicaID(in.Job, role); id != nil {
			identity.AnnotateOrOmit(names.AnnotationResources, in.Builder.BuiltFor(pod, *id))
		}
		if role == "" {
			return
		}
		identity.LabelAll(names.ReplicaLabels(in.Job.Name, role, pod.Name))
		if len(names.OwnContainers(pod)) == 0 {
			if own := workload.ToldContainers(pod, role); own != "" {
				identity.Annotate(names.AnnotationContainers, own)
			}
		}
		if role == names.ReplicaTypeCoordinator && isStateful {
			identity.Annotate(names.AnnotationRank, "0")
		}
	}
}

// identify adds the slot and the rank of a member's pod, and returns its role.
func (p *place) identify(pod *corev1.Pod, identity *state.Identity, isStateful bool) names.ReplicaType {
	identity.Annotate(names.AnnotationSlot, p.member.Slot)
	if p.index > 0 {
		if len(p.member.DDPGPUs) > 1 {
			identity.Label(names.LabelDDPLearnerType, string(names.DDPKind(p.index-1)))
		}
		return names.ReplicaTypeDDPLearner
	}
	if isStateful && p.rank > 0 {
		identity.Annotate(names.AnnotationRank, strconv.Itoa(int(p.rank)))
	}
	if _, hasUnit := pod.Annotations[names.AnnotationDDPPort]; hasUnit {
		identity.Annotate(names.AnnotationDDPGPUs, names.Unit{GPUs: p.member.DDPGPUs}.Annotations()[names.AnnotationDDPGPUs])
	}
	return membership.Role(p.member)
}

// replicaID identifies the replica of a pod for its resources; nil for none. The template of an aggregator is not
// the job's.
func (p *place) replicaID(job *v2alpha1.DIJob, role names.ReplicaType) *workload.ReplicaID {
	switch {
	case role == names.ReplicaTypeCoordinator:
		return ptr.To(workload.CoordinatorID(job))
	case p.member != nil && !p.isShared && role != names.ReplicaTypeAggregator:
		return ptr.To(workload.MemberID(job, p.member))
	}
	return nil
}

// roleOfName returns the role of a pod by its name; "" if it has none.
func roleOfName(job, pod string) names.ReplicaType {
	if pod == names.CoordinatorPod(job) {
		return names.ReplicaTypeCoordinator
	}
	for _, role := range []names.ReplicaType{
		names.ReplicaTypeCollector, names.ReplicaTypeLearner, names.ReplicaTypeDDPLearner, names.ReplicaTypeAggregator,
	} {
		if strings.HasPrefix(pod, names.ReplicaPod(job, role, "")) && membership.IsReplicaName(job, pod) {
			return role
		}
	}
	return ""
}
