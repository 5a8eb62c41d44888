// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/membership"
)

// noRight is why an action is not possible in any state of a job.
const noRight = "You do not have the right."

// Actions returns what can be done with a job in its state, and why not now. The rights are by the names of
// actions. The Membership is that of a coordinator-led job, nil if it is unknown.
func Actions(job *v2alpha1.DIJob, list *v2alpha1.Membership, parts []api.Part, rights map[string]bool) []api.Action {
	tasks := Resizables(job, list)
	why := reasons(job, parts, tasks)
	actions := []api.Action{}
	for _, name := range offered(job) {
		switch {
		case !rights[name]:
			// Who has no right may not see the pods, either.
			why[name] = noRight
		case why[name] == "" && job.DeletionTimestamp != nil:
			why[name] = "The job is being deleted."
		}
		action := api.Action{Name: name, Allowed: why[name] == "", Reason: why[name]}
		if name == "resize" {
			action.Tasks = tasks
		}
		actions = append(actions, action)
	}
	return actions
}

// offered returns the names of the actions that mean something in the state of a job.
func offered(job *v2alpha1.DIJob) []string {
	switch {
	case replicas.IsFinished(job):
		return []string{"delete"}
	case ptr.Deref(job.Spec.Suspend, false):
		return []string{"resume", "resize", "restart", "delete"}
	default:
		return []string{"suspend", "resize", "restart", "delete"}
	}
}

// reasons returns why actions are not possible in the state of the job, by their names.
func reasons(job *v2alpha1.DIJob, parts []api.Part, tasks []api.Resizable) map[string]string {
	why := map[string]string{}
	set := func(name, text string, is bool) {
		if is && why[name] == "" {
			why[name] = text
		}
	}
	suspended, isLed := ptr.Deref(job.Spec.Suspend, false), isLed(job)
	set("restart", "The job is suspended.", suspended)
	isRestartable := slices.ContainsFunc(parts, func(part api.Part) bool { return part.Restartable })
	set("restart", "No collector or learner has a pod, and a coordinator cannot be restarted alone.", isLed && !isRestartable)
	set("restart", "No replica has a pod.", !isRestartable)
	// A plan would wait, and be refused at its deadline.
	set("resize", "The job is suspended.", suspended && isLed)
	set("resize", "The allocator decides about the size of a preemptible job.", job.Spec.Preemptible)
	follows := func(i int) bool {
		return (isLed || i == names.ElasticTask(&job.Spec)) && names.FollowsRatio(&job.Spec, i)
	}
	for i := range job.Spec.Tasks {
		set("resize", "The ratio rule in spec.autoscale.ratio sets the number of replicas.", len(tasks) == 0 && follows(i))
	}
	set("resize", "No task has replicas yet: the coordinator requests the first one of each task.", len(tasks) == 0 && isLed)
	set("resize", "No task of the job can be resized: spec.elastic names none.", len(tasks) == 0)
	return why
}

// Resizables returns the tasks that can be resized. The Membership is that of a coordinator-led job, nil if it
// is unknown.
func Resizables(job *v2alpha1.DIJob, list *v2alpha1.Membership) []api.Resizable {
	if isLed(job) {
		return resizablesOfMembers(job, list)
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 || names.FollowsRatio(&job.Spec, elastic) {
		return nil
	}
	task := api.Resizable{Task: names.TaskName(&job.Spec.Tasks[elastic]), Replicas: sizing.Wanted(job).ByTask[elastic]}
	if bounds := job.Spec.Elastic; bounds != nil {
		task.Min, task.Max = ptr.Deref(bounds.MinReplicas, 0), bounds.MaxReplicas
	}
	return []api.Resizable{task}
}

// resizablesOfMembers returns the tasks that have members: a plan adds others like them.
func resizablesOfMembers(job *v2alpha1.DIJob, list *v2alpha1.Membership) []api.Resizable {
	var tasks []api.Resizable
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		isOfMembers := task.Type == v2alpha1.TaskTypeCollector || task.Type == v2alpha1.TaskTypeLearner
		if !isOfMembers || names.FollowsRatio(&job.Spec, i) {
			continue
		}
		pods := job.Status.TaskStatus[names.TaskName(task)]
		count := pods[corev1.PodRunning] + pods[corev1.PodPending]
		if list != nil {
			count = membership.Count(&list.Spec, task.Type)
		}
		if count > 0 {
			tasks = append(tasks, api.Resizable{Task: names.TaskName(task), Replicas: count})
		}
	}
	return tasks
}

// markRestartable marks the parts that can be restarted; all have pods. A plan replaces members only, and a
// learner of several GPUs by its aggregator.
func markRestartable(job *v2alpha1.DIJob, list *v2alpha1.Membership, parts []api.Part) {
	current := map[string]bool{}
	if list != nil {
		for i := range list.Spec.Members {
			member := &list.Spec.Members[i]
			current[membership.PodName(job.Name, member, membership.Losses(&list.Status, member.Slot))] = true
		}
	}
	for i := range parts {
		role := names.ReplicaType(parts[i].Role)
		isMember := role != names.ReplicaTypeCoordinator && role != names.ReplicaTypeDDPLearner && (list == nil || current[parts[i].Pod])
		parts[i].Restartable = !isLed(job) || isMember
	}
}

// isLed reports whether a job is coordinator-led.
func isLed(job *v2alpha1.DIJob) bool {
	return job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed
}
