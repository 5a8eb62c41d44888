// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// reasonGone is the reason of the end of a replica whose pod was deleted before it finished.
const reasonGone = "PodDeleted"

// readPods notes the pods, and the end of those that are gone.
func readPods(job *record.Job, seen Observation) {
	known := map[string]int{}
	for i, replica := range job.Replicas {
		known[replica.PodUID] = i
	}
	present := map[string]bool{}
	for i := range seen.Pods {
		replica := replicaOf(&seen.Pods[i])
		present[replica.PodUID] = true
		if at, exists := known[replica.PodUID]; exists {
			job.Replicas[at] = replica
			continue
		}
		// Those that were dropped to make room would come back each time.
		if job.Dropped["replicas"] == 0 || replica.Ended.IsZero() {
			job.Replicas = append(job.Replicas, replica)
		}
	}
	for i := range job.Replicas {
		if replica := &job.Replicas[i]; replica.Ended.IsZero() && !present[replica.PodUID] {
			replica.Ended, replica.Reason = seen.Now.UTC(), cmp.Or(replica.Reason, reasonGone)
		}
	}
	slices.SortStableFunc(job.Replicas, func(a, b record.Replica) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Pod, b.Pod))
	})
}

// TaskOf returns the task of a pod: its name, or its type in a coordinator-led job.
func TaskOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels[names.LabelTaskName], pod.Labels[names.LabelTaskType], string(names.RoleOf(pod)))
}

func replicaOf(pod *corev1.Pod) record.Replica {
	replica := record.Replica{
		PodUID: string(pod.UID), Pod: pod.Name, Node: pod.Spec.NodeName, Phase: string(podstate.Phase(pod)),
		Task:    TaskOf(pod),
		Index:   podstate.AnnotatedNumber(pod, names.AnnotationTaskRank, 0),
		Attempt: podstate.Attempt(pod), Created: utc(pod.CreationTimestamp),
	}
	if main := podstate.MainContainer(pod); main != nil {
		replica.Restarts, replica.Started = main.RestartCount, startOf(main)
	}
	if end := podstate.MainTermination(pod); end != nil {
		replica.ExitCode = &end.ExitCode
	}
	if !podstate.Finished(pod) {
		if podstate.Disrupted(pod) {
			replica.Reason = podstate.Disruption(pod)
		}
		return replica
	}
	replica.Ended = podstate.FinishTime(pod).UTC()
	if podstate.FailedOrLost(pod) {
		replica.Reason = podstate.FailureReason(pod)
		end, _ := podstate.FailedContainer(pod)
		if replica.Message = pod.Status.Message; end != nil {
			replica.Message = cmp.Or(end.Message, replica.Message)
		}
	}
	return replica
}

// startOf returns when a container first ran, as far as its status still says so.
func startOf(container *corev1.ContainerStatus) time.Time {
	switch state := container.State; {
	case container.LastTerminationState.Terminated != nil:
		return utc(container.LastTerminationState.Terminated.StartedAt)
	case state.Running != nil:
		return utc(state.Running.StartedAt)
	case state.Terminated != nil:
		return utc(state.Terminated.StartedAt)
	}
	return time.Time{}
}

// readRestarts notes restarts and their cause, and the attempts between them.
func readRestarts(job *record.Job, seen Observation) {
	status, was := &seen.Job.Status, &job.Seen
	cause := record.Restart{At: seen.Now.UTC()}
	if failure := status.LastFailure; failure != nil {
		cause.Reason, cause.Message = failure.Reason, failure.Message
		if at := utcOf(failure.Time); !at.IsZero() {
			cause.At = at
		}
	}
	if added := restarts(record.RestartOfJob, was.Restarts, status.Restarts, cause); len(added) > 0 {
		job.Restarts = append(slices.Clone(job.Restarts), added...)
		if last := len(job.Attempts) - 1; last >= 0 && job.Attempts[last].Ended.IsZero() {
			job.Attempts[last].Ended, job.Attempts[last].Reason, job.Attempts[last].Message = cause.At, cause.Reason, cause.Message
		}
	}
	if !job.HasEnded() && (len(job.Attempts) == 0 || job.Attempts[len(job.Attempts)-1].Number < status.Restarts) {
		started := seen.Now.UTC()
		if len(job.Attempts) == 0 && status.Restarts == 0 {
			started = job.Created
		}
		job.Attempts = append(job.Attempts, record.Attempt{Number: status.Restarts, Started: started})
	}
	elsewhere := record.Restart{At: seen.Now.UTC()}
	job.Restarts = append(slices.Clone(job.Restarts), restarts(record.RestartElsewhere, was.Reschedules, status.Reschedules, elsewhere)...)
	for _, replica := range sortedKeys(status.ReplicaRestarts) {
		cause.Replica = replica
		count := status.ReplicaRestarts[replica]
		job.Restarts = append(job.Restarts, restarts(record.RestartOfReplica, was.ReplicaRestarts[replica], count, cause)...)
	}
	was.Restarts, was.Reschedules, was.ReplicaRestarts = status.Restarts, status.Reschedules, status.ReplicaRestarts
}

// restarts returns one entry for each restart since the last observation. Only of the last one is the
// cause known.
func restarts(kind string, before, after int32, last record.Restart) []record.Restart {
	var added []record.Restart
	for range min(max(after-before, 0), record.MaxChanges) {
		added = append(added, record.Restart{At: last.At, Kind: kind, Replica: last.Replica})
	}
	if len(added) > 0 {
		last.Kind = kind
		added[len(added)-1] = last
	}
	return added
}
