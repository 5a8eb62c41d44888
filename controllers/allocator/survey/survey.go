// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package survey makes the input of an allocation round of what is in the cluster: the capacity of the nodes, the jobs
// that want a place, and what bounds them.
package survey

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator/devices"
	"opendilab.org/di-orchestrator/controllers/allocator/usage"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// unreadyGrace is how long a node may be not ready before its jobs are placed elsewhere. Kubernetes keeps pods on such
// a node for the same time.
const unreadyGrace = 5 * time.Minute

// Cluster is what a round observes.
type Cluster struct {
	Now time.Time
	// Jobs want a place or leave theirs.
	Jobs []*v2alpha1.DIJob
	// Nodes are all nodes. Pods are the pods of the jobs, and Others all other pods.
	Nodes     []*corev1.Node
	Pods      map[types.UID][]*corev1.Pod
	Others    []*corev1.Pod
	Devices   *devices.Counted
	Admission *Admission
	// MaxPods is the maximum number of pods of a job.
	MaxPods int32
	// Topology are the labels of nodes that name their domains, from the widest level to the narrowest.
	Topology []string
}

// Memory is what one round has to know of the round before. The zero value remembers nothing.
type Memory struct {
	exclusions exclusions
	refusals   refusals
	// unschedulable are the pods without a node, and unready the nodes that are not ready, by name.
	unschedulable sightings[types.UID]
	unready       sightings[string]
	// refused are the jobs with pods that the API server refuses, and placed the placements of these.
	refused, placed sightings[types.UID]
}

func newMemory() Memory {
	return Memory{
		exclusions: exclusions{}, refusals: refusals{}, unschedulable: sightings[types.UID]{}, unready: sightings[string]{},
		refused: sightings[types.UID]{}, placed: sightings[types.UID]{},
	}
}

// Round is the input of the policy.
type Round struct {
	Snapshot *allocation.Snapshot
	// Wanted are the jobs that the policy places.
	Wanted map[types.NamespacedName]*allocation.Job
	// Previous are the nodes of these jobs, and Placed those nodes that are recorded in their status.
	Previous, Placed map[types.NamespacedName][]string
	// Quotas are what the quotas of a namespace leave to the jobs, in the order of their names.
	Quotas map[string][]*allocation.Quota
	// Settled are the placements of jobs that need no decision.
	Settled map[types.NamespacedName]allocation.Placement
}

// Take makes a round of a cluster, and what the next round has to know.
func Take(found *Cluster, before Memory) (*Round, Memory) {
	after := newMemory()
	r := &Round{
		Snapshot: allocation.NewSnapshot(present(found, before, after)),
		Wanted:   make(map[types.NamespacedName]*allocation.Job, len(found.Jobs)),
		Previous: make(map[types.NamespacedName][]string, len(found.Jobs)),
		Placed:   make(map[types.NamespacedName][]string, len(found.Jobs)),
		Settled:  map[types.NamespacedName]allocation.Placement{},
	}
	r.Snapshot.Locate(found.Topology)
	for _, pod := range found.Others {
		r.occupy(pod)
	}
	terminating := nodesOfTerminating(found.Pods)
	for _, job := range found.Jobs {
		pods := found.Pods[job.UID]
		wanted := r.take(found, job, pods)
		excluded, refused := before.exclusions[job.UID], before.refusals[job.UID]
		if wanted != nil {
			excluded = excluded.next(job, stuckPods(pods, before, after, found.Now), terminating, found.Now)
			why := longRefused(job, before, after, found.Now)
			refused = refused.next(job, wanted, pods, found, why)
		}
		after.keep(job.UID, excluded, refused)
		restrict(wanted, excluded, refused)
	}
	r.Quotas = r.bounds(found)
	return r, after
}

// keep remembers the exclusions and the refusal of a job.
func (m Memory) keep(job types.UID, excluded excludedNodes, refused *refused) {
	if len(excluded) > 0 {
		m.exclusions[job] = excluded
	}
	if refused != nil {
		m.refusals[job] = refused
	}
}

