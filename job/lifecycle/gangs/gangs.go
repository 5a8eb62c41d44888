// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gangs has the rules of a job's gang: of the pods, a scheduler places as many at once as the job
// needs to start.
package gangs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// RetryInterval is how often a job is reconciled whose gang has no scheduler. No watch covers
// the installation of a scheduler.
const RetryInterval = 30 * time.Second

// Rules are the rules of the gang of a worker-led job. They read in, and write to out.
type Rules struct {
	out *state.Plan
	in  *state.Input
	// total is the number of desired replicas.
	total int32
}

// New returns the rules of a job that desires a number of replicas in total.
func New(out *state.Plan, in *state.Input, total int32) Rules {
	return Rules{out: out, in: in, total: total}
}

// Plan is what is decided about the gang.
type Plan struct {
	// provider and group mark new pods as members of the gang; nil if new pods are not members.
	provider *gang.Provider
	group    string
	// status is the scheduler's reason and message if it has not placed the gang.
	status gang.SchedulerStatus
	// missing describes why there is no scheduler for the gang, "" if there is one.
	missing string
}

// Mark makes a pod that is created now a member of the gang, if it has to be.
func (p *Plan) Mark(pod *corev1.Pod) {
	if p.provider != nil {
		p.provider.Mark(pod, p.group)
	}
}

// LacksScheduler reports whether no scheduler of the cluster places gangs.
func (p *Plan) LacksScheduler() bool { return p.missing != "" }

// MayExist reports whether a job requests a gang, or its pods may belong to one.
func MayExist(job *v2alpha1.DIJob, pods []*corev1.Pod) bool {
	if state.IsCoordinatorLed(job) {
		return false
	}
	return state.AsksForGang(job) || conditions.Find(&job.Status, v2alpha1.ConditionGangScheduled) != nil || slices.ContainsFunc(pods, gang.IsMember)
}

// leastOf returns how many of a job's pods must be placed at once.
func leastOf(job *v2alpha1.DIJob, total int32) int32 {
	if least := job.Spec.Scheduling.Gang.MinAvailable; least != nil {
		return min(*least, total)
	}
	return total
}

// Decide creates the gang's PodGroup before its pods. Without a scheduler for gangs, it creates no pods of a job
// that has not started. completed are the ranks of replicas that have succeeded.
func (r Rules) Decide(replicas []workload.Replica, completed *ranks.Set) (Plan, state.Result) {
	plan, result := r.decide(replicas, completed)
	if r.out.Decision.CreatePodGroup != nil && !r.out.MayCreate(state.KindPodGroups) {
		r.out.Decision.CreatePodGroup = nil
		return plan, state.Settled
	}
	return plan, result
}

func (r Rules) decide(replicas []workload.Replica, completed *ranks.Set) (Plan, state.Result) {
	switch {
	case !state.AsksForGang(r.in.Job):
		r.out.DeletePodGroups()
		return Plan{}, state.Continue
	case state.IsUnplaced(r.in.Job):
		return Plan{}, state.Continue
	}
	team := r.team(replicas, completed)
	provider, group, missing := r.provider(&team)
	switch {
	case provider == nil && r.hasStarted(completed):
		return Plan{missing: missing}, state.Continue
	case provider == nil:
		r.out.RequeueAfter(RetryInterval)
		return Plan{missing: missing}, state.Settled
	case group == nil:
		return r.createGroup(provider, &team)
	case provider.GVK != group.GroupVersionKind():
		return r.replaceGroup(group)
	}
	return r.syncGroup(provider, group, &team)
}

// team is the set of replicas in a gang at one moment.
type team struct {
	// members are the replicas of the gang whose pods exist or are created. A completed rank is no
	// member, nor is a pod that was created without a gang.
	members []workload.Replica
	// waiting is set if some members have no node yet.
	waiting bool
	// started is set if some pod of the job has a node.
	started bool
}

func (r Rules) team(replicas []workload.Replica, completed *ranks.Set) team {
	var found team
	for i := range replicas {
		replica := &replicas[i]
		pod := r.in.PodNamed[replica.Pod]
		switch {
		case completed.Has(replica.Rank):
			continue
		case pod == nil || podstate.Terminating(pod) || r.out.Deleting[pod]:
			found.waiting = true
		case podstate.Finished(pod):
			continue
		default:
			hasNode := pod.Spec.NodeName != ""
			found.started = found.started || hasNode
			if !gang.IsMember(pod) {
				continue
			}
			found.waiting = found.waiting || !hasNode
		}
		found.members = append(found.members, *replica)
	}
	return found
}

