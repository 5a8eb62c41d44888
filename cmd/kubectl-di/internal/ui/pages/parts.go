// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"slices"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
)

const (
	// mostParts and mostEdges bound what a page draws.
	mostParts = 5000
	mostEdges = 5000
	// missing is the state of a desired replica without a pod.
	missing = "Missing"
	// server is the name of di-server in edges.
	server = "di-server"
)

// Parts returns the replicas of a job: those with pods, and those that are desired and missing.
func Parts(job *v2alpha1.DIJob, v *jobview.View, list *v2alpha1.Membership) []api.Part {
	parts := make([]api.Part, 0, len(v.Pods))
	known := map[string]bool{}
	for i := range v.Pods {
		parts, known[v.Pods[i].Pod] = append(parts, partOf(&v.Pods[i])), true
	}
	markRestartable(job, list, parts)
	if !jobview.IsOver(job) {
		parts = append(parts, missingParts(job, v, list, known)...)
	}
	return parts[:min(len(parts), mostParts)]
}

func partOf(pod *jobview.Pod) api.Part {
	part := api.Part{
		Name: pod.Name, Pod: pod.Pod, Role: pod.Role, Task: pod.Task, Unit: pod.Unit, Node: pod.Node, State: pod.State, Message: short(pod.Message),
		Ready: pod.Ready, CreatedAt: pod.CreatedAt, GPUs: pod.GPUs, Restarts: pod.Restarts(), Rank: pod.Rank,
	}
	if pod.Ended != nil {
		part.ExitCode = &pod.Ended.ExitCode
	}
	return part
}

// missingParts returns the desired replicas that have no pod.
func missingParts(job *v2alpha1.DIJob, v *jobview.View, list *v2alpha1.Membership, known map[string]bool) []api.Part {
	var parts []api.Part
	add := func(pod, role, task, unit string) {
		if !known[pod] && len(parts) < mostParts {
			parts = append(parts, api.Part{Name: replicas.Name(job.Name, pod), Role: role, Task: task, Unit: unit, State: missing})
		}
	}
	if !isLed(job) {
		return missingWorkers(job, v.Tasks, known)
	}
	coordinator := string(names.ReplicaTypeCoordinator)
	add(names.CoordinatorPod(job.Name), coordinator, coordinator, "")
	if list == nil || list.Spec.JobUID != job.UID {
		return parts
	}
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		unit := ""
		for at, pod := range membership.PodNames(job.Name, member, membership.Losses(&list.Status, member.Slot)) {
			role := membership.Role(member)
			if membership.IsUnit(member) && at == 0 {
				unit = replicas.Name(job.Name, pod)
			}
			if at > 0 {
				role = names.ReplicaTypeDDPLearner
			}
			add(pod, string(role), string(member.Task), unit)
		}
	}
	return parts
}

// missingWorkers returns as many missing replicas of each task as are desired beyond its pods.
func missingWorkers(job *v2alpha1.DIJob, tasks []jobview.Task, known map[string]bool) []api.Part {
	var parts []api.Part
	for i := range tasks {
		task, wanted, count := tasks[i].Name, ptr.Deref(tasks[i].Desired, 0), 0
		for index := range int32(wanted + len(known)) { //nolint:gosec // both are bounded
			if known[names.WorkerPod(job.Name, task, index)] {
				count++
			}
		}
		for index := int32(0); count < wanted && len(parts) < mostParts; index++ {
			if pod := names.WorkerPod(job.Name, task, index); !known[pod] {
				parts = append(parts, api.Part{Name: replicas.Name(job.Name, pod), Role: task, Task: task, State: missing})
				count++
			}
		}
	}
	return parts
}

// Edges returns what the parts of a job talk to.
func Edges(job *v2alpha1.DIJob, parts []api.Part) []api.Edge {
	if isLed(job) {
		return coordinatorEdges(parts)
	}
	return workerEdges(job, parts)
}

func coordinatorEdges(parts []api.Part) []api.Edge {
	edges := []api.Edge{}
	at := slices.IndexFunc(parts, func(part api.Part) bool { return part.Role == string(names.ReplicaTypeCoordinator) })
	if at < 0 {
		return edges
	}
	coordinator := parts[at].Name
	edges = append(edges, api.Edge{From: coordinator, To: server, Kind: "requests", Label: "replicas"})
	for i := range parts {
		part := &parts[i]
		switch names.ReplicaType(part.Role) {
		case names.ReplicaTypeCoordinator:
		case names.ReplicaTypeDDPLearner:
			if part.Unit != "" {
				edges = append(edges, api.Edge{From: part.Unit, To: part.Name, Kind: "aggregates"})
			}
		case names.ReplicaTypeAggregator, names.ReplicaTypeCollector, names.ReplicaTypeLearner:
			edges = append(edges, api.Edge{From: coordinator, To: part.Name, Kind: "commands"})
		}
	}
	return edges[:min(len(edges), mostEdges)]
}

// workerEdges connects the replicas of each task with its first one, and producers with the first
// learner. Each replica has the addresses of all others; these are the usual ways.
func workerEdges(job *v2alpha1.DIJob, parts []api.Part) []api.Edge {
	edges := []api.Edge{}
	first := map[string]string{}
	for i := range parts {
		if _, isKnown := first[parts[i].Task]; !isKnown {
			first[parts[i].Task] = parts[i].Name
		}
	}
	learner := first[names.NameOfType(&job.Spec, v2alpha1.TaskTypeLearner)]
	producers := map[string]bool{}
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		producers[names.TaskName(task)] = task.Type == v2alpha1.TaskTypeCollector
	}
	for i := range parts {
		part := &parts[i]
		switch {
		case producers[part.Task] && learner != "":
			edges = append(edges, api.Edge{From: part.Name, To: learner, Kind: "reports", Label: "samples"})
		case first[part.Task] != part.Name:
			edges = append(edges, api.Edge{From: first[part.Task], To: part.Name, Kind: "peers"})
		}
	}
	return edges[:min(len(edges), mostEdges)]
}
