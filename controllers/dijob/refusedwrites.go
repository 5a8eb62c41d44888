// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// The verbs of writes that are no creations. What is refused of one, and of one type of
// object, is in the way of no other.
const (
	verbAdopt   = "adopt"
	verbRelease = "release"
	verbDelete  = "delete"
	verbForce   = "delete by force"
	verbUpdate  = "update"
)

// refusedAtOnce is how many refused writes of one job, verb and type are remembered. While
// so many wait, no other of them is tried, as it is mostly refused for the same reason.
const refusedAtOnce = parallelism

// errWaits is what a write ends in that is not tried, as the API server refused it,
// or so many of its like, a short while ago.
var errWaits = errors.New("waits, as the API server refuses it")

// waits reports whether the write was not tried.
func (e *effect) waits() bool { return errors.Is(e.err, errWaits) }

// refusedWrite is what is remembered of a write that the API server refused.
type refusedWrite struct {
	// object is the object's type, name and UID, content a digest of what was written.
	object, content string
	tried, until    time.Time
	delay           time.Duration
}

// refusedWrites are those of one job, verb and type, the latest last. At most refusedAtOnce of them wait.
type refusedWrites []refusedWrite

// waitsUntil is when a write may be tried, by what is remembered of its object. One
// of another content need not wait as long, as it may not be refused.
func (w *refusedWrite) waitsUntil(content string) time.Time {
	if soon := w.tried.Add(lifecycle.FirstRefusalDelay); w.content != content && soon.Before(w.until) {
		return soon
	}
	return w.until
}

// waiting counts those that wait.
func (w refusedWrites) waiting(now time.Time) int {
	waiting := 0
	for i := range w {
		if w[i].until.After(now) {
			waiting++
		}
	}
	return waiting
}

func (w refusedWrites) of(object string) *refusedWrite {
	if i := slices.IndexFunc(w, func(one refusedWrite) bool { return one.object == object }); i >= 0 {
		return &w[i]
	}
	return nil
}