// provider returns the scheduler for the gang, and its PodGroup if there is one. A job that has started keeps its
// scheduler. missing describes why there is no scheduler for a gang without a PodGroup.
func (r Rules) provider(team *team) (chosen *gang.Provider, group *unstructured.Unstructured, missing string) {
	chosen, why := gang.Choose(r.in.Gangs.Setting, r.in.Job.Spec.Scheduling.SchedulerName, r.in.Gangs.Served)
	if len(r.in.PodGroups) == 0 {
		if chosen != nil {
			why = ""
		}
		return chosen, nil, why
	}
	group = r.in.PodGroups[0]
	if current := gang.ProviderOf(r.in.Gangs.Served, group.GroupVersionKind()); current != nil && (chosen == nil || team.started) {
		return current, group, ""
	}
	return chosen, group, ""
}

// createGroup creates the PodGroup if pods wait for a node.
func (r Rules) createGroup(provider *gang.Provider, team *team) (Plan, state.Result) {
	if !team.waiting {
		return Plan{}, state.Continue
	}
	wanted, err := r.wanted(team)
	if err != nil {
		r.out.Invalidate(err.Error())
		return Plan{}, state.Settled
	}
	r.out.Decision.CreatePodGroup = provider.Group(wanted)
	return Plan{provider: provider, group: wanted.Name}, state.Continue
}

// syncGroup makes the PodGroup equal to the desired one. If its API forbids the change and no pod
// is placed by the PodGroup, syncGroup replaces it. Otherwise the PodGroup stays. Pods that would
// wait in it for too many members are then created outside of it, or recreated if they wait
// already.
func (r Rules) syncGroup(provider *gang.Provider, group *unstructured.Unstructured, team *team) (Plan, state.Result) {
	read := Plan{status: provider.Read(group)}
	group = r.renameOwner(group)
	isEnough := leastOf(r.in.Job, r.total) >= provider.Least(group)
	if len(team.members) == 0 || !team.waiting && isEnough {
		return read, state.Continue
	}
	if !group.GetDeletionTimestamp().IsZero() {
		return r.awaitGroup(read, group, team)
	}
	wanted, err := r.wanted(team)
	if err != nil {
		r.out.Invalidate(err.Error())
		return read, state.Settled
	}
	synced, possible := provider.Sync(group, wanted)
	switch {
	case !possible && !team.started:
		return r.replaceGroup(group)
	case possible && !equality.Semantic.DeepEqual(synced.Object, group.Object):
		r.out.Decision.UpdatePodGroup = synced
	}
	if int(provider.Least(synced)) <= len(team.members) {
		read.provider, read.group = provider, group.GetName()
		return read, state.Continue
	}
	r.deleteWaiting()
	return read, state.Continue
}

// renameOwner updates the version of the job in the PodGroup's owner reference.
func (r Rules) renameOwner(group *unstructured.Unstructured) *unstructured.Unstructured {
	if !r.in.IsEarlier(group) {
		return group
	}
	group = group.DeepCopy()
	group.SetOwnerReferences(r.in.StoredReferences(group))
	r.out.Decision.UpdatePodGroup = group
	return group
}

// deleteWaiting deletes the pods of the gang that have no node.
func (r Rules) deleteWaiting() {
	for _, pod := range r.in.Pods {
		if gang.IsMember(pod) && !podstate.Finished(pod) && pod.Spec.NodeName == "" {
			r.out.DeletePod(pod)
		}
	}
}

// wanted returns the desired gang. Its minimum does not exceed the number of its pods.
func (r Rules) wanted(team *team) (*gang.Gang, error) {
	job := r.in.Job
	least := leastOf(job, r.total)
	if team.waiting {
		least = min(least, int32(len(team.members)))
	}
	demand, err := r.in.Builder.Demand(team.members[:min(int(least), len(team.members))])
	if err != nil {
		return nil, fmt.Errorf("summing up the gang's requests: %w", err)
	}
	return &gang.Gang{
		Namespace: job.Namespace, Name: names.PodGroup(job.Name),
		Labels: names.WorkerJobLabels(job.Name), Owner: *workload.Owner(job, r.in.Settings.JobVersion),
		Min: least, Resources: demand.Resources, Queue: job.Spec.Scheduling.Queue, PriorityClass: demand.PriorityClass,
	}, nil
}

// replaceGroup deletes the PodGroup and the pods that wait in it; none of them has a node. New ones
// are created when all are gone.
func (r Rules) replaceGroup(group *unstructured.Unstructured) (Plan, state.Result) {
	r.deleteWaiting()
	r.out.DeletePodGroups()
	r.out.Decision.UpdatePodGroup = nil
	return Plan{status: gang.SchedulerStatus{
		Reason:  v2alpha1.ReasonGangReplaced,
		Message: fmt.Sprintf("%s %s is replaced by one of another size or scheduler", gang.Kind, group.GetName()),
	}}, state.Settled
}

// awaitGroup handles a terminating PodGroup. Its deletion may wait for its pods, so those without a
// node are deleted. A job that has started continues without it: new pods then do not count for the
// pods that wait.
func (r Rules) awaitGroup(read Plan, group *unstructured.Unstructured, team *team) (Plan, state.Result) {
	if team.started {
		r.deleteWaiting()
		return read, state.Continue
	}
	return r.replaceGroup(group)
}

