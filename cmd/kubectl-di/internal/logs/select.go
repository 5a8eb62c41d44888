// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// selection selects containers.
type selection struct {
	tasks []string
	pods  []string
	// container is the container's name; the main container if it is empty.
	container     string
	allContainers bool
	// isFirst selects the first replica alone.
	isFirst bool
}

// checkTasks returns an error with the job's tasks if a named one does not exist.
func (s *selection) checkTasks(job *v2alpha1.DIJob) error {
	known := replicas.Tasks(job)
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		known = append(known, string(names.ReplicaTypeAggregator), string(names.ReplicaTypeDDPLearner))
	}
	for _, task := range s.tasks {
		if !slices.Contains(known, task) {
			return fmt.Errorf("--task %s: job %s/%s has no such task, but %s", task, job.Namespace, job.Name, strings.Join(known, ", "))
		}
	}
	return nil
}

// checkPods returns an error with the job's pods if a named one does not exist. When logs are
// followed, a pod may appear later.
func (s *selection) checkPods(job *v2alpha1.DIJob, own []*corev1.Pod) error {
	var there []string
	for _, pod := range own {
		there = append(there, pod.Name)
	}
	for _, name := range s.pods {
		if slices.ContainsFunc(there, func(pod string) bool { return isNamed(job, pod, name) }) {
			continue
		}
		if len(there) == 0 {
			return fmt.Errorf("--pod %s: job %s/%s has no pods yet", name, job.Namespace, job.Name)
		}
		return fmt.Errorf("--pod %s: job %s/%s has no such pod, but %s", name, job.Namespace, job.Name, cluster.Some(there))
	}
	return nil
}

// isNamed reports whether a name is the pod's full or short name.
func isNamed(job *v2alpha1.DIJob, pod, name string) bool {
	return pod == name || replicas.Name(job.Name, pod) == name
}

// takes reports whether a job's pod is selected.
func (s *selection) takes(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	ofTask := len(s.tasks) == 0 || slices.Contains(s.tasks, replicas.Task(pod)) || slices.Contains(s.tasks, replicas.Role(pod))
	named := len(s.pods) == 0 || slices.ContainsFunc(s.pods, func(name string) bool { return isNamed(job, pod.Name, name) })
	return ofTask && named && (!s.isFirst || isFirst(job, pod))
}

// isFirst reports whether a pod is the first replica of its job: that of rank 0, or the coordinator, which ranks others.
func isFirst(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return replicas.Role(pod) == string(names.ReplicaTypeCoordinator)
	}
	return podstate.Rank(pod) == 0
}

// containers returns the selected containers of a pod; none if it has no container of that name.
func (s *selection) containers(pod *corev1.Pod) []string {
	all := containersOf(pod)
	switch {
	case s.allContainers:
		return all
	case s.container == "":
		return []string{names.MainContainerOf(pod).Name}
	case slices.Contains(all, s.container):
		return []string{s.container}
	}
	return nil
}

// checkContainer returns an error with the existing containers if none of the pods has the named
// one.
func (s *selection) checkContainer(pods []*corev1.Pod) error {
	if s.container == "" || len(pods) == 0 {
		return nil
	}
	var there []string
	for _, pod := range pods {
		for _, name := range containersOf(pod) {
			if name == s.container {
				return nil
			}
			if !slices.Contains(there, name) {
				there = append(there, name)
			}
		}
	}
	return fmt.Errorf("--container %s: no pod has such a container, but %s", s.container, strings.Join(there, ", "))
}

// containersOf returns the names of all containers of a pod, in the order of their start.
func containersOf(pod *corev1.Pod) []string {
	var all []string
	for i := range pod.Spec.InitContainers {
		all = append(all, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		all = append(all, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, pod.Spec.EphemeralContainers[i].Name)
	}
	return all
}

// state is the state of a container, from its pod's status.
type state struct {
	// instance is the run of the container whose log the API returns; empty for none.
	instance string
	// previous is the run before it; empty if unknown.
	previous string
	// isRunning reports whether the instance runs.
	isRunning bool
	// isOver reports whether the instance is the last one.
	isOver bool
	// isGone reports whether the pod was deleted.
	isGone bool
	// restarts is the restart count of the container.
	restarts int32
	// waiting is the reason why it waits.
	waiting string
}

// stateOf returns the state of a pod's container.
func stateOf(pod *corev1.Pod, container string) state {
	isOver := podstate.Finished(pod)
	status := statusOf(pod, container)
	if status == nil {
		return state{isOver: isOver, waiting: waitingOf(pod)}
	}
	last := runOf(status.LastTerminationState.Terminated, status.RestartCount-1)
	now := state{isOver: isOver, restarts: status.RestartCount, previous: last}
	switch {
	case status.State.Running != nil:
		now.isRunning = !isOver
		now.instance = cmp.Or(status.ContainerID, fmt.Sprint("#", status.RestartCount))
	case status.State.Terminated != nil:
		now.instance = runOf(status.State.Terminated, status.RestartCount)
		now.isOver = isOver || !isStartedAgain(pod, container, status.State.Terminated.ExitCode)
	default:
		// Until the next run starts, the kubelet returns the log of the last one.
		now.instance, now.previous = last, ""
		now.waiting = describeWaiting(status.State.Waiting)
	}
	return now
}

func runOf(ended *corev1.ContainerStateTerminated, count int32) string {
	if ended == nil {
		return ""
	}
	return cmp.Or(ended.ContainerID, fmt.Sprint("#", count))
}

func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, all := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		if at := slices.IndexFunc(all, func(status corev1.ContainerStatus) bool { return status.Name == container }); at >= 0 {
			return &all[at]
		}
	}
	return nil
}

// isStartedAgain reports whether the kubelet restarts an exited container.
func isStartedAgain(pod *corev1.Pod, container string, exitCode int32) bool {
	policy := pod.Spec.RestartPolicy
	for i := range pod.Spec.InitContainers {
		if own := pod.Spec.InitContainers[i].RestartPolicy; pod.Spec.InitContainers[i].Name == container {
			return own != nil && *own == corev1.ContainerRestartPolicyAlways || exitCode != 0 && policy != corev1.RestartPolicyNever
		}
	}
	for i := range pod.Spec.Containers {
		// The restart policy of a container may have rules. In that case the pod's phase decides.
		if pod.Spec.Containers[i].Name == container && pod.Spec.Containers[i].RestartPolicy != nil {
			return true
		}
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	case corev1.RestartPolicyAlways:
	}
	return true
}

func describeWaiting(waiting *corev1.ContainerStateWaiting) string {
	switch {
	case waiting == nil || waiting.Reason == "":
		return "waiting to start"
	case waiting.Message == "":
		return waiting.Reason
	}
	return waiting.Reason + ": " + waiting.Message
}

// waitingOf returns what a pod without containers waits for.
func waitingOf(pod *corev1.Pod) string {
	if scheduled := conditions.OfPod(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		return scheduled.Reason + ": " + scheduled.Message
	}
	if pod.Spec.NodeName == "" {
		return "waiting for a node"
	}
	return "waiting to start on node " + pod.Spec.NodeName
}
