// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// Parallelism is how many objects of one job are written concurrently. It also bounds the remembered
// refusals of one job, verb and type. While that many writes wait, no other is tried, because it would
// usually be refused for the same reason.
const Parallelism = 16

// ErrWaits is the result of a write that was not tried, because the API server recently refused it or too
// many similar ones.
var ErrWaits = errors.New("waits, as the API server refuses it")

// write is a write that the API server refused.
type write struct {
	// object is the object's type, name and UID, content a digest of the write.
	object, content string
	tried, until    time.Time
	delay           time.Duration
}

// Writes are the refused writes of one job, verb and type, the latest last. At most Parallelism of them
// wait.
type Writes []write

// waitsUntil returns when a write of an object may be tried. A write with other content waits only
// briefly, because it may be accepted.
func (w *write) waitsUntil(content string) time.Time {
	if soon := w.tried.Add(state.FirstRefusalDelay); w.content != content && soon.Before(w.until) {
		return soon
	}
	return w.until
}

// waiting counts the writes that wait.
func (w Writes) waiting(now time.Time) int {
	waiting := 0
	for i := range w {
		if w[i].until.After(now) {
			waiting++
		}
	}
	return waiting
}

func (w Writes) of(object string) *write {
	if i := slices.IndexFunc(w, func(one write) bool { return one.object == object }); i >= 0 {
		return &w[i]
	}
	return nil
}

// Next returns when the next of the writes may be tried again; the zero time for never.
func (w Writes) Next(now time.Time) time.Time {
	var next time.Time
	for i := range w {
		if until := w[i].until; until.After(now) && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	return next
}

// Content identifies what is written of an object.
type Content func(client.Object) string

// Plan returns the objects to try, and how many of them the API server may refuse before the others wait.
// Objects without an earlier refusal come first, in order.
func (w Writes) Plan(objects []client.Object, content Content, now time.Time) (try []int, budget int) {
	budget = Parallelism - w.waiting(now)
	var next, again []int
	for i, object := range objects {
		switch known := w.of(keyOf(object)); {
		case known == nil && (len(w) == 0 || keyOf(object) > w[len(w)-1].object):
			next = append(next, i)
		case known == nil:
			try = append(try, i)
		case !known.waitsUntil(content(object)).After(now):
			again = append(again, i)
			if known.until.After(now) {
				// The write replaces its own entry.
				budget++
			}
		}
	}
	return slices.Concat(next, try, again), budget
}

// Refuse adds a refusal.
func (w Writes) Refuse(object client.Object, content string, now time.Time) Writes {
	key := keyOf(object)
	at := slices.IndexFunc(w, func(one write) bool { return one.object == key })
	if at < 0 && len(w) >= Parallelism {
		// The refusal replaces one that may be tried again, and inherits its delay.
		for i := range w {
			if !w[i].until.After(now) && (at < 0 || w[i].delay > w[at].delay) {
				at = i
			}
		}
	}
	var last time.Duration
	if at >= 0 {
		last = w[at].delay
		w = slices.Delete(w, at, at+1)
	}
	delay := state.NextRefusalDelay(last)
	return append(w, write{object: key, content: content, tried: now, until: now.Add(delay), delay: delay})
}

// Forget drops the refusal of an object.
func (w Writes) Forget(object client.Object) Writes {
	key := keyOf(object)
	return slices.DeleteFunc(w, func(one write) bool { return one.object == key })
}

// Expire drops refusals that have not recurred for a long time.
func (w Writes) Expire(now time.Time) Writes {
	return slices.DeleteFunc(w, func(one write) bool { return now.Sub(one.until) > state.LongestRefusalDelay })
}

func keyOf(object client.Object) string {
	return fmt.Sprintf("%T %s %s", object, object.GetName(), object.GetUID())
}

// Digest identifies the content of a write.
func Digest(content any) string {
	raw, err := json.Marshal(content)
	if err != nil {
		// Content that cannot be encoded cannot be written either.
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// NoContent is the content of writes without content, such as deletions.
func NoContent(client.Object) string { return "" }

// DigestPatch identifies the content of a patch, without the resource version.
func DigestPatch(original, desired client.Object) string {
	raw, err := client.MergeFrom(original).Data(desired)
	if err != nil {
		return err.Error()
	}
	return Digest(string(raw))
}

// Attempt writes the object of a number, and reports whether the API server refused it.
type Attempt func(number int) (isRefused bool)

// Try calls a function for each number in parallel, until the budget of refusals is used up.
func Try(budget int, numbers []int, do Attempt) {
	finished := make(chan bool)
	running, refused := 0, 0
	await := func() {
		if <-finished {
			refused++
		}
		running--
	}
	for _, number := range numbers {
		for running > 0 && (running+refused >= budget || running >= Parallelism) {
			await()
		}
		if refused >= budget {
			break
		}
		running++
		go func() { finished <- do(number) }()
	}
	for running > 0 {
		await()
	}
}