// restrict applies the exclusions and the refusal of a job to what it wants.
func restrict(wanted *allocation.Job, excluded excludedNodes, refused *refused) {
	if wanted == nil {
		return
	}
	for node := range excluded {
		wanted.Excluded[node] = true
	}
	if refused != nil && wanted.Bound == nil {
		wanted.Bound = &refused.bound
	}
}

// present returns the nodes that are not lost, with their devices as resources. A node is lost if it has been observed
// not ready for longer than unreadyGrace.
func present(found *Cluster, before, after Memory) []*corev1.Node {
	var nodes []*corev1.Node
	for _, node := range found.Nodes {
		ready := conditions.OfNode(node, corev1.NodeReady)
		if ready == nil || ready.Status == corev1.ConditionTrue ||
			before.unready.observe(node.Name, ready.LastTransitionTime.Time, found.Now, after.unready) <= unreadyGrace {
			nodes = append(nodes, found.Devices.Node(node))
		}
	}
	return nodes
}

// take adds a job to the round. It returns the job as input of the policy. It returns nil for a job that keeps or gets
// a placement without a decision, and subtracts the capacity that its pods occupy.
func (r *Round) take(found *Cluster, job *v2alpha1.DIJob, pods []*corev1.Pod) *allocation.Job {
	name := nameOf(job)
	wanted, err := r.jobToPlace(found, job, pods)
	switch {
	case placements.LeavesPlace(job):
		r.Settled[name] = allocation.Placement{Reason: v2alpha1.ConditionSuspended, Message: "a suspended job has no placement"}
		if err == nil {
			// Other jobs get its capacity once its release is written.
			r.Snapshot.Reserve(wanted, job.Status.Allocation)
			return nil
		}
	case err != nil:
		// Running pods continue. Only new pods could not be created.
		r.Settled[name] = allocation.Placement{
			Nodes: job.Status.Allocation, Reason: v2alpha1.ConditionInvalidSpec, Message: err.Error(),
		}
	case len(r.Snapshot.Nodes) == 0 && isPlacedByOther(job):
		// Without a node the allocator has no better placement.
	default:
		if previous, known := placeOf(job, pods); known {
			wanted.Ended, wanted.Held = placements.EndedRanks(job, pods), usage.PlacedFor(job, found.Now)
			wanted.Running, wanted.Waiting = runningRanks(pods), waitingFor(job, found.Now)
			wanted.Excluded = closedNodes(job, pods, r.Snapshot)
			r.Wanted[name], r.Previous[name], r.Placed[name] = wanted, previous, job.Status.Allocation
			r.Snapshot.Leave(wanted, previous, slices.DeleteFunc(slices.Clone(pods), podstate.Finished))
			return wanted
		}
	}
	for _, pod := range pods {
		r.occupy(found.Devices.Pod(pod))
	}
	return nil
}

// jobToPlace returns a job as input for a policy. Counts above the limits are an error, because a policy
// would not terminate.
func (r *Round) jobToPlace(found *Cluster, job *v2alpha1.DIJob, pods []*corev1.Pod) (*allocation.Job, error) {
	if excess := limits.CheckCounts(&job.Spec, found.MaxPods); len(excess) > 0 {
		return nil, errors.New(excess[0].String())
	}
	wanted := &allocation.Job{Name: nameOf(job), Created: job.CreationTimestamp.Time}
	if job.Spec.Priority == v2alpha1.PriorityHigh {
		wanted.Priority = 1
	}
	wanted.Elastic, wanted.Min, wanted.Wanted = rangeOf(job)
	wanted.ResizesLive = resizesLive(job, wanted.Elastic)
	var overrides []v2alpha1.ResourceOverride
	if job.Status.Scaling != nil {
		overrides = job.Status.Scaling.Resources
	}
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		template, err := workload.Template(fmt.Sprintf("spec.tasks[%d].template", i), task.Template)
		if err != nil {
			return nil, err
		}
		spec := workload.DefaultRequests(workload.WithLargestOverride(&template.Spec, overrides, names.TaskName(task)))
		admitted, why := found.Admission.admit(job.Namespace, spec)
		if why != "" && wanted.Bound == nil {
			wanted.Bound = &allocation.Bound{Why: fmt.Sprintf("task %s: %s", names.TaskName(task), why)}
		}
		existing := podsOf(task, pods)
		wanted.Tasks = append(wanted.Tasks, allocation.Task{
			Name: task.Name, Replicas: sizing.Count(job, i), Uses: found.Admission.usesOf(job.Namespace, admitted, existing),
			Pod: r.Snapshot.RequirementsOf(found.Devices.Spec(job.Namespace, admitted), existing...),
		})
	}
	return wanted, nil
}

