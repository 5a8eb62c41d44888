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
	// Index is the replica index.
	Index int32
	// Rank is the rank of the replica; no two replicas share one.
	Rank int32
	// Pod is the name of the replica's pod.
	Pod string
}

// Assignment is the rank assignment of a worker-led job at one moment.
type Assignment struct {
	// Replicas are the desired replicas, by task and index.
	Replicas []Replica
	// Nodes are the pod names by rank. A rank without a replica keeps the name of its last one.
	Nodes []string
	// Attempt counts the job's restarts.
	Attempt int32
	// Reschedule counts the job's reschedules.
	Reschedule int32
	// ReplicaRestarts counts the restarts of replicas alone in that attempt, by pod.
	ReplicaRestarts map[string]int32
	// Subdomain is the subdomain of the pods' addresses, by default the job's service.
	Subdomain string
	// Selector has the labels by which a service of an earlier release selects pods.
	Selector map[string]string
}

// Generation returns how often the job was restarted or rescheduled before.
func (a *Assignment) Generation() int64 { return int64(a.Attempt) + int64(a.Reschedule) }

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
	b.override(pod, ReplicaID{Task: names.TaskName(task), Index: replica.Index})
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
	if err := b.addMPI(pod, addresses, replica); err != nil {
		return nil, err
	}
	env, err := b.clusterEnv(addresses, replica)
	if err != nil {
		return nil, err
	}
	dropEnv(&pod.Spec, names.EnvDIReplicaRestart, names.EnvDIJobReplicas)
	setEnv(&pod.Spec, append(b.workerEnv(addresses, replica), env...))
	if err := addresses.mount(&pod.Spec); err != nil {
		return nil, err
	}
	addToken(&pod.Spec)
	place(&pod.Spec, b.nodeOf(replica))
	b.LeaveNode(pod, replica.Pod)
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

// annotateCount annotates a pod with a count. A count of 0 is the usual one and is left out, so
// that pods stay small.
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

// place restricts a pod to the named node, if there is one. The scheduler still checks that the pod
// fits. A pod that is bound to a node at its creation bypasses the scheduler.
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
	// One matching term is enough, so each term must name the node.
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchFields = append(terms[i].MatchFields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		})
	}
}

// LeaveNode makes a pod avoid the node that a plan moves another pod away from, which it replaces.
func (b *Builder) LeaveNode(pod *corev1.Pod, replaced string) {
	scaling := b.job.Status.Scaling
	if scaling == nil || scaling.Plan == nil {
		return
	}
	for _, migrated := range scaling.Plan.Migrations {
		if migrated.Pod == replaced {
			avoid(&pod.Spec, migrated.Node)
			return
		}
	}
}

// avoid makes the scheduler prefer other nodes than the named one, if there is one. The pod may return there if
// no other node holds it.
func avoid(spec *corev1.PodSpec, node string) {
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
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
		Weight: 100,
		Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
		}}},
	})
}

func (b *Builder) workerEnv(addresses *addresses, replica *Replica) []corev1.EnvVar {
	assignment := addresses.assignment
	env := []corev1.EnvVar{
		variable(names.EnvDIJobID, names.JobID(b.job.Namespace, b.job.Name, assignment.Generation())),
		variable(names.EnvDIServerURL, b.settings.ServerURLWorker),
		number(names.EnvDIRank, replica.Rank),
		addresses.variable(names.EnvDINodes),
		addresses.variable(names.TaskNodesVariable(names.TaskName(&b.job.Spec.Tasks[replica.Task]))),
	}
	if addresses.mounted {
		env = append(env, variable(names.EnvDINodesFile, path.Join(names.NodesDirectory, names.EnvDINodes)))
	}
	if restarts := assignment.ReplicaRestarts[replica.Pod]; restarts > 0 {
		env = append(env, number(names.EnvDIReplicaRestart, restarts))
	}
	if count := len(assignment.Replicas); count != countNamed(assignment.Nodes) {
		env = append(env, number(names.EnvDIJobReplicas, int32(count)))
	}
	return env
}

// countNamed counts the ranks that have a pod.
func countNamed(nodes []string) int {
	count := 0
	for _, pod := range nodes {
		if pod != "" {
			count++
		}
	}
	return count
}

func (b *Builder) subdomain(assignment *Assignment) string {
	return cmp.Or(assignment.Subdomain, names.WorkerService(b.job.Name))
}

// IsBuiltFor reports whether a pod was built for a job of this name, by its variables, which no one can change.
func IsBuiltFor(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	id := told(pod, names.EnvDIJobID)
	return told(pod, names.EnvPodName) == pod.Name || strings.HasPrefix(id, job.Namespace+"."+job.Name+".") || strings.HasPrefix(id, job.Namespace+"/"+job.Name+"/")
}

// IsOfEarlierRelease reports whether v1.1.0 to v1.1.3 created a worker-led pod. These releases
// wrote the job's ID in another format.
func IsOfEarlierRelease(pod *corev1.Pod) bool {
	return strings.Contains(told(pod, names.EnvDIJobID), "/")
}

// RankOf returns the rank in a worker's variables, which no one can change; "" for none.
func RankOf(pod *corev1.Pod) string { return told(pod, names.EnvDIRank) }

// ReplicaRestartsOf returns how often a worker's replica was restarted alone, by its variables; "" for never.
func ReplicaRestartsOf(pod *corev1.Pod) string { return told(pod, names.EnvDIReplicaRestart) }

// GenerationOf returns how often the job was restarted or rescheduled before a worker was created, by its
// variables. It returns false for pods of earlier releases.
func GenerationOf(pod *corev1.Pod) (int64, bool) {
	id := told(pod, names.EnvDIJobID)
	generation, err := strconv.ParseInt(id[strings.LastIndexByte(id, '.')+1:], 10, 64)
	return generation, err == nil && !IsOfEarlierRelease(pod)
}

func told(pod *corev1.Pod, key string) string {
	// All containers that a pod was created with have the same value. Those that admission adds
	// have none.
	for i := range pod.Spec.Containers {
		for _, variable := range pod.Spec.Containers[i].Env {
			if variable.Name == key {
				return variable.Value
			}
		}
	}
	return ""
}

// WorkerService builds the headless service that names a worker-led job's pods. It publishes pods
// that are not ready, because peers must find each other to become ready.
func WorkerService(job *v2alpha1.DIJob) *corev1.Service {
	service := headless(job, names.WorkerService(job.Name), names.WorkerJobLabels(job.Name), names.DefaultWorkerPort)
	service.Spec.PublishNotReadyAddresses = true
	return service
}
