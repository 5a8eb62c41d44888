// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/uuid"

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