// occupy subtracts a pod from its node.
func (r *Round) occupy(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" && !podstate.Finished(pod) {
		r.Snapshot.Occupy(pod)
	}
}

func nameOf(job *v2alpha1.DIJob) types.NamespacedName {
	return types.NamespacedName{Namespace: job.Namespace, Name: job.Name}
}

// isPlacedByOther reports whether another program placed a job. The allocator always sets condition
// Allocated on the jobs that it places.
func isPlacedByOther(job *v2alpha1.DIJob) bool {
	return isPlaced(job) && !conditions.IsTrue(&job.Status, v2alpha1.ConditionAllocated)
}

func isPlaced(job *v2alpha1.DIJob) bool { return len(job.Status.Allocation) > 0 }

// placeOf returns the nodes of a job: its allocation or, if it never had one, the nodes of its pods. The
// latter may not be known yet.
func placeOf(job *v2alpha1.DIJob, pods []*corev1.Pod) (nodes []string, known bool) {
	switch {
	case isPlaced(job):
		return job.Status.Allocation, true
	case isReleased(job, pods):
		return nil, true
	}
	return placements.NodesByRank(job, pods)
}

// isReleased reports whether a job has lost its placement, and pods that were created for it have yet to go. Another job may have
// their capacity. Without the condition the status is lost, and the job continues where it runs.
func isReleased(job *v2alpha1.DIJob, pods []*corev1.Pod) bool {
	decided := conditions.Find(&job.Status, v2alpha1.ConditionAllocated)
	return !isPlaced(job) && decided != nil && decided.Status == corev1.ConditionFalse &&
		slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return placements.PlacedOn(pod) != "" })
}

// resizesLive reports whether the other replicas of a job continue when its elastic task is resized.
func resizesLive(job *v2alpha1.DIJob, elastic int) bool {
	return job.Spec.Elastic != nil && job.Spec.Elastic.OnResize == v2alpha1.OnResizeContinue &&
		elastic == len(job.Spec.Tasks)-1 && sizing.WhyRestarted(job, nil) == ""
}

// runningRanks returns the nodes on which pods run, by rank.
func runningRanks(pods []*corev1.Pod) map[int]string {
	running := map[int]string{}
	for _, pod := range pods {
		if rank := podstate.Rank(pod); rank >= 0 && podstate.Active(pod) && pod.Spec.NodeName != "" {
			running[int(rank)] = pod.Spec.NodeName
		}
	}
	return running
}

// podsOf returns the pods of a task.
func podsOf(task *v2alpha1.Task, pods []*corev1.Pod) []*corev1.Pod {
	name := names.TaskName(task)
	var found []*corev1.Pod
	for _, pod := range pods {
		if pod.Labels[names.LabelTaskName] == name {
			found = append(found, pod)
		}
	}
	return found
}

// waitingFor returns how long a job has been without a placement.
func waitingFor(job *v2alpha1.DIJob, now time.Time) time.Duration {
	allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated)
	switch {
	case isPlaced(job):
		return 0
	case allocated == nil || allocated.LastTransitionTime == nil:
		return now.Sub(job.CreationTimestamp.Time)
	}
	return now.Sub(allocated.LastTransitionTime.Time)
}
