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
func (p *Plan) ensureGang() state.Result {
	result := p.decideGang()
	if p.out.Decision.CreatePodGroup != nil && !p.out.MayCreate(state.KindPodGroups) {
		p.out.Decision.CreatePodGroup = nil
		return state.Settled
	}
	return result
}

func (p *Plan) decideGang() state.Result {
	switch {
	case !state.AsksForGang(p.in.Job):
		p.out.DeletePodGroups()
		return state.Continue
	case isUnplaced(p.in.Job):
		return state.Continue
	}
	team := p.team()
	provider, group := p.gangProvider(&team)
	switch {
	case provider == nil && p.hasStarted():
		return state.Continue
	case provider == nil:
		p.out.RequeueAfter(GangRetryInterval)
		return state.Settled
	case group == nil:
		return p.createGroup(provider, &team)
	case provider.GVK != group.GroupVersionKind():
		return p.replaceGroup(group)
	}
	return p.syncGroup(provider, group, &team)
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

func (p *Plan) team() team {
	var found team
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.in.PodNamed[replica.Pod]
		switch {
		case p.completed().Has(replica.Rank):
			continue
		case pod == nil || podstate.Terminating(pod) || p.out.Deleting[pod]:
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
func (p *Plan) gangProvider(team *team) (*gang.Provider, *unstructured.Unstructured) {
	chosen, why := gang.Choose(p.in.Gangs.Setting, p.in.Job.Spec.Scheduling.SchedulerName, p.in.Gangs.Served)
	if len(p.in.PodGroups) == 0 {
		if chosen == nil {
			p.gang.missing = why
		}
		return chosen, nil
	}
	group := p.in.PodGroups[0]
	if current := gang.ProviderOf(p.in.Gangs.Served, group.GroupVersionKind()); current != nil && (chosen == nil || team.started) {
		return current, group
	}
	return chosen, group
}

// createGroup creates the PodGroup if pods wait for a node.
func (p *Plan) createGroup(provider *gang.Provider, team *team) state.Result {
	if !team.waiting {
		return state.Continue
	}
	wanted, err := p.wantedGang(team)
	if err != nil {
		p.out.Invalidate(err.Error())
		return state.Settled
	}
	p.out.Decision.CreatePodGroup = provider.Group(wanted)
	p.markWith(provider, wanted.Name)
	return state.Continue
}

// syncGroup makes the PodGroup equal to the desired one. If its API forbids the change and no pod
// is placed by the PodGroup, syncGroup replaces it. Otherwise the PodGroup stays. Pods that would
// wait in it for too many members are then created outside of it, or recreated if they wait
// already.
func (p *Plan) syncGroup(provider *gang.Provider, group *unstructured.Unstructured, team *team) state.Result {
	p.gang.status = provider.Read(group)
	group = p.renameOwner(group)
	isEnough := leastOf(p.in.Job, p.facts.counts.Total) >= provider.Least(group)
	if len(team.members) == 0 || !team.waiting && isEnough {
		return state.Continue
	}
	if !group.GetDeletionTimestamp().IsZero() {
		return p.awaitGroup(group, team)
	}
	wanted, err := p.wantedGang(team)
	if err != nil {
		p.out.Invalidate(err.Error())
		return state.Settled
	}
	synced, possible := provider.Sync(group, wanted)
	switch {
	case !possible && !team.started:
		return p.replaceGroup(group)
	case possible && !equality.Semantic.DeepEqual(synced.Object, group.Object):
		p.out.Decision.UpdatePodGroup = synced
	}
	if int(provider.Least(synced)) <= len(team.members) {
		p.markWith(provider, group.GetName())
		return state.Continue
	}
	p.deleteWaiting()
	return state.Continue
}

// renameOwner updates the version of the job in the PodGroup's owner reference.
func (p *Plan) renameOwner(group *unstructured.Unstructured) *unstructured.Unstructured {
	if !p.in.IsEarlier(group) {
		return group
	}
	group = group.DeepCopy()
	group.SetOwnerReferences(p.in.StoredReferences(group))
	p.out.Decision.UpdatePodGroup = group
	return group
}

// deleteWaiting deletes the pods of the gang that have no node.
func (p *Plan) deleteWaiting() {
	for _, pod := range p.in.Pods {
		if gang.IsMember(pod) && !podstate.Finished(pod) && pod.Spec.NodeName == "" {
			p.out.DeletePod(pod)
		}
	}
}

func (p *Plan) markWith(provider *gang.Provider, group string) {
	p.gang.provider, p.gang.group = provider, group
}

// wantedGang returns the desired gang. Its minimum does not exceed the number of its pods.
func (p *Plan) wantedGang(team *team) (*gang.Gang, error) {
	job := p.in.Job
	least := leastOf(job, p.facts.counts.Total)
	if team.waiting {
		least = min(least, int32(len(team.members)))
	}
	demand, err := p.in.Builder.Demand(team.members[:min(int(least), len(team.members))])
	if err != nil {
		return nil, fmt.Errorf("summing up the gang's requests: %w", err)
	}
	return &gang.Gang{
		Namespace: job.Namespace, Name: names.PodGroup(job.Name),
		Labels: names.WorkerJobLabels(job.Name), Owner: *workload.Owner(job, p.in.Settings.JobVersion),
		Min: least, Resources: demand.Resources, Queue: job.Spec.Scheduling.Queue, PriorityClass: demand.PriorityClass,
	}, nil
}

// replaceGroup deletes the PodGroup and the pods that wait in it; none of them has a node. New ones
// are created when all are gone.
func (p *Plan) replaceGroup(group *unstructured.Unstructured) state.Result {
	p.deleteWaiting()
	p.out.DeletePodGroups()
	p.out.Decision.UpdatePodGroup = nil
	p.gang.status = gang.SchedulerStatus{
		Reason:  v2alpha1.ReasonGangReplaced,
		Message: fmt.Sprintf("%s %s is replaced by one of another size or scheduler", gang.Kind, group.GetName()),
	}
	return state.Settled
}

// awaitGroup handles a terminating PodGroup. Its deletion may wait for its pods, so those without a
// node are deleted. A job that has started continues without it: new pods then do not count for the
// pods that wait.
func (p *Plan) awaitGroup(group *unstructured.Unstructured, team *team) state.Result {
	if team.started {
		p.deleteWaiting()
		return state.Continue
	}
	return p.replaceGroup(group)
}

// reportGang sets the condition for the gang. A lost pod is recreated alone, so the condition of a
// placed gang stays True until no pod of the job has a node.
func (p *Plan) reportGang() {
	const condition = v2alpha1.ConditionGangScheduled
	switch {
	case state.IsCoordinatorLed(p.in.Job) || state.IsFinished(p.out.Status()):
	case !state.AsksForGang(p.in.Job):
		p.out.Status().Conditions = slices.DeleteFunc(p.out.Status().Conditions, func(c v2alpha1.DIJobCondition) bool { return c.Type == condition })
	case state.IsSuspended(p.in.Job):
		if conditions.Find(p.out.Status(), condition) != nil {
			p.setGangScheduled(corev1.ConditionFalse, v2alpha1.ConditionSuspended, "the job is suspended")
		}
	case p.gang.missing != "" && !p.hasStarted():
		p.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonNoGangScheduler, p.gang.missing)
	case isUnplaced(p.in.Job):
		if conditions.Find(p.out.Status(), condition) != nil {
			p.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonGangWaiting, "the allocator has not placed the job")
		}
	default:
		p.reportPlacing()
	}
}

func (p *Plan) reportPlacing() {
	const condition = v2alpha1.ConditionGangScheduled
	least := leastOf(p.in.Job, p.facts.counts.Total)
	placed := p.placed()
	switch {
	case placed >= least && least > 0:
		if !conditions.IsTrue(p.out.Status(), condition) {
			p.setGangScheduled(corev1.ConditionTrue, v2alpha1.ReasonGangPlaced, all(int(least), "pod")+" of the gang "+english.PluralWord(int(least), "has", "have")+" a node")
		}
	case placed > 0 && conditions.IsTrue(p.out.Status(), condition):
	default:
		status := p.whyNotPlaced()
		p.setGangScheduled(corev1.ConditionFalse, status.Reason, status.Message)
	}
}

// placed counts the replicas that have a node, or have succeeded.
func (p *Plan) placed() int32 {
	count := p.completed().Count()
	for _, pod := range p.in.Pods {
		if p.isPlaced(pod) {
			count++
		}
	}
	return count
}

// hasStarted reports whether some replica has a node or has succeeded. Pods that are created then
// no longer start the job in part.
func (p *Plan) hasStarted() bool {
	return !p.completed().IsEmpty() || slices.ContainsFunc(p.in.Pods, p.isPlaced)
}

func (p *Plan) isPlaced(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && podstate.Active(pod) && !p.out.IsStale(pod)
}

// whyNotPlaced returns the scheduler's reason and message from the PodGroup, completed
// from the pods.
func (p *Plan) whyNotPlaced() gang.SchedulerStatus {
	status := p.gang.status
	for _, pod := range p.in.Pods {
		if status.Reason != "" && status.Message != "" {
			break
		}
		if said := gang.StatusOfPod(pod); said != (gang.SchedulerStatus{}) && !p.out.IsStale(pod) {
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
func (p *Plan) setGangScheduled(value corev1.ConditionStatus, reason, message string) {
	before := ""
	if recorded := conditions.Find(p.out.Status(), v2alpha1.ConditionGangScheduled); recorded != nil {
		before = recorded.Reason
	}
	if !conditions.Set(p.out.Status(), v2alpha1.ConditionGangScheduled, value, reason, message, p.in.Now) || reason == before {
		return
	}
	isQuiet := func(reason string) bool {
		return slices.Contains([]string{"", v2alpha1.ReasonGangWaiting, v2alpha1.ReasonGangReplaced, v2alpha1.ReasonGangPlaced,
			v2alpha1.ReasonNoGangScheduler, v2alpha1.ConditionSuspended}, reason)
	}
	switch {
	case value == corev1.ConditionTrue:
		p.out.Event(corev1.EventTypeNormal, reason, message)
	case reason == v2alpha1.ReasonNoGangScheduler:
		p.out.Event(corev1.EventTypeWarning, reason, message)
	case isQuiet(before) && !isQuiet(reason):
		p.out.Event(corev1.EventTypeWarning, v2alpha1.ReasonGangUnschedulable, message)
	}
}
