// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/uuid"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/failure"
)

const (
	// retryWindow is how long the sender may take to retry a request with an unknown outcome. Outages do
	// not count.
	retryWindow = 5 * time.Minute
	// retryRetention bounds how long the server remembers such a request.
	retryRetention = time.Hour
	// maxRetries bounds the requests that the server remembers.
	maxRetries = 4096
)

// retries remembers requests with an unknown outcome: the sender must retry although the write may have
// succeeded. An equal request of the same container is then the retry, and gets the ID of the first.
type retries struct {
	requests *cache.LRUExpireCache
	clock    cache.Clock
	watches  *Watches
}

// unknownOutcome is a request whose sender must retry.
type unknownOutcome struct {
	id string
	at time.Time
}

func newRetries(clock cache.Clock, watches *Watches) retries {
	return retries{cache.NewLRUExpireCacheWithClock(maxRetries, clock), clock, watches}
}

// Claim gives a request its ID. It reports whether the request is the retry of a request passed to
// Remember. A request of an unknown sender is never a retry.
func (s *Store) Claim(request membership.Request) (membership.Request, bool) {
	key := retryKey(request)
	known, _ := s.retries.requests.Get(key)
	first, found := known.(unknownOutcome)
	if !found || request.Container == "" && request.IdempotencyKey == "" ||
		s.retries.watches.undisturbed(s.retries.clock.Now()).Sub(first.at) > retryWindow {
		request.ID = string(uuid.NewUUID())
		return request, false
	}
	s.retries.requests.Remove(key)
	request.ID = first.id
	return request, true
}

// Remember records a request whose outcome is unknown.
func (s *Store) Remember(request membership.Request) {
	s.retries.requests.Add(retryKey(request), unknownOutcome{request.ID, s.retries.clock.Now()}, retryRetention)
}

func retryKey(request membership.Request) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %s", request.Container, request.IdempotencyKey, request.Content))
}

// Recorded returns the record of this request, or of the request that it repeats; nil if there is none.
// Outages do not count towards the age of a record, because clients could only retry.
func (s *Store) Recorded(records []v2alpha1.RecordedRequest, request membership.Request, arrived time.Time) (*v2alpha1.RecordedRequest, error) {
	for _, at := range []time.Time{arrived, s.retries.watches.undisturbed(arrived)} {
		record, err := membership.FindRecord(records, request, s.ages.at(at))
		if err != nil {
			return nil, failure.New(failure.Conflict, "%v", err)
		}
		if record != nil {
			return record, nil
		}
	}
	return nil, nil
}
