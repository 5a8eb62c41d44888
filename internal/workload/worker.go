// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
}

// Worker builds the pod of a seat.
func (b *Builder) Worker(roster *Roster, seat *Seat) (*corev1.Pod, error) {
	template, err := b.task(seat.Task)
	if err != nil {
		return nil, err
	}
	task := &b.job.Spec.Tasks[seat.Task]
	pod := newPod(b.job, template, seat.Pod)
	setLabels(pod, names.WorkerLabels(b.job.Name, task.Type, names.TaskName(task), seat.Pod))
	b.annotateWorker(pod, roster, seat)
	pod.Spec.Hostname = seat.Pod
	pod.Spec.Subdomain = names.WorkerService(b.job.Name)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	addPort(&pod.Spec, names.Port, names.DefaultWorkerPort)
	setEnv(&pod.Spec, b.workerEnv(roster, seat))
	return pod, nil
}

func (b *Builder) annotateWorker(pod *corev1.Pod, roster *Roster, seat *Seat) {
	node := ""
	if allocation := b.job.Status.Allocation; int(seat.Rank) < len(allocation) {
		node = allocation[seat.Rank]
	}
	setAnnotation(pod, names.AnnotationReplicas, strconv.Itoa(len(roster.Seats)))
	setAnnotation(pod, names.AnnotationRank, strconv.Itoa(int(seat.Rank)))
	setAnnotation(pod, names.AnnotationTaskRank, strconv.Itoa(int(seat.Index)))
	setAnnotation(pod, names.AnnotationNode, node)
	setAnnotation(pod, names.AnnotationAttempt, strconv.Itoa(int(roster.Attempt)))
}

func (b *Builder) workerEnv(roster *Roster, seat *Seat) []corev1.EnvVar {
	var task []string
	for i := range roster.Seats {
		if roster.Seats[i].Task == seat.Task {
			task = append(task, roster.Seats[i].Pod)
		}
	}
	generation := int64(roster.Attempt) + int64(b.job.Status.Reschedules)
	return []corev1.EnvVar{
		variable(names.EnvDIJobID, names.JobID(b.job.Namespace, b.job.Name, generation)),
		variable(names.EnvDIServerURL, b.settings.ServerURLWorker),
		number(names.EnvDIRank, seat.Rank),
		variable(names.EnvDINodes, b.addresses(roster.Nodes)),
		variable(names.TaskNodesVariable(names.TaskName(&b.job.Spec.Tasks[seat.Task])), b.addresses(task)),
	}
}

func (b *Builder) addresses(pods []string) string {
	addresses := make([]string, len(pods))
	for i, pod := range pods {
		// A rank that nobody is known to have had has no address.
		if pod == "" {
			continue
		}
		addresses[i] = names.WorkerFQDN(pod, b.job.Name, b.job.Namespace, b.settings.ServiceDomain)
	}
	return strings.Join(addresses, ",")
}

// RecordedNodes returns the pod names by rank that a worker-led pod was told
// when it was created; none where they cannot be read.
func RecordedNodes(pod *corev1.Pod) []string {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	for _, variable := range mainContainer(&pod.Spec).Env {
		if variable.Name != names.EnvDINodes || variable.Value == "" {
			continue
		}
		nodes := strings.Split(variable.Value, ",")
		for i := range nodes {
			nodes[i], _, _ = strings.Cut(nodes[i], ".")
		}
		return nodes
	}
	return nil
}

// WorkerService builds the headless service that names a worker-led job's
// pods. It publishes pods that are not ready, as they find each other to become it.
func WorkerService(job *v2alpha1.DIJob) *corev1.Service {
	service := headless(job, names.WorkerService(job.Name), names.WorkerJobLabels(job.Name), names.DefaultWorkerPort)
	service.Spec.PublishNotReadyAddresses = true
	return service
}
