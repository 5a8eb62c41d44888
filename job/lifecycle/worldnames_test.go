// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/podstate"
)

// holder is a finalizer of another program.
const holder = "example.com/holder"

// befallName makes a user delete a job and create another one of its name, or the garbage collector delete some of what a
// deleted one had.
func (f *fleet) befallName(random *rand.Rand) {
	number := random.IntN(len(f.worlds))
	switch w := f.worlds[number]; {
	case w == nil:
	case f.gone[number] != nil:
		f.collect(number, random)
	case !w.job.DeletionTimestamp.IsZero():
		f.recreate(number, random)
	case random.IntN(3) == 0:
		w.tell("job %d is deleted, and a finalizer holds it", number)
		w.change(func(job *v2alpha1.DIJob) {
			now := metav1.NewTime(w.by(w.clocks.api))
			job.Finalizers, job.DeletionTimestamp = []string{holder}, &now
		})
	default:
		f.recreate(number, random)
	}
}

// recreate replaces a job by another one of its name. What the first one had stays for the garbage collector.
func (f *fleet) recreate(number int, random *rand.Rand) {
	before := f.worlds[number]
	after := f.newJob(number, random)
	f.tell("job %d is gone, and created again", number)
	after.uids = before.uids + 10_000
	after.job.UID, after.job.ResourceVersion = types.UID(fmt.Sprintf("job-%d", after.uids)), strconv.Itoa(after.uids)
	after.job.CreationTimestamp = metav1.NewTime(after.by(after.clocks.api).Truncate(time.Second))
	before.rival, after.rival = after, before
	// No write of the job that is gone succeeds.
	before.isDeleted, before.job.ResourceVersion = true, "gone"
	before.group = nil
	f.worlds[number], f.gone[number] = after, before
	for _, p := range f.processes {
		p.pasts[number], p.unaware[number] = p.views[number], true
		p.views[number] = f.viewOf(p, number)
	}
}

// viewOf returns what a process that lists the objects of a job sees.
func (f *fleet) viewOf(p *process, number int) *operator {
	w, view := f.worlds[number], &operator{ahead: p.ahead}
	if p.Count > 1 {
		view.shard = shards.Label(shardOf(w.job, p.Count), p.Count)
	}
	w.operator = view
	w.lag()
	return view
}

// seeGone lets a process that starts see what deleted jobs have left.
func (f *fleet) seeGone(p *process) {
	for number, w := range f.gone {
		if w != nil {
			p.pasts[number] = &operator{ahead: p.ahead}
			w.operator = p.pasts[number]
			w.lag()
		}
	}
}

// learn delivers to a process some of the jobs that were created.
func (f *fleet) learn(p *process, may func() bool) {
	for _, number := range slices.Sorted(maps.Keys(p.unaware)) {
		if may() {
			delete(p.unaware, number)
			p.views[number].cache.job = f.worlds[number].job.DeepCopy()
		}
	}
}

// seen returns the job of a number that a process sees, and what it knows of it; nil for none.
func (f *fleet) seen(p *process, number int) (*world, *operator) {
	if p.unaware[number] {
		return f.gone[number], p.pasts[number]
	}
	return f.worlds[number], p.views[number]
}

// face makes a process the operator of the job of a number that it sees.
func (f *fleet) face(p *process, number int) *world {
	w, view := f.seen(p, number)
	w.operator, w.standby, w.rivalKnown = view, view, nil
	switch {
	case w.rival == nil:
	case p.unaware[number]:
		w.rivalKnown = p.views[number].cache
	default:
		w.rivalKnown = p.pasts[number].cache
	}
	return w
}

// onAll calls a function for each job, also for deleted ones, as an operator sees it.
func (f *fleet) onAll(p *process, do func(*world)) {
	f.onEach(p, do)
	for number, w := range f.gone {
		if w != nil {
			w.operator, w.standby = p.pasts[number], p.pasts[number]
			do(w)
		}
	}
}

