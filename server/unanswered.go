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
	// unansweredTime is how long the sender of a request that was not answered
	// may take to send it again: longer than deployed clients try.
	unansweredTime = 5 * time.Minute
	// maxUnanswered bounds how many are remembered.
	maxUnanswered = 4096
)

// unanswered remembers the requests that were not answered though they may
// have been done. The same request of the same container is then that one sent
// again, as its client does when a connection is closed, and goes by its ID.
// So also a removal is done once, which nothing else tells from another one.
type unanswered struct{ ids *cache.LRUExpireCache }

func newUnanswered(clock cache.Clock) unanswered {
	return unanswered{cache.NewLRUExpireCacheWithClock(maxUnanswered, clock)}
}

// take returns the ID of a request, a new one unless it is one sent again.
// Nobody can tell that of one of an unknown sender.
func (u unanswered) take(request membership.Request) string {
	key := unansweredKey(request)
	if known, found := u.ids.Get(key); found && (request.Container != "" || request.IdempotencyKey != "") {
		if id, isID := known.(string); isID {
			u.ids.Remove(key)
			return id
		}
	}
	return string(uuid.NewUUID())
}

func (u unanswered) add(request membership.Request) {
	u.ids.Add(unansweredKey(request), request.ID, unansweredTime)
}

func unansweredKey(request membership.Request) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %s", request.Container, request.IdempotencyKey, request.Content))
}
