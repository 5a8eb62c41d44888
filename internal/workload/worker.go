// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Seat is the place of one replica in a worker-led job.
type Seat struct {
	// Task is the index of the task in the spec.
	Task int
	// Index counts the replica in its task, from 0.
	Index int32
	// Rank counts the replica in its job; no two seats share one.
	Rank int32
	// Pod is the name of the replica's pod.
	Pod string
}

// Roster is who sits where in a worker-led job, at one moment.
type Roster struct {
	// Seats are the wanted replicas, by task and index.
	Seats []Seat
	// Nodes are the pod names by rank. A rank that nobody has keeps the name
	// of who had it.
	Nodes []string
	// Attempt counts the job's restarts.
	Attempt int32
	// Reschedule counts how often the job was placed or sized anew.
	Reschedule int32
	// ReplicaRestarts counts the restarts of replicas alone in that attempt, by pod.
	ReplicaRestarts map[string]int32
	// Subdomain is the one of the pods' addresses, by default the job's service.
	Subdomain string
	// Selector are labels that a service of an earlier release selects pods by.
	Selector map[string]string
}

// addresses are what the pods of one roster are told, which is the same for
// all of them, and long.
type addresses struct {
	roster *Roster
	nodes  string
	byTask map[int]string
	// cluster is what DescribeCluster says of the roster.
	cluster string
	// tensorflow is the cluster of TF_CONFIG, nil where pods get none.
	tensorflow *tfCluster
	// ranks are those that have a seat, in order, where Torch counts them.
	ranks []int32
}

// Worker builds the pod of a seat.
func (b *Builder) Worker(roster *Roster, seat *Seat) (*corev1.Pod, error) {
	template, err := b.task(seat.Task)
	if err != nil {
		return nil, err
	}
	task := &b.job.Spec.Tasks[seat.Task]
	pod := b.newPod(template, seat.Pod)
	setLabels(pod, roster.Selector)
	setLabels(pod, names.WorkerLabels(b.job.Name, task.Type, names.TaskName(task), seat.Pod))
	b.annotateWorker(pod, roster, seat)
	pod.Spec.Hostname = seat.Pod
	pod.Spec.Subdomain = b.subdomain(roster)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	annotateContainers(pod, names.MainContainer(&pod.Spec))
	addPort(&pod.Spec, names.Port, names.DefaultWorkerPort)
	env, err := b.clusterEnv(roster, seat)
	if err != nil {
		return nil, err
	}
	setEnv(&pod.Spec, append(b.workerEnv(roster, seat), env...))
	addToken(&pod.Spec)
	place(&pod.Spec, b.nodeOf(seat))
	return pod, nil
}

func (b *Builder) annotateWorker(pod *corev1.Pod, roster *Roster, seat *Seat) {
	node := b.nodeOf(seat)
	setAnnotation(pod, names.AnnotationReplicas, strconv.Itoa(len(roster.Seats)))
	setAnnotation(pod, names.AnnotationRank, strconv.Itoa(int(seat.Rank)))
	setAnnotation(pod, names.AnnotationTaskRank, strconv.Itoa(int(seat.Index)))
	setAnnotation(pod, names.AnnotationNode, node)
	setAnnotation(pod, names.AnnotationAttempt, strconv.Itoa(int(roster.Attempt)))
	annotateCount(pod, names.AnnotationReplicaRestart, roster.ReplicaRestarts[seat.Pod])
	annotateCount(pod, names.AnnotationReschedule, roster.Reschedule)
	if cluster := b.described(roster).cluster; cluster != "" {
		setAnnotation(pod, names.AnnotationCluster, cluster)
	}
}

// annotateCount annotates a pod with a count that is mostly 0, and then left out,
// so that a job's pods hold no more than they need.
func annotateCount(pod *corev1.Pod, key string, count int32) {
	delete(pod.Annotations, key)
	if count > 0 {
		setAnnotation(pod, key, strconv.Itoa(int(count)))
	}
}

// nodeOf returns the node that the allocator chose for a seat, "" for none.
func (b *Builder) nodeOf(seat *Seat) string {
	if allocation := b.job.Status.Allocation; b.job.Spec.Preemptible && int(seat.Rank) < len(allocation) {
		return allocation[seat.Rank]
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

func (b *Builder) workerEnv(roster *Roster, seat *Seat) []corev1.EnvVar {
	addresses := b.described(roster)
	generation := int64(roster.Attempt) + int64(roster.Reschedule)
	return []corev1.EnvVar{
		variable(names.EnvDIJobID, names.JobID(b.job.Namespace, b.job.Name, generation)),
		variable(names.EnvDIServerURL, b.settings.ServerURLWorker),
		number(names.EnvDIRank, seat.Rank),
		variable(names.EnvDINodes, addresses.nodes),
		variable(names.TaskNodesVariable(names.TaskName(&b.job.Spec.Tasks[seat.Task])), addresses.byTask[seat.Task]),
	}
}

// described returns what the pods of a roster are told, worked out once.
func (b *Builder) described(roster *Roster) *addresses {
	if b.addresses.roster != roster {
		b.addresses = b.addressesOf(roster)
	}
	return &b.addresses
}

func (b *Builder) addressesOf(roster *Roster) addresses {
	byTask := map[int][]string{}
	counts := make([]int32, len(b.job.Spec.Tasks))
	for i := range roster.Seats {
		seat := &roster.Seats[i]
		byTask[seat.Task] = append(byTask[seat.Task], seat.Pod)
		counts[seat.Task]++
	}
	subdomain := b.subdomain(roster)
	result := addresses{
		roster: roster, nodes: b.join(roster.Nodes, subdomain), byTask: map[int]string{}, cluster: DescribeCluster(&b.job.Spec, counts),
	}
	for task, pods := range byTask {
		result.byTask[task] = b.join(pods, subdomain)
	}
	return result
}

func (b *Builder) subdomain(roster *Roster) string {
	return cmp.Or(roster.Subdomain, names.WorkerService(b.job.Name))
}

func (b *Builder) join(pods []string, subdomain string) string {
	joined := make([]string, len(pods))
	for i, pod := range pods {
		// A rank that nobody is known to have had has no address.
		if pod != "" {
			joined[i] = names.HostFQDN(pod, subdomain, b.job.Namespace, b.settings.ServiceDomain)
		}
	}
	return strings.Join(joined, ",")
}

// ToldNodes returns what a worker-led pod was told of its job's nodes when it
// was created, "" where it was told nothing.
func ToldNodes(pod *corev1.Pod) string {
	return told(pod, names.EnvDINodes)
}

// IsOfEarlierRelease tells whether v1.1.0 to v1.1.3 made a worker-led pod: these
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

// CountNodes returns how many pod names ReadNodes reads.
func CountNodes(told string) int {
	if told == "" {
		return 0
	}
	return strings.Count(told, ",") + 1
}

// ReadNodes returns the pod names by rank that were told.
func ReadNodes(told string) []string {
	if told == "" {
		return nil
	}
	nodes := strings.Split(told, ",")
	for i := range nodes {
		nodes[i], _, _ = strings.Cut(nodes[i], ".")
	}
	return nodes
}

// WorkerService builds the headless service that names a worker-led job's
// pods. It publishes pods that are not ready, as they find each other to become it.
func WorkerService(job *v2alpha1.DIJob) *corev1.Service {
	service := headless(job, names.WorkerService(job.Name), names.WorkerJobLabels(job.Name), names.DefaultWorkerPort)
	service.Spec.PublishNotReadyAddresses = true
	return service
}
