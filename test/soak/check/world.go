// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/soak/history"
)

const (
	// remembered is the number of events of a job that a story has.
	remembered = 200
	// settling is how long a loaded machine may take to deliver what was stored before: to a program that runs, and
	// to one that a fault has stopped, after the fault is over.
	settling = 20 * time.Second
)

// pod is the last state of a pod.
type pod struct {
	history.PodState
	uid, name string
	job       *job
	created   time.Time
	// ending is set once its deletion has begun, and gone once it was removed.
	ending, gone bool
	// caused is what a stranger did to it; "" for nothing.
	caused string
	// replaced is set once it is no replica any longer.
	replaced bool
}

// lives reports whether the pod runs or may run.
func (p *pod) lives() bool { return !p.ending && !p.gone && !p.Ended() }

// snapshot is a desired state of a job.
type snapshot struct {
	// until is when the next one replaced it; zero for the current one.
	until time.Time
	tasks map[string]int
	// slots are the numbers of pods of each member of a coordinator-led job.
	slots map[string]int
}

// event is something that may explain what the operator does.
type event struct {
	time time.Time
	what string
}

// job is what is known of a job.
type job struct {
	uid, name string
	state     history.JobState
	// deleting is set once its deletion has begun, and gone once it was removed.
	deleting, gone bool
	members        *history.MembershipState
	membership     bool
	// replaced are the names of pods that are no replica, and may not exist yet.
	replaced map[string]bool
	services map[string]bool
	pods     map[string]*pod
	desired  []snapshot
	// observed is when the operator last showed that it had acted on the desired state.
	observed time.Time
	causes   []event
	events   []string
}

func (j *job) String() string { return fmt.Sprintf("job %s (%s)", j.name, j.uid) }

// stops reports whether the job must have no pods.
func (j *job) stops() bool { return j.deleting || j.gone || j.state.Suspended || j.state.Finished() }

// living returns the living pods, ordered by name.
func (j *job) living() []*pod {
	var living []*pod
	for _, name := range slices.Sorted(maps.Keys(j.pods)) {
		if j.pods[name].lives() {
			living = append(living, j.pods[name])
		}
	}
	slices.SortFunc(living, func(a, b *pod) int { return strings.Compare(a.name, b.name) })
	return living
}

// hasFailedPod reports whether a pod of a round of restarts has failed and is still there: nothing has handled it yet.
func (j *job) hasFailedPod(restarts int) bool {
	for _, each := range j.pods {
		if each.Phase == "Failed" && !each.ending && strings.HasPrefix(each.Attempt, fmt.Sprintf("%d/", restarts)) {
			return true
		}
	}
	return false
}

// causedSince returns the last cause since a time; "" for none.
func (j *job) causedSince(since time.Time) string {
	if last := len(j.causes) - 1; last >= 0 && !j.causes[last].time.Before(since) {
		return j.causes[last].what
	}
	return ""
}

// world is what a history has shown so far.
type world struct {
	now   time.Time
	jobs  map[string]*job
	pods  map[string]*pod
	nodes map[string]bool
	// faults are those that are not over, and those that were over less than settling ago.
	faults []history.Fault
	// calm is when no fault disturbed the operators last.
	calm  time.Time
	quiet bool
	// before is the previous state of the changed pod or job; fresh is set if it was created now.
	before struct {
		pod   *pod
		job   *history.JobState
		fresh bool
	}
}

func newWorld() *world {
	return &world{jobs: map[string]*job{}, pods: map[string]*pod{}, nodes: map[string]bool{}}
}

func (w *world) see(entry *history.Entry) {
	w.now = entry.Time
	if !slices.ContainsFunc(w.faults, func(each history.Fault) bool { return w.disturbs(&each, "operator") }) {
		w.calm = w.now
	}
	w.before.pod, w.before.job, w.before.fresh = nil, nil, false
	switch {
	case entry.Change != nil:
		w.change(entry.Change)
	case entry.Call != nil:
		w.call(entry.Call)
	case entry.Cause != nil:
		w.cause(entry.Cause)
	case entry.Read != nil:
		w.tell(w.jobs[entry.Read.Job], "%s reads version %d: active %s, leaving %s", w.podName(entry.Read.Pod), entry.Read.Version,
			strings.Join(entry.Read.Active, " "), strings.Join(entry.Read.Leaving, " "))
	case entry.Fault != nil:
		w.fault(entry.Fault)
	case entry.Quiet != nil:
		w.quiet = entry.Quiet.End.IsZero()
	}
}