// Report sets the condition for the gang. A lost pod is recreated alone, so the condition of a
// placed gang stays True until no pod of the job has a node.
func (r Rules) Report(plan Plan, completed *ranks.Set) {
	const condition = v2alpha1.ConditionGangScheduled
	switch {
	case state.IsCoordinatorLed(r.in.Job) || state.IsFinished(r.out.Status()):
	case !state.AsksForGang(r.in.Job):
		r.out.RemoveCondition(condition)
	case state.IsSuspended(r.in.Job):
		if r.out.Condition(condition) != nil {
			r.setGangScheduled(corev1.ConditionFalse, v2alpha1.ConditionSuspended, "the job is suspended")
		}
	case plan.missing != "" && !r.hasStarted(completed):
		r.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonNoGangScheduler, plan.missing)
	case state.IsUnplaced(r.in.Job):
		if r.out.Condition(condition) != nil {
			r.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonGangWaiting, "the allocator has not placed the job")
		}
	default:
		r.reportPlacing(plan, completed)
	}
}

func (r Rules) reportPlacing(plan Plan, completed *ranks.Set) {
	const condition = v2alpha1.ConditionGangScheduled
	least := leastOf(r.in.Job, r.total)
	placed := r.placed(completed)
	switch {
	case placed >= least && least > 0:
		if !r.out.IsTrue(condition) {
			r.setGangScheduled(corev1.ConditionTrue, v2alpha1.ReasonGangPlaced, state.All(int(least), "pod")+" of the gang "+english.PluralWord(int(least), "has", "have")+" a node")
		}
	case placed > 0 && r.out.IsTrue(condition):
	default:
		status := r.whyNotPlaced(plan.status)
		r.setGangScheduled(corev1.ConditionFalse, status.Reason, status.Message)
	}
}

// placed counts the replicas that have a node, or have succeeded.
func (r Rules) placed(completed *ranks.Set) int32 {
	count := completed.Count()
	for _, pod := range r.in.Pods {
		if r.isPlaced(pod) {
			count++
		}
	}
	return count
}

// hasStarted reports whether some replica has a node or has succeeded. Pods that are created then
// no longer start the job in part.
func (r Rules) hasStarted(completed *ranks.Set) bool {
	return !completed.IsEmpty() || slices.ContainsFunc(r.in.Pods, r.isPlaced)
}

func (r Rules) isPlaced(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && podstate.Active(pod) && !r.out.IsStale(pod)
}

// whyNotPlaced returns the scheduler's reason and message: those of the PodGroup, completed
// from the pods.
func (r Rules) whyNotPlaced(status gang.SchedulerStatus) gang.SchedulerStatus {
	for _, pod := range r.in.Pods {
		if status.Reason != "" && status.Message != "" {
			break
		}
		if said := gang.StatusOfPod(pod); said != (gang.SchedulerStatus{}) && !r.out.IsStale(pod) {
			status = gang.SchedulerStatus{Reason: cmp.Or(status.Reason, said.Reason), Message: cmp.Or(status.Message, said.Message)}
		}
	}
	if status.Reason == "" {
		return gang.SchedulerStatus{Reason: v2alpha1.ReasonGangWaiting, Message: "the scheduler has not scheduled the pods yet"}
	}
	status.Message = podstate.SchedulerMessage(cmp.Or(status.Message, "the scheduler finds no nodes for the pods"))
	return status
}

// setGangScheduled sets the condition. It records an event when the gang is placed, when there is
// no scheduler for it, and when the scheduler first reports why it waits. A change of that message
// alone records no event.
func (r Rules) setGangScheduled(value corev1.ConditionStatus, reason, message string) {
	before := ""
	if recorded := r.out.Condition(v2alpha1.ConditionGangScheduled); recorded != nil {
		before = recorded.Reason
	}
	if !r.out.RecordCondition(v2alpha1.ConditionGangScheduled, value, reason, message) || reason == before {
		return
	}
	isQuiet := func(reason string) bool {
		return slices.Contains([]string{"", v2alpha1.ReasonGangWaiting, v2alpha1.ReasonGangReplaced, v2alpha1.ReasonGangPlaced,
			v2alpha1.ReasonNoGangScheduler, v2alpha1.ConditionSuspended}, reason)
	}
	switch {
	case value == corev1.ConditionTrue:
		r.out.Event(corev1.EventTypeNormal, reason, message)
	case reason == v2alpha1.ReasonNoGangScheduler:
		r.out.Event(corev1.EventTypeWarning, reason, message)
	case isQuiet(before) && !isQuiet(reason):
		r.out.Event(corev1.EventTypeWarning, v2alpha1.ReasonGangUnschedulable, message)
	}
}
