// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Replica is a desired replica of a worker-led job, with its rank.
type Replica struct {
	// Task is the index of the task in the spec.
	Task int
	// Index counts the replica in its task, from 0.
	Index int32
	// Rank counts the replica in its job; no two replicas share one.
	Rank int32
	// Pod is the name of the replica's pod.
	Pod string
}

// Assignment is the rank assignment of a worker-led job at one moment.
type Assignment struct {
	// Replicas are the desired replicas, by task and index.
	Replicas []Replica
	// Nodes are the pod names by rank. A rank that no replica has keeps the name of the
	// last one.
	Nodes []string
	// Attempt counts the job's restarts.
	Attempt int32
	// Reschedule counts how often the job was placed again or resized.
	Reschedule int32
	// ReplicaRestarts counts the restarts of replicas alone in that attempt, by pod.
	ReplicaRestarts map[string]int32
	// Subdomain is the one of the pods' addresses, by default the job's service.
	Subdomain string
	// Selector are labels that a service of an earlier release selects pods by.
	Selector map[string]string
}

// Worker builds the pod of a replica.
func (b *Builder) Worker(assignment *Assignment, replica *Replica) (*corev1.Pod, error) {
	template, err := b.task(replica.Task)
	if err != nil {
		return nil, err
	}
	task := &b.job.Spec.Tasks[replica.Task]
	pod := b.newPod(template, replica.Pod)
	setLabels(pod, assignment.Selector)
	setLabels(pod, names.WorkerLabels(b.job.Name, task.Type, names.TaskName(task), replica.Pod))
	b.annotateWorker(pod, assignment, replica)
	pod.Spec.Hostname = replica.Pod
	pod.Spec.Subdomain = b.subdomain(assignment)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	annotateContainers(pod, names.MainContainer(&pod.Spec))
	addPort(&pod.Spec, names.Port, names.DefaultWorkerPort)
	addresses, err := b.described(assignment)
	if err != nil {
		return nil, err
	}
	if addresses.cluster != "" {
		setAnnotation(pod, names.AnnotationCluster, addresses.cluster)
	}
	env, err := b.clusterEnv(addresses, replica)
	if err != nil {
		return nil, err
	}
	setEnv(&pod.Spec, append(b.workerEnv(addresses, replica), env...))
	if err := addresses.mount(&pod.Spec); err != nil {
		return nil, err
	}
	addToken(&pod.Spec)
	place(&pod.Spec, b.nodeOf(replica))
	return pod, nil
}

func (b *Builder) annotateWorker(pod *corev1.Pod, assignment *Assignment, replica *Replica) {
	node := b.nodeOf(replica)
	setAnnotation(pod, names.AnnotationReplicas, strconv.Itoa(len(assignment.Replicas)))
	setAnnotation(pod, names.AnnotationRank, strconv.Itoa(int(replica.Rank)))
	setAnnotation(pod, names.AnnotationTaskRank, strconv.Itoa(int(replica.Index)))
	setAnnotation(pod, names.AnnotationNode, node)
	setAnnotation(pod, names.AnnotationAttempt, strconv.Itoa(int(assignment.Attempt)))
	annotateCount(pod, names.AnnotationReplicaRestart, assignment.ReplicaRestarts[replica.Pod])
	annotateCount(pod, names.AnnotationReschedule, assignment.Reschedule)
}

// annotateCount annotates a pod with a count that is mostly 0, and then left out,
// so that a job's pods hold no more than they need.
func annotateCount(pod *corev1.Pod, key string, count int32) {
	delete(pod.Annotations, key)
	if count > 0 {
		setAnnotation(pod, key, strconv.Itoa(int(count)))
	}
}

// nodeOf returns the node that the allocator chose for a replica, "" for none.
func (b *Builder) nodeOf(replica *Replica) string {
	if allocation := b.job.Status.Allocation; b.job.Spec.Preemptible && int(replica.Rank) < len(allocation) {
		return allocation[replica.Rank]
	}
	return ""
}

// place lets a pod run on no other node than the named one, if it is named. The
// scheduler still looks at whether it can: a pod that is bound to a node at its
// creation goes around it.
func place(spec *corev1.PodSpec, node string) {
	if node == "" {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	// One term that holds is enough, so each has to name the node.
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchFields = append(terms[i].MatchFields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		})
	}
}

func (b *Builder) workerEnv(addresses *addresses, replica *Replica) []corev1.EnvVar {
	assignment := addresses.assignment
	generation := int64(assignment.Attempt) + int64(assignment.Reschedule)
	env := []corev1.EnvVar{
		variable(names.EnvDIJobID, names.JobID(b.job.Namespace, b.job.Name, generation)),
		variable(names.EnvDIServerURL, b.settings.ServerURLWorker),
		number(names.EnvDIRank, replica.Rank),
		addresses.variable(names.EnvDINodes),
		addresses.variable(names.TaskNodesVariable(names.TaskName(&b.job.Spec.Tasks[replica.Task]))),
	}
	if addresses.mounted {
		env = append(env, variable(names.EnvDINodesFile, path.Join(names.NodesDirectory, names.EnvDINodes)))
	}
	return env
}

func (b *Builder) subdomain(assignment *Assignment) string {
	return cmp.Or(assignment.Subdomain, names.WorkerService(b.job.Name))
}

// IsOfEarlierRelease reports whether v1.1.0 to v1.1.3 made a worker-led pod: these
// wrote the ID of its job otherwise.
func IsOfEarlierRelease(pod *corev1.Pod) bool {
	return strings.Contains(told(pod, names.EnvDIJobID), "/")
}

func told(pod *corev1.Pod, key string) string {
	// All containers that a pod was made with are told the same, and those that
	// admission adds are told nothing.
	for i := range pod.Spec.Containers {
		for _, variable := range pod.Spec.Containers[i].Env {
			if variable.Name == key {
				return variable.Value
			}
		}
	}
	return ""
}

// WorkerService builds the headless service that names a worker-led job's
// pods. It publishes pods that are not ready, as they find each other to become it.
func WorkerService(job *v2alpha1.DIJob) *corev1.Service {
	service := headless(job, names.WorkerService(job.Name), names.WorkerJobLabels(job.Name), names.DefaultWorkerPort)
	service.Spec.PublishNotReadyAddresses = true
	return service
}
