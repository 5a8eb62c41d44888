// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// GangRetryInterval is how often a job is reconciled whose gang has no scheduler: no watch
// covers the installation of one.
const GangRetryInterval = 30 * time.Second

// gangPlan is what a plan says about a job's gang.
type gangPlan struct {
	// provider and group are what pods that are created are marked with; nil where
	// they are not.
	provider *gang.Provider
	group    string
	// words are the status of the scheduler: why the gang is not placed.
	words gang.Words
	// missing describes why there is no scheduler for the gang, "" if there is one.
	missing string
}

func (g *gangPlan) mark(pod *corev1.Pod) {
	if g.provider != nil {
		g.provider.Mark(pod, g.group)
	}
}

// MayBeGang reports whether a job asks for a gang, or may have been one.
func MayBeGang(job *v2alpha1.DIJob, pods []*corev1.Pod) bool {
	if IsCoordinatorLed(job) {
		return false
	}
	return asksForGang(job) || conditions.Find(&job.Status, v2alpha1.ConditionGangScheduled) != nil || slices.ContainsFunc(pods, gang.IsMember)
}

func asksForGang(job *v2alpha1.DIJob) bool {
	return job.Spec.Scheduling != nil && job.Spec.Scheduling.Gang != nil
}

// leastOf returns how many of a job's pods must be placed at once.
func leastOf(job *v2alpha1.DIJob, total int32) int32 {
	if least := job.Spec.Scheduling.Gang.MinAvailable; least != nil {
		return min(*least, total)
	}
	return total
}

// ensureGang creates the gang's PodGroup before its pods. Without a scheduler for gangs
// it creates no pods of a job that has not started.
func ensureGang(p *plan) outcome {
	result := p.decideGang()
	if p.decision.CreatePodGroup != nil && !p.mayCreate(ofPodGroup) {
		p.decision.CreatePodGroup = nil
		return settled
	}
	return result
}

func (p *plan) decideGang() outcome {
	switch {
	case !asksForGang(p.Job):
		p.deletePodGroups()
		return goOn
	case isUnplaced(p.Job):
		return goOn
	}
	team := p.team()
	provider, group := p.gangProvider(&team)
	switch {
	case provider == nil && p.hasStarted():
		return goOn
	case provider == nil:
		p.requeueAfter(GangRetryInterval)
		return settled
	case group == nil:
		return p.createGroup(provider, &team)
	case provider.GVK != group.GroupVersionKind():
		return p.replaceGroup(group)
	}
	return p.syncGroup(provider, group, &team)
}

// team is what a gang consists of at one moment.
type team struct {
	// members are the replicas of the gang whose pods exist or are created. A rank that
	// has succeeded is no member, nor is a pod that was created without a gang.
	members []workload.Replica
	// waiting is set if some of them have no node yet.
	waiting bool
	// started is set if some pod of the job has a node.
	started bool
}

