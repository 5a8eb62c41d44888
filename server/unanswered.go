// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
)

const (
	// unansweredTime is how long the sender of such a request may take to send it
	// again, not counting time in which nobody can be answered.
	unansweredTime = 5 * time.Minute
	// unansweredMost is how long one is remembered at most.
	unansweredMost = time.Hour
	// maxUnanswered bounds how many are remembered.
	maxUnanswered = 4096
	// answerTime is how long a removal may be unanswered until the same one is taken
	// for a repeat. It is as long as deployed clients pause, and longer than an answer
	// takes: of removals that come at once each is meant.
	answerTime = time.Second
)

// unanswered remembers the requests whose senders were told to try again though
// the requests may have been done. The same request of the same container is then
// that one sent again and goes by its ID.
type unanswered struct {
	requests *cache.LRUExpireCache
	clock    cache.Clock
	watches  *Watches
}

// toldLater is a request whose sender was told to try again.
type toldLater struct {
	id string
	at time.Time
}

func newUnanswered(clock cache.Clock, watches *Watches) unanswered {
	return unanswered{cache.NewLRUExpireCacheWithClock(maxUnanswered, clock), clock, watches}
}

// take returns the ID of a request, a new one unless it is one sent again, and
// whether it is. Nobody can tell that of one of an unknown sender.
func (u unanswered) take(request membership.Request) (string, bool) {
	key := unansweredKey(request)
	known, _ := u.requests.Get(key)
	told, found := known.(toldLater)
	if !found || request.Container == "" && request.IdempotencyKey == "" ||
		u.watches.undisturbed(u.clock.Now()).Sub(told.at) > unansweredTime {
		return string(uuid.NewUUID()), false
	}
	u.requests.Remove(key)
	return told.id, true
}

func (u unanswered) add(request membership.Request) {
	u.requests.Add(unansweredKey(request), toldLater{request.ID, u.clock.Now()}, unansweredMost)
}

func unansweredKey(request membership.Request) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %s", request.Container, request.IdempotencyKey, request.Content))
}

// awaitsAnswer reports whether a removal that a request meets unanswered may still be
// answered by who did it, so that the request is another one.
func (w *write) awaitsAnswer(record *v2alpha1.RecordedRequest) bool {
	if record.ID == w.request.ID || !membership.IsUnanswered(record) {
		return false
	}
	if w.met != record.ID {
		w.met, w.metAt = record.ID, time.Now()
	}
	return time.Since(w.metAt) < answerTime
}

// confirm marks a removal as answered before it is answered, as the same is another
// one afterwards. Where it fails, the sender is told to try again, and every server
// knows the request when it does.
func (w *write) confirm(ctx context.Context) error {
	list := w.list
	return persist(ctx, func(ctx context.Context) error {
		current := list
		list = nil
		if current == nil {
			current = &v2alpha1.Membership{}
			if err := w.store.live(ctx, client.ObjectKeyFromObject(w.list), current); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		if !membership.MarkAnswered(&current.Spec, w.done) {
			return nil
		}
		w.uncertain = true
		return w.mark(ctx, current)
	})
}

// mark writes a list in which a removal is marked as answered. One that is gone needs
// no mark.
func (w *write) mark(ctx context.Context, list *v2alpha1.Membership) error {
	content, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", client.ObjectKeyFromObject(list), err)
	}
	w.budget.owe(list.Spec.JobUID, len(content))
	err = w.store.update(ctx, list)
	if err == nil {
		w.list = list
	}
	return client.IgnoreNotFound(err)
}