// next is when the next of them may be tried again; the zero time for never.
func (w refusedWrites) next(now time.Time) time.Time {
	var next time.Time
	for i := range w {
		if until := w[i].until; until.After(now) && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	return next
}

// plan returns which of the objects are tried, and how many of them the API server may
// refuse before the rest waits. Those come first of which nothing is remembered, in turn.
func (w refusedWrites) plan(objects []client.Object, content func(client.Object) string, now time.Time) (try []int, room int) {
	room = refusedAtOnce - w.waiting(now)
	var next, again []int
	for i, object := range objects {
		switch known := w.of(writeKey(object)); {
		case known == nil && (len(w) == 0 || writeKey(object) > w[len(w)-1].object):
			next = append(next, i)
		case known == nil:
			try = append(try, i)
		case !known.waitsUntil(content(object)).After(now):
			again = append(again, i)
			if known.until.After(now) {
				// It takes its own place.
				room++
			}
		}
	}
	return slices.Concat(next, try, again), room
}

// refuse remembers one more refusal.
func (w refusedWrites) refuse(object, content string, now time.Time) refusedWrites {
	place := slices.IndexFunc(w, func(one refusedWrite) bool { return one.object == object })
	if place < 0 && len(w) >= refusedAtOnce {
		// Another that may be tried gives its place and its delay.
		for i := range w {
			if !w[i].until.After(now) && (place < 0 || w[i].delay > w[place].delay) {
				place = i
			}
		}
	}
	var last time.Duration
	if place >= 0 {
		last = w[place].delay
		w = slices.Delete(w, place, place+1)
	}
	delay := lifecycle.NextRefusalDelay(last)
	return append(w, refusedWrite{object: object, content: content, tried: now, until: now.Add(delay), delay: delay})
}

// forget drops what is remembered of an object.
func (w refusedWrites) forget(object string) refusedWrites {
	return slices.DeleteFunc(w, func(one refusedWrite) bool { return one.object == object })
}

// expire drops what nobody has tried for long.
func (w refusedWrites) expire(now time.Time) refusedWrites {
	return slices.DeleteFunc(w, func(one refusedWrite) bool { return now.Sub(one.until) > lifecycle.LongestRefusalDelay })
}

func writeKey(object client.Object) string {
	return fmt.Sprintf("%T %s %s", object, object.GetName(), object.GetUID())
}

// digest identifies what is written.
func digest(what any) string {
	raw, err := json.Marshal(what)
	if err != nil {
		// What cannot be encoded is not written either.
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// noContent is the content of writes that have none, such as deletions.
func noContent(client.Object) string { return "" }

// changesTo returns the content of a patch, less the version that it holds.
func changesTo(original func(client.Object) client.Object) func(client.Object) string {
	return func(wanted client.Object) string {
		raw, err := client.MergeFrom(original(wanted)).Data(wanted)
		if err != nil {
			return err.Error()
		}
		return digest(string(raw))
	}
}

// write writes objects of one type that exist, so many at a time, and returns what became of each,
// in their order. What the API server refuses is not tried again before its delay
// ends, whatever news come, and as soon as the job has changed.
func (r *Reconciler) write(
	ctx context.Context, observed *lifecycle.Observed, verb string, objects []client.Object,
	content func(client.Object) string, write func(context.Context, client.Object) effect,
) effects {
	if len(objects) == 0 {
		return nil
	}
	verb += fmt.Sprintf(" %T", objects[0])
	known := r.states.refusedWrites(observed.Job, verb)
	try, room := known.plan(objects, content, observed.Now)
	done := make(effects, len(objects))
	for i := range done {
		done[i] = effect{err: errWaits}
	}
	tryWhile(room, try, func(i int) (refused bool) {
		done[i] = write(ctx, objects[i])
		return done[i].isRefused()
	})
	for i := range done {
		switch one := &done[i]; {
		case one.isRefused():
			if one.reason == "" {
				one.object, one.reason = objects[i], v2alpha1.ReasonFailedUpdate
			}
			known = known.refuse(writeKey(objects[i]), content(objects[i]), observed.Now)
		case one.err == nil:
			known = known.forget(writeKey(objects[i]))
		}
	}
	r.states.recordRefusedWrites(observed.Job, verb, known.expire(observed.Now))
	return done
}

// isRefused reports whether the API server refused the write.
func (e *effect) isRefused() bool {
	return e.err != nil && !e.waits() && isRefusal(e.err)
}

// tryWhile does something for each number, in parallel, until so many were refused.
func tryWhile(room int, numbers []int, do func(int) (refused bool)) {
	ended := make(chan bool)
	running, refused := 0, 0
	await := func() {
		if <-ended {
			refused++
		}
		running--
	}
	for _, number := range numbers {
		for running > 0 && (running+refused >= room || running >= parallelism) {
			await()
		}
		if refused >= room {
			break
		}
		running++
		go func() { ended <- do(number) }()
	}
	for running > 0 {
		await()
	}
}

// refusedWrites returns what is remembered of a job's refused writes of a verb.
func (s *jobStates) refusedWrites(job *v2alpha1.DIJob, verb string) (known refusedWrites) {
	s.update(client.ObjectKeyFromObject(job), func(state *jobState) { known = slices.Clone(state.refusedWrites[verb]) })
	return known
}

func (s *jobStates) recordRefusedWrites(job *v2alpha1.DIJob, verb string, known refusedWrites) {
	s.update(client.ObjectKeyFromObject(job), func(state *jobState) {
		if len(known) == 0 {
			delete(state.refusedWrites, verb)
			return
		}
		if state.refusedWrites == nil {
			state.refusedWrites = map[string]refusedWrites{}
		}
		state.refusedWrites[verb] = known
	})
}

// nextWrite returns in how long the next refused write of a job may be tried again; 0 for never.
func (s *jobStates) nextWrite(job *v2alpha1.DIJob, now time.Time) time.Duration {
	var soonest time.Time
	s.update(client.ObjectKeyFromObject(job), func(state *jobState) {
		for _, known := range state.refusedWrites {
			if next := known.next(now); !next.IsZero() && (soonest.IsZero() || next.Before(soonest)) {
				soonest = next
			}
		}
	})
	if soonest.IsZero() {
		return 0
	}
	return soonest.Sub(now)
}