// collect makes the garbage collector delete some of what a deleted job had.
func (f *fleet) collect(number int, random *rand.Rand) {
	w := f.gone[number]
	f.tell("the garbage collector deletes some of what job %d had", number)
	for _, name := range w.podNames() {
		switch {
		case random.IntN(2) == 0:
		case podstate.Terminating(w.pods[name]):
			delete(w.pods, name)
		default:
			w.terminate(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		if random.IntN(2) == 0 {
			delete(w.services, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.configMaps)) {
		if random.IntN(2) == 0 {
			w.history.taken[name] = true
			delete(w.configMaps, name)
		}
	}
	if random.IntN(2) == 0 {
		w.membership = nil
	}
	f.forget(number)
}

// forget ends what is left of a deleted job once nothing is, and all operators see the next one.
func (f *fleet) forget(number int) {
	w := f.gone[number]
	isSeen := slices.ContainsFunc(f.processes, func(p *process) bool { return p.unaware[number] })
	if isSeen || len(w.pods)+len(w.services)+len(w.configMaps) > 0 || w.membership != nil {
		return
	}
	w.rival.rival = nil
	f.gone[number] = nil
	for _, p := range f.processes {
		p.pasts[number] = nil
	}
}

// clearNames makes no job be deleted any more, and nothing of deleted ones be left: the garbage collector deletes that, or the
// operators do if it never has.
func (f *fleet) clearNames(random *rand.Rand) {
	for number, w := range f.worlds {
		if w == nil {
			continue
		}
		if !w.job.DeletionTimestamp.IsZero() && f.gone[number] == nil {
			f.recreate(number, random)
		}
		for _, p := range f.processes {
			f.learn(p, func() bool { return true })
		}
		isDead := random.IntN(2) == 0
		for round := 0; f.gone[number] != nil; round++ {
			switch at := slices.IndexFunc(f.processes, func(p *process) bool { return p.runs(w) }); {
			case round == 50:
				f.t.Fatalf("job %d: left of the deleted job of the name are %s, %d services, %d ConfigMaps, a Membership: %v", number,
					f.gone[number].outline(), len(f.gone[number].services), len(f.gone[number].configMaps), f.gone[number].membership != nil)
			case isDead && at >= 0:
				f.now = f.now.Add(10 * time.Second)
				f.onAll(f.processes[at], func(w *world) { w.resync() })
				f.step(f.processes[at], number, nil)
				f.gone[number].reap()
				f.forget(number)
			default:
				f.collect(number, random)
			}
		}
	}
}

// isTaken records that another job's object has a name that the operator wants to give.
func (w *world) isTaken(isRivals bool) bool {
	w.failed = w.failed || isRivals
	return isRivals
}

// seeRival adds to an observation what the operator knows of another job of the name.
func (w *world) seeRival(observed *Observed) {
	if w.rival == nil || w.rivalKnown == nil {
		return
	}
	observed.TakenPods, observed.TakenServices = map[string]state.Taken{}, map[string]state.Taken{}
	for _, name := range slices.Sorted(maps.Keys(w.rivalKnown.pods)) {
		pod := w.rivalKnown.pods[name].DeepCopy()
		podstate.Trim(pod)
		observed.TakenPods[name] = leftBy(pod)
		observed.LeftBehind = append(observed.LeftBehind, pod)
	}
	for _, name := range slices.Sorted(maps.Keys(w.rivalKnown.services)) {
		service := w.rivalKnown.services[name].DeepCopy()
		observed.TakenServices[name] = leftBy(service)
		observed.LeftBehind = append(observed.LeftBehind, service)
	}
	for _, name := range slices.Sorted(maps.Keys(w.rivalKnown.configMaps)) {
		observed.LeftBehind = append(observed.LeftBehind, w.rivalKnown.configMaps[name].DeepCopy())
	}
	if observed.Membership == nil {
		observed.Membership = w.rivalKnown.membership.DeepCopy()
	}
}

func leftBy(object metav1.Object) state.Taken {
	if leaving := object.GetDeletionTimestamp(); leaving != nil {
		return state.Taken{Leaving: leaving.Time}
	}
	return state.Taken{}
}

// storedMembership returns the Membership that has the name of the job: its own, or that of another job of the name.
func (w *world) storedMembership() *v2alpha1.Membership {
	if w.membership == nil && w.rival != nil {
		return w.rival.membership
	}
	return w.membership
}

// deleteMembership deletes a Membership by its UID. For that of another job it first reads live which job has the name.
func (w *world) deleteMembership(observed *v2alpha1.Membership, job types.UID) {
	if observed.Spec.JobUID != job && w.isDeleted {
		return
	}
	for _, of := range []*world{w, w.rival} {
		if of != nil && of.membership != nil && of.membership.UID == observed.UID {
			of.membership = nil
		}
	}
}

// deleteLeftBehind deletes what a deleted job of the name left behind, once a live read shows which job has the name.
func (w *world) deleteLeftBehind(observed *Observed) {
	w.t.Helper()
	due := upkeep.FindLeftBehind(observed).Due
	if len(due) == 0 || w.isDeleted {
		return
	}
	for _, object := range due {
		w.tell("  %s %s is left behind, and deleted", object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
		w.write(func() { w.rival.deleteByUID(object) })
	}
}

// deleteByUID deletes an object that is still the observed one.
func (w *world) deleteByUID(object state.Object) {
	switch observed := object.(type) {
	case *corev1.Pod:
		if stored := w.pods[observed.Name]; stored != nil && stored.UID == observed.UID && !podstate.Terminating(stored) {
			w.terminate(observed.Name)
		}
	case *corev1.Service:
		if stored := w.services[observed.Name]; stored != nil && stored.UID == observed.UID {
			delete(w.services, observed.Name)
		}
	case *corev1.ConfigMap:
		if stored := w.configMaps[observed.Name]; stored != nil && stored.UID == observed.UID {
			w.history.taken[observed.Name] = true
			delete(w.configMaps, observed.Name)
		}
	}
}
