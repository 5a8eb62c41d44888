// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// identify adds the labels of a worker's task, which v1.1.0 and v1.1.1 did not set, and the annotations that
// follow from the pod's name, variables and node. Earlier releases wrote other annotations.
func (in *Input) identify(pod *corev1.Pod, identity *state.Identity) {
	replica, isKnown := in.replicaOf(pod)
	if !isKnown {
		return
	}
	of := &in.Job.Spec.Tasks[replica.Task]
	identity.Label(names.LabelOperator, names.ControllerName)
	identity.Label(names.LabelJob, in.Job.Name)
	identity.Label(names.LabelTaskType, string(of.Type))
	identity.Label(names.LabelTaskName, names.TaskName(of))
	identity.Label(names.LabelPod, pod.Name)
	generation, isOurs := workload.GenerationOf(pod)
	if !isOurs {
		return
	}
	identity.Annotate(names.AnnotationTaskRank, strconv.Itoa(int(replica.Index)))
	if rank := workload.RankOf(pod); rank != "" {
		identity.Annotate(names.AnnotationRank, rank)
	}
	if placed := PlacedOn(pod); placed != "" && pod.Spec.NodeName != "" {
		identity.Annotate(names.AnnotationNode, pod.Spec.NodeName)
	}
	if len(names.OwnContainers(pod)) == 0 {
		if own := in.Builder.OwnContainers(replica.Task); own != "" {
			identity.Annotate(names.AnnotationContainers, own)
		}
	}
	in.identifyAttempt(pod, generation, identity)
}

// identifyAttempt adds the counts of restarts and reschedules to a pod of this attempt and placement whose
// annotations disagree with its variables.
func (in *Input) identifyAttempt(pod *corev1.Pod, generation int64, identity *state.Identity) {
	status := &in.Job.Status
	annotated := int64(podstate.Attempt(pod)) + int64(podstate.Reschedule(pod))
	if annotated == generation && pod.Annotations[names.AnnotationAttempt] != "" || generation != names.Generation(status) {
		return
	}
	identity.Annotate(names.AnnotationAttempt, strconv.Itoa(int(status.Restarts)))
	if status.Reschedules > 0 || pod.Annotations[names.AnnotationReschedule] != "" {
		identity.Annotate(names.AnnotationReschedule, strconv.Itoa(int(status.Reschedules)))
	}
}
