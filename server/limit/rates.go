// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"opendilab.org/di-orchestrator/server/failure"
)

// Rates limits a rate per key, such as a job or an address.
type Rates struct {
	// what names the limited operation in plural, for messages.
	what      string
	perSecond float64
	burst     int

	mutex sync.Mutex
	each  *lru.Cache
}

// NewRates returns a rate limit for each key. Messages name the limited operation by what, such as "writes for
// one job".
func NewRates(what string, perSecond float64, burst int) *Rates {
	return &Rates{what: what, perSecond: perSecond, burst: burst, each: lru.New(maxKeys)}
}

// Wait blocks until the rate of a key allows one more operation. It fails only when the context has ended,
// because a caller that is refused at once soon returns.
func (r *Rates) Wait(ctx context.Context, key string) error {
	err := r.limiter(key).Wait(ctx)
	if err == nil {
		return nil
	}
	<-ctx.Done()
	return failure.TimedOut(fmt.Errorf("more than %v %s a second: %w", r.perSecond, r.what, err))
}

func (r *Rates) limiter(key string) *rate.Limiter {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known, found := r.each.Get(key); found {
		if limiter, isLimiter := known.(*rate.Limiter); isLimiter {
			return limiter
		}
	}
	limiter := rate.NewLimiter(rate.Limit(r.perSecond), r.burst)
	r.each.Add(key, limiter)
	return limiter
}
