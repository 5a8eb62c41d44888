// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity finds the replica of a worker-led job that a pod belongs to, and the labels and annotations that follow.
package identity

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Of returns a function that adds the labels and annotations of a pod. They follow from the records of the job, and from
// what no one can change of the pod.
func Of(in *state.Input) state.Identify {
	r := &reader{in: in, peers: map[string]*workload.Peers{}}
	return r.identify
}

// reader reads pods of a job.
type reader struct {
	in *state.Input
	// peers are what lists of peers name, by ConfigMap or text.
	peers map[string]*workload.Peers
}

// Adopted returns an adopted pod with the metadata of this attempt and placement. Earlier
// releases count a restart or a reschedule before they replace the pods that caused it. Such pods
// belong to the previous attempt.
func Adopted(in *state.Input, pod *corev1.Pod) *corev1.Pod {
	status := &in.Job.Status
	attempt, reschedule := status.Restarts, status.Reschedules
	switch {
	case status.Phase == v2alpha1.JobRestarting && state.HasFailed(in.Job, pod):
		attempt = max(attempt-1, 0)
	case status.Phase == v2alpha1.JobRescheduling && in.Job.Spec.Preemptible && len(status.Allocation) > 0 && placements.IsElsewhere(in.Job, pod):
		reschedule = max(reschedule-1, 0)
	}
	wanted := pod.DeepCopy()
	wanted.OwnerReferences = in.StoredReferences(pod)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationAttempt, strconv.Itoa(int(attempt)))
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationReschedule, strconv.Itoa(int(reschedule)))
	return wanted
}

// identify adds the labels of a worker's task, which v1.1.0 and v1.1.1 did not set, and the annotations that
// follow from the pod's name, variables and node. Earlier releases wrote other annotations.
func (r *reader) identify(pod *corev1.Pod, identity *state.Identity) {
	replica, isKnown := ReplicaOf(r.in.Job, pod.Name)
	if !isKnown {
		return
	}
	of := &r.in.Job.Spec.Tasks[replica.Task]
	identity.Label(names.LabelOperator, names.ControllerName)
	identity.Label(names.LabelJob, r.in.Job.Name)
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
		if own := r.in.Builder.OwnContainers(replica.Task); own != "" {
			identity.Annotate(names.AnnotationContainers, own)
		}
	}
	r.identifyAttempt(pod, generation, identity)
	r.identifyBuild(pod, &replica, identity)
}

// identifyBuild adds the annotations that describe what a pod was built with.
func (r *reader) identifyBuild(pod *corev1.Pod, replica *workload.Replica, identity *state.Identity) {
	// An operator of the previous version may have created the pod, without the variable.
	recorded, told := r.in.Job.Status.ReplicaRestarts[pod.Name], workload.ReplicaRestartsOf(pod)
	if told != "" || recorded == 0 || pod.Annotations[names.AnnotationReplicaRestart] != strconv.Itoa(int(recorded)) {
		identity.AnnotateOrOmit(names.AnnotationReplicaRestart, told)
	}
	sized := Sized(r.in, replica)
	identity.AnnotateOrOmit(names.AnnotationResources, r.in.Builder.BuiltFor(pod, sized.ReplicaID))
	peers := r.readPeers(pod)
	if peers == nil {
		return
	}
	identity.Annotate(names.AnnotationReplicas, workload.ToldReplicas(pod, peers))
	if cluster := workload.ToldCluster(&r.in.Job.Spec, pod, peers); cluster != "" {
		identity.Annotate(names.AnnotationCluster, cluster)
	}
}

// readPeers returns what a pod's list of peers names; nil if it is unknown. Nearly all pods have the same long list,
// in the same ConfigMap, so it is read once.
func (r *reader) readPeers(pod *corev1.Pod) *workload.Peers {
	told := workload.ToldNodes(pod, r.in.ConfigMapNamed)
	if told == "" {
		return nil
	}
	list := cmp.Or(workload.NodesOf(pod), told)
	if known := r.peers[list]; known != nil {
		return known
	}
	peers := &workload.Peers{Counts: make([]int32, len(r.in.Job.Spec.Tasks))}
	for _, name := range workload.ReadNodes(told) {
		if name == "" {
			continue
		}
		peers.Total++
		if replica, isKnown := ReplicaOf(r.in.Job, name); isKnown {
			peers.Counts[replica.Task]++
		}
	}
	r.peers[list] = peers
	return peers
}

// identifyAttempt adds the counts of restarts and reschedules to a pod of this attempt and placement whose
// annotations disagree with its variables.
func (r *reader) identifyAttempt(pod *corev1.Pod, generation int64, identity *state.Identity) {
	status := &r.in.Job.Status
	annotated := int64(podstate.Attempt(pod)) + int64(podstate.Reschedule(pod))
	if annotated == generation && pod.Annotations[names.AnnotationAttempt] != "" || generation != names.Generation(status) {
		return
	}
	identity.Annotate(names.AnnotationAttempt, strconv.Itoa(int(status.Restarts)))
	if status.Reschedules > 0 || pod.Annotations[names.AnnotationReschedule] != "" {
		identity.Annotate(names.AnnotationReschedule, strconv.Itoa(int(status.Reschedules)))
	}
}

// Sized returns a replica with its pod, as the rules of resources know it.
func Sized(in *state.Input, replica *workload.Replica) rightsize.Replica {
	id := workload.ReplicaID{Task: names.TaskName(&in.Job.Spec.Tasks[replica.Task]), Index: replica.Index}
	return rightsize.Replica{ReplicaID: id, Pod: in.PodNamed[replica.Pod]}
}

// ReplicaOf returns the task and index of the replica with a pod's name; false if the job has no such task.
func ReplicaOf(job *v2alpha1.DIJob, pod string) (workload.Replica, bool) {
	for i := range job.Spec.Tasks {
		if index, isOf := ranks.IndexOf(job.Name, names.TaskName(&job.Spec.Tasks[i]), pod); isOf {
			return workload.Replica{Task: i, Index: index, Pod: pod}, true
		}
	}
	return workload.Replica{}, false
}
