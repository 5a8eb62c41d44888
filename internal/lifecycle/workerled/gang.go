// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

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
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// GangRetryInterval is how often a job is reconciled whose gang has no scheduler. No watch covers
// the installation of a scheduler.
const GangRetryInterval = 30 * time.Second

// gangPlan is the part of a plan that concerns the job's gang.
type gangPlan struct {
	// provider and group mark new pods as members of the gang; nil if new pods are not members.
	provider *gang.Provider
	group    string
	// status is the scheduler's reason and message if it has not placed the gang.
	status gang.SchedulerStatus
	// missing describes why there is no scheduler for the gang, "" if there is one.
	missing string
}

func (g *gangPlan) mark(pod *corev1.Pod) {
	if g.provider != nil {
		g.provider.Mark(pod, g.group)
	}
}

// MayBeGang reports whether a job requests a gang, or its pods may belong to one.
func MayBeGang(job *v2alpha1.DIJob, pods []*corev1.Pod) bool {
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

// ensureGang creates the gang's PodGroup before its pods. Without a scheduler for gangs, it creates
// no pods of a job that has not started.
func (a *assigned) ensureGang() state.Result {
	result := a.decideGang()
	if a.out.Decision.CreatePodGroup != nil && !a.out.MayCreate(state.KindPodGroups) {
		a.out.Decision.CreatePodGroup = nil
		return state.Settled
	}
	return result
}

func (a *assigned) decideGang() state.Result {
	switch {
	case !state.AsksForGang(a.in.Job):
		a.out.DeletePodGroups()
		return state.Continue
	case isUnplaced(a.in.Job):
		return state.Continue
	}
	team := a.team()
	provider, group := a.gangProvider(&team)
	switch {
	case provider == nil && a.hasStarted():
		return state.Continue
	case provider == nil:
		a.out.RequeueAfter(GangRetryInterval)
		return state.Settled
	case group == nil:
		return a.createGroup(provider, &team)
	case provider.GVK != group.GroupVersionKind():
		return a.replaceGroup(group)
	}
	return a.syncGroup(provider, group, &team)
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

func (a *assigned) team() team {
	var found team
	for i := range a.assignment.Replicas {
		replica := &a.assignment.Replicas[i]
		pod := a.in.PodNamed[replica.Pod]
		switch {
		case a.completed().Has(replica.Rank):
			continue
		case pod == nil || podstate.Terminating(pod) || a.out.Deleting[pod]:
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

// gangProvider returns the scheduler for the gang, and its PodGroup if there is one. A job that has
// started keeps its scheduler.
func (a *assigned) gangProvider(team *team) (*gang.Provider, *unstructured.Unstructured) {
	chosen, why := gang.Choose(a.in.Gangs.Setting, a.in.Job.Spec.Scheduling.SchedulerName, a.in.Gangs.Served)
	if len(a.in.PodGroups) == 0 {
		if chosen == nil {
			a.gang.missing = why
		}
		return chosen, nil
	}
	group := a.in.PodGroups[0]
	if current := gang.ProviderOf(a.in.Gangs.Served, group.GroupVersionKind()); current != nil && (chosen == nil || team.started) {
		return current, group
	}
	return chosen, group
}

// createGroup creates the PodGroup if pods wait for a node.
func (a *assigned) createGroup(provider *gang.Provider, team *team) state.Result {
	if !team.waiting {
		return state.Continue
	}
	wanted, err := a.wantedGang(team)
	if err != nil {
		a.out.Invalidate(err.Error())
		return state.Settled
	}
	a.out.Decision.CreatePodGroup = provider.Group(wanted)
	a.markWith(provider, wanted.Name)
	return state.Continue
}

// syncGroup makes the PodGroup equal to the desired one. If its API forbids the change and no pod
// is placed by the PodGroup, syncGroup replaces it. Otherwise the PodGroup stays. Pods that would
// wait in it for too many members are then created outside of it, or recreated if they wait
// already.
func (a *assigned) syncGroup(provider *gang.Provider, group *unstructured.Unstructured, team *team) state.Result {
	a.gang.status = provider.Read(group)
	group = a.renameOwner(group)
	isEnough := leastOf(a.in.Job, a.facts.counts.Total) >= provider.Least(group)
	if len(team.members) == 0 || !team.waiting && isEnough {
		return state.Continue
	}
	if !group.GetDeletionTimestamp().IsZero() {
		return a.awaitGroup(group, team)
	}
	wanted, err := a.wantedGang(team)
	if err != nil {
		a.out.Invalidate(err.Error())
		return state.Settled
	}
	synced, possible := provider.Sync(group, wanted)
	switch {
	case !possible && !team.started:
		return a.replaceGroup(group)
	case possible && !equality.Semantic.DeepEqual(synced.Object, group.Object):
		a.out.Decision.UpdatePodGroup = synced
	}
	if int(provider.Least(synced)) <= len(team.members) {
		a.markWith(provider, group.GetName())
		return state.Continue
	}
	a.deleteWaiting()
	return state.Continue
}

// renameOwner updates the version of the job in the PodGroup's owner reference.
func (a *assigned) renameOwner(group *unstructured.Unstructured) *unstructured.Unstructured {
	if !a.in.IsEarlier(group) {
		return group
	}
	group = group.DeepCopy()
	group.SetOwnerReferences(a.in.StoredReferences(group))
	a.out.Decision.UpdatePodGroup = group
	return group
}

// deleteWaiting deletes the pods of the gang that have no node.
func (a *assigned) deleteWaiting() {
	for _, pod := range a.in.Pods {
		if gang.IsMember(pod) && !podstate.Finished(pod) && pod.Spec.NodeName == "" {
			a.out.DeletePod(pod)
		}
	}
}

func (a *assigned) markWith(provider *gang.Provider, group string) {
	a.gang.provider, a.gang.group = provider, group
}

// wantedGang returns the desired gang. Its minimum does not exceed the number of its pods.
func (a *assigned) wantedGang(team *team) (*gang.Gang, error) {
	job := a.in.Job
	least := leastOf(job, a.facts.counts.Total)
	if team.waiting {
		least = min(least, int32(len(team.members)))
	}
	demand, err := a.in.Builder.Demand(team.members[:min(int(least), len(team.members))])
	if err != nil {
		return nil, fmt.Errorf("summing up the gang's requests: %w", err)
	}
	return &gang.Gang{
		Namespace: job.Namespace, Name: names.PodGroup(job.Name),
		Labels: names.WorkerJobLabels(job.Name), Owner: *workload.Owner(job, a.in.Settings.JobVersion),
		Min: least, Resources: demand.Resources, Queue: job.Spec.Scheduling.Queue, PriorityClass: demand.PriorityClass,
	}, nil
}

// replaceGroup deletes the PodGroup and the pods that wait in it; none of them has a node. New ones
// are created when all are gone.
func (a *assigned) replaceGroup(group *unstructured.Unstructured) state.Result {
	a.deleteWaiting()
	a.out.DeletePodGroups()
	a.out.Decision.UpdatePodGroup = nil
	a.gang.status = gang.SchedulerStatus{
		Reason:  v2alpha1.ReasonGangReplaced,
		Message: fmt.Sprintf("%s %s is replaced by one of another size or scheduler", gang.Kind, group.GetName()),
	}
	return state.Settled
}

// awaitGroup handles a terminating PodGroup. Its deletion may wait for its pods, so those without a
// node are deleted. A job that has started continues without it: new pods then do not count for the
// pods that wait.
func (a *assigned) awaitGroup(group *unstructured.Unstructured, team *team) state.Result {
	if team.started {
		a.deleteWaiting()
		return state.Continue
	}
	return a.replaceGroup(group)
}

// reportGang sets the condition for the gang. A lost pod is recreated alone, so the condition of a
// placed gang stays True until no pod of the job has a node.
func (a *assigned) reportGang() {
	const condition = v2alpha1.ConditionGangScheduled
	switch {
	case state.IsCoordinatorLed(a.in.Job) || state.IsFinished(a.out.Status()):
	case !state.AsksForGang(a.in.Job):
		a.out.Status().Conditions = slices.DeleteFunc(a.out.Status().Conditions, func(c v2alpha1.DIJobCondition) bool { return c.Type == condition })
	case state.IsSuspended(a.in.Job):
		if conditions.Find(a.out.Status(), condition) != nil {
			a.setGangScheduled(corev1.ConditionFalse, v2alpha1.ConditionSuspended, "the job is suspended")
		}
	case a.gang.missing != "" && !a.hasStarted():
		a.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonNoGangScheduler, a.gang.missing)
	case isUnplaced(a.in.Job):
		if conditions.Find(a.out.Status(), condition) != nil {
			a.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonGangWaiting, "the allocator has not placed the job")
		}
	default:
		a.reportPlacing()
	}
}

func (a *assigned) reportPlacing() {
	const condition = v2alpha1.ConditionGangScheduled
	least := leastOf(a.in.Job, a.facts.counts.Total)
	placed := a.placed()
	switch {
	case placed >= least && least > 0:
		if !conditions.IsTrue(a.out.Status(), condition) {
			a.setGangScheduled(corev1.ConditionTrue, v2alpha1.ReasonGangPlaced, all(int(least), "pod")+" of the gang "+english.PluralWord(int(least), "has", "have")+" a node")
		}
	case placed > 0 && conditions.IsTrue(a.out.Status(), condition):
	default:
		status := a.whyNotPlaced()
		a.setGangScheduled(corev1.ConditionFalse, status.Reason, status.Message)
	}
}

// placed counts the replicas that have a node, or have succeeded.
func (a *assigned) placed() int32 {
	count := a.completed().Count()
	for _, pod := range a.in.Pods {
		if a.isPlaced(pod) {
			count++
		}
	}
	return count
}

// hasStarted reports whether some replica has a node or has succeeded. Pods that are created then
// no longer start the job in part.
func (a *assigned) hasStarted() bool {
	return !a.completed().IsEmpty() || slices.ContainsFunc(a.in.Pods, a.isPlaced)
}

func (a *assigned) isPlaced(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && podstate.Active(pod) && !a.out.IsStale(pod)
}

// whyNotPlaced returns the scheduler's reason and message from the PodGroup, completed
// from the pods.
func (a *assigned) whyNotPlaced() gang.SchedulerStatus {
	status := a.gang.status
	for _, pod := range a.in.Pods {
		if status.Reason != "" && status.Message != "" {
			break
		}
		if said := gang.StatusOfPod(pod); said != (gang.SchedulerStatus{}) && !a.out.IsStale(pod) {
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
func (a *assigned) setGangScheduled(value corev1.ConditionStatus, reason, message string) {
	before := ""
	if recorded := conditions.Find(a.out.Status(), v2alpha1.ConditionGangScheduled); recorded != nil {
		before = recorded.Reason
	}
	if !conditions.Set(a.out.Status(), v2alpha1.ConditionGangScheduled, value, reason, message, a.in.Now) || reason == before {
		return
	}
	isQuiet := func(reason string) bool {
		return slices.Contains([]string{"", v2alpha1.ReasonGangWaiting, v2alpha1.ReasonGangReplaced, v2alpha1.ReasonGangPlaced,
			v2alpha1.ReasonNoGangScheduler, v2alpha1.ConditionSuspended}, reason)
	}
	switch {
	case value == corev1.ConditionTrue:
		a.out.Event(corev1.EventTypeNormal, reason, message)
	case reason == v2alpha1.ReasonNoGangScheduler:
		a.out.Event(corev1.EventTypeWarning, reason, message)
	case isQuiet(before) && !isQuiet(reason):
		a.out.Event(corev1.EventTypeWarning, v2alpha1.ReasonGangUnschedulable, message)
	}
}