func (p *plan) team() team {
	var found team
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.pods[replica.Pod]
		switch {
		case p.completed().has(replica.Rank):
			continue
		case pod == nil || podstate.Terminating(pod) || p.deleting[pod]:
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

// gangProvider returns the scheduler for the gang, and its PodGroup if there is one. A
// job that has started stays with its scheduler.
func (p *plan) gangProvider(team *team) (*gang.Provider, *unstructured.Unstructured) {
	chosen, why := gang.Choose(p.Gangs.Setting, p.Job.Spec.Scheduling.SchedulerName, p.Gangs.Served)
	if len(p.PodGroups) == 0 {
		if chosen == nil {
			p.gang.missing = why
		}
		return chosen, nil
	}
	group := p.PodGroups[0]
	if current := gang.ProviderOf(p.Gangs.Served, group.GroupVersionKind()); current != nil && (chosen == nil || team.started) {
		return current, group
	}
	return chosen, group
}

// createGroup creates the PodGroup if pods wait to be placed.
func (p *plan) createGroup(provider *gang.Provider, team *team) outcome {
	if !team.waiting {
		return goOn
	}
	wanted, err := p.wantedGang(team)
	if err != nil {
		p.invalid = append(p.invalid, err.Error())
		return settled
	}
	p.decision.CreatePodGroup = provider.Group(wanted)
	p.markWith(provider, wanted.Name)
	return goOn
}

// syncGroup makes the PodGroup equal to the desired one. If its API forbids the change,
// the PodGroup is replaced while no pod is placed by it; otherwise it stays, and pods
// that it would keep waiting for too many members are created without it, or recreated
// without it if they wait already.
func (p *plan) syncGroup(provider *gang.Provider, group *unstructured.Unstructured, team *team) outcome {
	p.gang.words = provider.Read(group)
	group = p.renameOwner(group)
	isEnough := leastOf(p.Job, p.counts.total) >= provider.Least(group)
	if len(team.members) == 0 || !team.waiting && isEnough {
		return goOn
	}
	if !group.GetDeletionTimestamp().IsZero() {
		return p.awaitGroup(group, team)
	}
	wanted, err := p.wantedGang(team)
	if err != nil {
		p.invalid = append(p.invalid, err.Error())
		return settled
	}
	synced, possible := provider.Level(group, wanted)
	switch {
	case !possible && !team.started:
		return p.replaceGroup(group)
	case possible && !equality.Semantic.DeepEqual(synced.Object, group.Object):
		p.decision.UpdatePodGroup = synced
	}
	if int(provider.Least(synced)) <= len(team.members) {
		p.markWith(provider, group.GetName())
		return goOn
	}
	p.deleteWaiting()
	return goOn
}

// renameOwner updates the version in which the PodGroup names its job.
func (p *plan) renameOwner(group *unstructured.Unstructured) *unstructured.Unstructured {
	if !p.isEarlier(group) {
		return group
	}
	group = group.DeepCopy()
	group.SetOwnerReferences(p.storedReferences(group))
	p.decision.UpdatePodGroup = group
	return group
}

// deleteWaiting deletes the pods of the gang that have no node.
func (p *plan) deleteWaiting() {
	for _, pod := range p.Pods {
		if gang.IsMember(pod) && !podstate.Finished(pod) && pod.Spec.NodeName == "" {
			p.deletePod(pod)
		}
	}
}

func (p *plan) markWith(provider *gang.Provider, group string) {
	p.gang.provider, p.gang.group = provider, group
}

// wantedGang returns the desired gang. It waits for no more pods than there will be.
func (p *plan) wantedGang(team *team) (*gang.Gang, error) {
	job := p.Job
	least := leastOf(job, p.counts.total)
	if team.waiting {
		least = min(least, int32(len(team.members)))
	}
	demand, err := p.builder.Demand(team.members[:min(int(least), len(team.members))])
	if err != nil {
		return nil, fmt.Errorf("summing up the gang's requests: %w", err)
	}
	return &gang.Gang{
		Namespace: job.Namespace, Name: names.PodGroup(job.Name),
		Labels: names.WorkerJobLabels(job.Name), Owner: *workload.Owner(job, p.Settings.JobVersion),
		Min: least, Resources: demand.Resources, Queue: job.Spec.Scheduling.Queue, PriorityClass: demand.PriorityClass,
	}, nil
}

// replaceGroup deletes the PodGroup and the pods that wait by it, none of which has a
// node. New ones are created when all are gone.
func (p *plan) replaceGroup(group *unstructured.Unstructured) outcome {
	p.deleteWaiting()
	p.deletePodGroups()
	p.decision.UpdatePodGroup = nil
	p.gang.words = gang.Words{
		Reason:  v2alpha1.ReasonGangReplaced,
		Message: fmt.Sprintf("%s %s is replaced by one of another size or scheduler", gang.Kind, group.GetName()),
	}
	return settled
}

// awaitGroup handles a terminating PodGroup. Its deletion may wait for its pods, so
// those without a node are deleted. A job that has started continues without it: pods
// that are created from now on do not count for the pods that wait.
func (p *plan) awaitGroup(group *unstructured.Unstructured, team *team) outcome {
	if team.started {
		p.deleteWaiting()
		return goOn
	}
	return p.replaceGroup(group)
}

// deletePodGroups deletes the job's PodGroups.
func (p *plan) deletePodGroups() {
	for _, group := range p.PodGroups {
		if group.GetDeletionTimestamp().IsZero() {
			p.decision.DeletePodGroups = append(p.decision.DeletePodGroups, group)
		}
	}
}

// reportGang sets the condition for the gang. Once the gang is placed it stays True
// until no pod of the job has a node: a lost pod is recreated alone.
func (p *plan) reportGang() {
	const condition = v2alpha1.ConditionGangScheduled
	switch {
	case IsCoordinatorLed(p.Job) || IsFinished(p.status()):
	case !asksForGang(p.Job):
		p.status().Conditions = slices.DeleteFunc(p.status().Conditions, func(c v2alpha1.DIJobCondition) bool { return c.Type == condition })
	case IsSuspended(p.Job):
		if conditions.Find(p.status(), condition) != nil {
			p.setGangScheduled(corev1.ConditionFalse, v2alpha1.ConditionSuspended, "the job is suspended")
		}
	case p.gang.missing != "" && !p.hasStarted():
		p.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonNoGangScheduler, p.gang.missing)
	case isUnplaced(p.Job):
		if conditions.Find(p.status(), condition) != nil {
			p.setGangScheduled(corev1.ConditionFalse, v2alpha1.ReasonGangWaiting, "the allocator has not placed the job")
		}
	default:
		p.reportPlacing()
	}
}

func (p *plan) reportPlacing() {
	const condition = v2alpha1.ConditionGangScheduled
	least := leastOf(p.Job, p.counts.total)
	placed := p.placed()
	switch {
	case placed >= least && least > 0:
		if !conditions.IsTrue(p.status(), condition) {
			p.setGangScheduled(corev1.ConditionTrue, v2alpha1.ReasonGangPlaced, fmt.Sprintf("all %d pods of the gang have a node", least))
		}
	case placed > 0 && conditions.IsTrue(p.status(), condition):
	default:
		words := p.whyNotPlaced()
		p.setGangScheduled(corev1.ConditionFalse, words.Reason, words.Message)
	}
}

// placed counts the replicas that have a node, or have succeeded.
func (p *plan) placed() int32 {
	var count int32
	for _, each := range p.completed().ranges {
		count += each.last - each.first + 1
	}
	for _, pod := range p.Pods {
		if p.isPlaced(pod) {
			count++
		}
	}
	return count
}

// hasStarted reports whether some replica has a node, or has succeeded: pods that are
// created now no longer start the job in part.
func (p *plan) hasStarted() bool {
	return len(p.completed().ranges) > 0 || slices.ContainsFunc(p.Pods, p.isPlaced)
}

func (p *plan) isPlaced(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && podstate.Active(pod) && !p.isStale(pod)
}

// whyNotPlaced returns the scheduler's reason and message from the PodGroup, completed
// from the pods.
func (p *plan) whyNotPlaced() gang.Words {
	words := p.gang.words
	for _, pod := range p.Pods {
		if words.Reason != "" && words.Message != "" {
			break
		}
		if said := gang.OfPod(pod); said != (gang.Words{}) && !p.isStale(pod) {
			words = gang.Words{Reason: cmp.Or(words.Reason, said.Reason), Message: cmp.Or(words.Message, said.Message)}
		}
	}
	if words.Reason == "" {
		return gang.Words{Reason: v2alpha1.ReasonGangWaiting, Message: "the scheduler has not scheduled the pods yet"}
	}
	words.Message = podstate.SchedulerMessage(cmp.Or(words.Message, "the scheduler finds no nodes for the pods"))
	return words
}

// setGangScheduled sets the condition. It records an event when the gang is placed, when
// there is no scheduler for it, and when the scheduler first says why it waits, but not
// each time that message changes.
func (p *plan) setGangScheduled(value corev1.ConditionStatus, reason, message string) {
	before := ""
	if recorded := conditions.Find(p.status(), v2alpha1.ConditionGangScheduled); recorded != nil {
		before = recorded.Reason
	}
	if !conditions.Set(p.status(), v2alpha1.ConditionGangScheduled, value, reason, message, p.Now) || reason == before {
		return
	}
	isQuiet := func(reason string) bool {
		return slices.Contains([]string{"", v2alpha1.ReasonGangWaiting, v2alpha1.ReasonGangReplaced, v2alpha1.ReasonGangPlaced,
			v2alpha1.ReasonNoGangScheduler, v2alpha1.ConditionSuspended}, reason)
	}
	switch {
	case value == corev1.ConditionTrue:
		p.event(corev1.EventTypeNormal, reason, message)
	case reason == v2alpha1.ReasonNoGangScheduler:
		p.event(corev1.EventTypeWarning, reason, message)
	case isQuiet(before) && !isQuiet(reason):
		p.event(corev1.EventTypeWarning, v2alpha1.ReasonGangUnschedulable, message)
	}
}
