// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// unique is the promise that no replica has two living pods.
type unique struct{}

func (unique) name() string { return "A replica has at most one living pod" }

func (unique) end(*world) []broken { return nil }

func (unique) see(w *world, entry *history.Entry) []broken {
	if !w.before.fresh {
		return nil
	}
	made := w.pods[entry.Change.UID]
	if made == nil || made.job == nil || made.Member == "" || made.replaced || !made.lives() {
		return nil
	}
	for _, other := range made.job.living() {
		if other != made && other.Member == made.Member && !other.replaced {
			return []broken{{job: made.job, story: fmt.Sprintf("%s %s has the living pods %s (%s) and %s (%s)",
				made.Task, made.Member, other.name, other.uid, made.name, made.uid)}}
		}
	}
	return nil
}

// bounded is the promise that a pod is created only if a state of its job asks for it that the operator may have
// observed last.
type bounded struct{}

func (bounded) name() string { return "No pod is created that no observed state of its job asks for" }

func (bounded) end(*world) []broken { return nil }

func (bounded) see(w *world, entry *history.Entry) []broken {
	if !w.before.fresh {
		return nil
	}
	made := w.pods[entry.Change.UID]
	if made == nil || made.job == nil || made.caused != "" || len(made.job.desired) == 0 {
		return nil
	}
	if made.job.state.CoordinatorLed && made.Task != "coordinator" {
		return ofMember(w, made)
	}
	living, most := 0, 0
	for _, each := range made.job.living() {
		if each.Task == made.Task {
			living++
		}
	}
	for _, state := range made.job.desiredSince(w) {
		most = max(most, state.tasks[made.Task])
	}
	if living <= most {
		return nil
	}
	return []broken{{job: made.job, story: fmt.Sprintf("pod %s (%s) is created as the %d. living one of task %s, and no state of the job since %s asks for more than %d",
		made.name, made.uid, living, made.Task, w.since(made.job).Format("15:04:05.000"), most)}}
}

// ofMember checks a pod of a coordinator-led job. A member is one pod, or an aggregator and its DDP learners.
func ofMember(w *world, made *pod) []broken {
	slot, pods := made.Member, 1
	if made.Unit != "" {
		aggregator := w.pods[made.Unit]
		if aggregator == nil {
			return nil // it is gone, and its learners go with it
		}
		slot, pods = aggregator.Member, 1
		for _, each := range made.job.living() {
			if each.Unit == made.Unit {
				pods++
			}
		}
	}
	for _, state := range made.job.desiredSince(w) {
		if state.slots[slot] >= pods {
			return nil
		}
	}
	return []broken{{job: made.job, story: fmt.Sprintf("pod %s (%s) is created as the %d. pod of slot %s, and no Membership since %s asks for it",
		made.name, made.uid, pods, slot, w.since(made.job).Format("15:04:05.000"))}}
}

// desiredSince returns the states that an operator may still act on.
func (j *job) desiredSince(w *world) []snapshot {
	since := w.since(j)
	var states []snapshot
	for _, state := range j.desired {
		if state.until.IsZero() || !state.until.Before(since) {
			states = append(states, state)
		}
	}
	return states
}

// caused is the promise that a living pod is deleted, and a job restarted, only after something happened to the job.
type caused struct{}

func (caused) name() string { return "Nothing is restarted or removed without a cause" }

func (caused) end(*world) []broken { return nil }

func (caused) see(w *world, entry *history.Entry) []broken {
	if entry.Change == nil {
		return nil
	}
	if before := w.before.job; before != nil && !entry.Change.Gone {
		return restarted(w, before, w.jobs[entry.Change.UID])
	}
	before, now := w.before.pod, removed(w)
	if now == nil || before.caused != "" || now.stops() {
		return nil
	}
	since := before.created
	if early := w.known(); early.Before(since) {
		since = early
	}
	if now.causedSince(since.Add(-settling)) != "" {
		return nil
	}
	return []broken{{job: now, story: fmt.Sprintf("the living pod %s (%s) is deleted, and nothing happened to its job since it was created at %s",
		before.name, before.uid, before.created.Format("15:04:05.000"))}}
}

// removed returns the job of the living pod whose deletion has just begun; nil for any other change.
func removed(w *world) *job {
	before := w.before.pod
	if before == nil || before.job == nil || w.before.fresh || !before.lives() {
		return nil
	}
	if now := w.pods[before.uid]; now != nil && !now.ending {
		return nil
	}
	return before.job
}

func restarted(w *world, before *history.JobState, now *job) []broken {
	if now.state.Restarts <= before.Restarts && now.state.Reschedules <= before.Reschedules || before.Generation == 0 {
		return nil
	}
	// One fault after the other may keep the operators from what happened.
	since := w.known()
	if w.calm.Before(since) {
		since = w.calm
	}
	if now.causedSince(since.Add(-2*settling)) != "" || now.hasFailedPod(before.Restarts) {
		return nil
	}
	return []broken{{job: now, story: fmt.Sprintf("the job is restarted (%d restarts, %d reschedules), and nothing happened to it before",
		now.state.Restarts, now.state.Reschedules)}}
}