// tell adds an event to the story of a job.
func (w *world) tell(of *job, format string, arguments ...any) {
	if of == nil {
		return
	}
	of.events = append(of.events, w.now.Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
	if excess := len(of.events) - remembered; excess > 0 {
		of.events = slices.Delete(of.events, 0, excess)
	}
}

// explain adds a cause.
func (w *world) explain(of *job, format string, arguments ...any) {
	if of != nil {
		of.causes = append(of.causes, event{w.now, fmt.Sprintf(format, arguments...)})
		w.tell(of, format, arguments...)
	}
}

func (w *world) podName(uid string) string {
	if known := w.pods[uid]; known != nil {
		return known.name
	}
	return "pod " + uid
}

func (w *world) job(uid string) *job {
	if uid == "" {
		return nil
	}
	known := w.jobs[uid]
	if known == nil {
		known = &job{uid: uid, name: "?", services: map[string]bool{}, pods: map[string]*pod{}, replaced: map[string]bool{}, observed: w.now}
		w.jobs[uid] = known
	}
	return known
}

func (w *world) change(change *history.Change) {
	switch change.Kind {
	case history.Job:
		w.changeJob(change)
	case history.Pod:
		w.changePod(change)
	case history.Membership:
		of := w.job(change.Owner)
		if of == nil {
			return
		}
		of.membership = !change.Gone
		if !change.Gone {
			w.changeMembers(of, change.Membership)
		}
	case history.Service:
		if of := w.job(change.Owner); of != nil {
			of.services[change.Name] = true
			if change.Gone {
				delete(of.services, change.Name)
			}
		}
	case history.Node:
		w.nodes[change.Name] = !change.Gone
	}
}

func (w *world) changeJob(change *history.Change) {
	of := w.job(change.UID)
	before := of.state
	w.before.job = &before
	of.name = change.Namespace + "/" + change.Name
	if change.Gone {
		of.gone = true
		w.explain(of, "the job is removed")
		return
	}
	of.state = *change.Job
	if change.Deleting && !of.deleting {
		of.deleting = true
		w.explain(of, "the deletion of the job begins")
	}
	if now := of.state; now.Generation != before.Generation {
		w.explain(of, "the spec changes to generation %d: %v, elastic %d, suspended %t", now.Generation, now.Tasks, now.ElasticReplicas, now.Suspended)
	}
	if now := of.state; now.Total != before.Total {
		w.explain(of, "status.replicas changes from %d to %d", before.Total, now.Total)
	}
	if now := of.state; now.Plan != before.Plan {
		w.explain(of, "the plan is %s", now.Plan)
	}
	if now := of.state; now.Phase != before.Phase || now.Restarts != before.Restarts || now.Reschedules != before.Reschedules {
		w.tell(of, "phase %s, %d restarts, %d reschedules", now.Phase, now.Restarts, now.Reschedules)
	}
	if of.state.Finished() && !before.Finished() {
		w.explain(of, "the job is %s", of.state.Phase)
	}
	if of.state.Observed == of.state.Generation && of.state.Total == of.state.LastTotal {
		of.observed = w.now
	}
	w.desire(of)
}

func (w *world) changeMembers(of *job, members *history.MembershipState) {
	if of.members == nil || !slices.Equal(of.members.Members, members.Members) {
		w.explain(of, "%d members are desired", len(members.Members))
	}
	of.members = members
	w.desire(of)
}

// desire records the desired state of a job.
func (w *world) desire(of *job) {
	now := snapshot{tasks: map[string]int{}, slots: map[string]int{}}
	if !of.stops() {
		others := 0
		for _, task := range of.state.Tasks {
			now.tasks[task.Name] = task.Replicas
			if task.Name != of.state.Elastic {
				others += task.Replicas
			}
		}
		if elastic := of.state.Elastic; elastic != "" && !of.state.CoordinatorLed {
			now.tasks[elastic] = max(now.tasks[elastic], of.state.ElasticReplicas, of.state.Total-others)
		}
		if of.members != nil {
			for _, member := range of.members.Members {
				now.slots[member.Slot] = member.Pods
			}
		}
	}
	if last := len(of.desired) - 1; last >= 0 {
		of.desired[last].until = w.now
	}
	of.desired = append(of.desired, now)
	since := w.since(of)
	of.desired = slices.DeleteFunc(of.desired, func(each snapshot) bool { return !each.until.IsZero() && each.until.Before(since) })
}

// since returns the time of the oldest desired state that an operator may still act on.
func (w *world) since(of *job) time.Time {
	since := w.known()
	if of.observed.Before(since) && !of.state.CoordinatorLed {
		since = of.observed
	}
	return since
}

// known returns a time whose state every operator knows.
func (w *world) known() time.Time { return w.knownTo("operator") }

// knownTo returns a time whose state every program of a kind knows. One that runs has seen what was stored some time ago.
// One that a fault has stopped or cut off may know only what was stored before it began.
func (w *world) knownTo(kind string) time.Time {
	since := w.now.Add(-settling)
	for _, fault := range w.faults {
		if early := fault.Begin.Add(-settling); w.disturbs(&fault, kind) && early.Before(since) {
			since = early
		}
	}
	return since
}

// disturbs reports whether a fault that keeps programs of a kind from learning of changes is there, or was a moment ago.
func (w *world) disturbs(fault *history.Fault, kind string) bool {
	return delays(fault, kind) && (fault.End.IsZero() || !fault.End.Before(w.now.Add(-settling)))
}

// delays reports whether a fault keeps programs of a kind from learning of changes.
func delays(fault *history.Fault, kind string) bool {
	isOfEtcd := fault.Target == "etcd" && fault.Kind != "compaction"
	return isOfEtcd || strings.HasSuffix(fault.Target, "kube-apiserver") || strings.HasPrefix(fault.Target, kind)
}

func (w *world) changePod(change *history.Change) {
	known := w.pods[change.UID]
	if known == nil {
		known = &pod{uid: change.UID, name: change.Name, job: w.job(change.Owner), created: w.now}
		w.pods[change.UID] = known
		w.before.fresh = true
		if known.job != nil {
			known.job.pods[change.UID], known.replaced = known, known.job.replaced[change.Name]
		}
		w.tell(known.job, "pod %s (%s) is created: %s %s, round %s", known.name, known.uid, change.Pod.Task, change.Pod.Member, change.Pod.Attempt)
	}
	before := *known
	w.before.pod = &before
	known.PodState = *change.Pod
	known.ending, known.gone = known.ending || change.Deleting, change.Gone
	switch {
	case known.gone:
		w.tell(known.job, "pod %s (%s) is removed", known.name, known.uid)
		if known.job != nil {
			delete(known.job.pods, known.uid)
		}
		delete(w.pods, known.uid)
	case known.ending && !before.ending:
		w.tell(known.job, "the deletion of pod %s (%s) begins", known.name, known.uid)
	case known.Phase != before.Phase || known.Ready != before.Ready:
		w.tell(known.job, "pod %s is %s, ready %t", known.name, known.Phase, known.Ready)
	}
	if known.Phase == "Failed" && before.Phase != "Failed" {
		w.explain(known.job, "pod %s has failed", known.name)
	}
}

func (w *world) call(call *history.Call) {
	outcome := "done"
	if call.Error != "" {
		outcome = call.Error
	}
	by := "a user"
	if call.Pod != "" {
		by = w.podName(call.Pod)
	}
	w.tell(w.jobs[call.Job], "%s calls %s %d %s, from %s on: %.200s", by, call.Operation, call.Number, call.Mark, call.Begin.Format("15:04:05.000"), outcome)
}

func (w *world) cause(cause *history.Cause) {
	of := w.jobs[cause.Job]
	if of != nil && cause.Replaced && cause.Name != "" {
		of.replaced[cause.Name] = true
		for _, each := range of.pods {
			if each.name == cause.Name {
				each.caused, each.replaced = cause.What, true
			}
		}
	}
	if known := w.pods[cause.Pod]; known != nil {
		known.caused, known.replaced = cause.What, known.replaced || cause.Replaced
		of = known.job
	}
	w.explain(of, "%s (%s)", cause.What, cmp.Or(cause.Name, w.podName(cause.Pod)))
}

func (w *world) fault(fault *history.Fault) {
	w.faults = slices.DeleteFunc(w.faults, func(each history.Fault) bool {
		isThis := each.Kind == fault.Kind && each.Target == fault.Target && each.Begin.Equal(fault.Begin)
		return isThis || !each.End.IsZero() && each.End.Before(w.now.Add(-settling))
	})
	w.faults = append(w.faults, *fault)
}
