// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// AdoptedWorker returns an adopted pod with the metadata of this attempt and placement. Earlier
// releases count a restart or a reschedule before they replace the pods that caused it. Such pods
// belong to the previous attempt.
func (f *Facts) AdoptedWorker(pod *corev1.Pod) *corev1.Pod {
	status := &f.In.Job.Status
	attempt, reschedule := status.Restarts, status.Reschedules
	switch {
	case status.Phase == v2alpha1.JobRestarting && state.HasFailed(f.In.Job, pod):
		attempt = max(attempt-1, 0)
	case status.Phase == v2alpha1.JobRescheduling && f.In.Job.Spec.Preemptible && len(status.Allocation) > 0 && IsElsewhere(f.In.Job, pod):
		reschedule = max(reschedule-1, 0)
	}
	wanted := pod.DeepCopy()
	wanted.OwnerReferences = f.In.StoredReferences(pod)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationAttempt, strconv.Itoa(int(attempt)))
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationReschedule, strconv.Itoa(int(reschedule)))
	return wanted
}

// identify adds the labels of a worker's task, which v1.1.0 and v1.1.1 did not set, and the annotations that
// follow from the pod's name, variables and node. Earlier releases wrote other annotations.
func (f *Facts) identify(pod *corev1.Pod, identity *state.Identity) {
	replica, isKnown := f.ReplicaOf(pod.Name)
	if !isKnown {
		return
	}
	of := &f.In.Job.Spec.Tasks[replica.Task]
	identity.Label(names.LabelOperator, names.ControllerName)
	identity.Label(names.LabelJob, f.In.Job.Name)
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
	if placed := placements.PlacedOn(pod); placed != "" && pod.Spec.NodeName != "" {
		identity.Annotate(names.AnnotationNode, pod.Spec.NodeName)
	}
	if len(names.OwnContainers(pod)) == 0 {
		if own := f.In.Builder.OwnContainers(replica.Task); own != "" {
			identity.Annotate(names.AnnotationContainers, own)
		}
	}
	f.identifyAttempt(pod, generation, identity)
	f.identifyBuild(pod, &replica, identity)
}

// identifyBuild adds the annotations that describe what a pod was built with.
func (f *Facts) identifyBuild(pod *corev1.Pod, replica *workload.Replica, identity *state.Identity) {
	// An operator of the previous version may have created the pod, without the variable.
	recorded, told := f.In.Job.Status.ReplicaRestarts[pod.Name], workload.ReplicaRestartsOf(pod)
	if told != "" || recorded == 0 || pod.Annotations[names.AnnotationReplicaRestart] != strconv.Itoa(int(recorded)) {
		identity.AnnotateOrOmit(names.AnnotationReplicaRestart, told)
	}
	sized := f.Sized(replica)
	identity.AnnotateOrOmit(names.AnnotationResources, f.In.Builder.BuiltFor(pod, sized.ReplicaID))
	peers := f.readPeers(pod)
	if peers == nil {
		return
	}
	identity.Annotate(names.AnnotationReplicas, workload.ToldReplicas(pod, peers))
	if cluster := workload.ToldCluster(&f.In.Job.Spec, pod, peers); cluster != "" {
		identity.Annotate(names.AnnotationCluster, cluster)
	}
}

// readPeers returns what a pod's list of peers names; nil if it is unknown. Nearly all pods have the same long list,
// in the same ConfigMap, so it is read once.
func (f *Facts) readPeers(pod *corev1.Pod) *workload.Peers {
	told := f.PeersOf(pod)
	if told == "" {
		return nil
	}
	list := cmp.Or(workload.NodesOf(pod), told)
	if known := f.peers[list]; known != nil {
		return known
	}
	peers := &workload.Peers{Counts: make([]int32, len(f.In.Job.Spec.Tasks))}
	for _, name := range workload.ReadNodes(told) {
		if name == "" {
			continue
		}
		peers.Total++
		if replica, isKnown := f.ReplicaOf(name); isKnown {
			peers.Counts[replica.Task]++
		}
	}
	f.peers[list] = peers
	return peers
}

// identifyAttempt adds the counts of restarts and reschedules to a pod of this attempt and placement whose
// annotations disagree with its variables.
func (f *Facts) identifyAttempt(pod *corev1.Pod, generation int64, identity *state.Identity) {
	status := &f.In.Job.Status
	annotated := int64(podstate.Attempt(pod)) + int64(podstate.Reschedule(pod))
	if annotated == generation && pod.Annotations[names.AnnotationAttempt] != "" || generation != names.Generation(status) {
		return
	}
	identity.Annotate(names.AnnotationAttempt, strconv.Itoa(int(status.Restarts)))
	if status.Reschedules > 0 || pod.Annotations[names.AnnotationReschedule] != "" {
		identity.Annotate(names.AnnotationReschedule, strconv.Itoa(int(status.Reschedules)))
	}
}

// PeersOf returns the list of peers that a pod was created with, "" if it is unknown.
func (f *Facts) PeersOf(pod *corev1.Pod) string {
	return workload.ToldNodes(pod, f.In.ConfigMapNamed)
}

// LacksNodes reports whether a pod refers to a ConfigMap that does not exist.
func (f *Facts) LacksNodes(pod *corev1.Pod) bool {
	name := workload.NodesOf(pod)
	return name != "" && f.In.ConfigMapNamed[name] == nil
}
