// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"opendilab.org/di-orchestrator/server/failure"
)

// Kind is a kind of writes of a job, which has limits of its own.
type Kind string

// The kinds of writes.
const (
	// OfRequests are requests for replicas, and acknowledgements of changes of the replicas.
	OfRequests Kind = ""
	// OfReports are reports of the whole job.
	OfReports Kind = "reports"
	// OfRates are reports of single replicas about themselves.
	OfRates Kind = "rates"
)

// Account returns the key of the limits for the writes of a job.
func (k Kind) Account(job types.UID) types.UID {
	if k == OfRequests {
		return job
	}
	return job + types.UID("/"+k)
}

// Budget bounds the bytes written per minute for one job. Each write costs the size of the whole object,
// because the API server stores the whole object and etcd keeps the previous revision until compaction.
type Budget struct {
	perMinute int
	// onWait is called for each write that has to wait.
	onWait func()
	clock  clock.PassiveClock

	mutex sync.Mutex
	each  *lru.Cache
}

// account is the balance of one job, negative after a write larger than it.
type account struct {
	left float64
	at   time.Time
}

// NewBudget returns a budget of perMinute bytes for each job. It calls onWait for each write that has to wait.
func NewBudget(perMinute int, clock clock.PassiveClock, onWait func()) *Budget {
	return &Budget{perMinute: perMinute, onWait: onWait, clock: clock, each: lru.New(maxKeys)}
}

// Wait blocks until the job may write.
func (b *Budget) Wait(ctx context.Context, job types.UID) error {
	for counted := false; ; counted = true {
		missing := b.add(job, 0)
		if missing <= 0 {
			return nil
		}
		if !counted {
			b.onWait()
		}
		timer := time.NewTimer(missing)
		select {
		case <-ctx.Done():
			timer.Stop()
			return failure.New(failure.Unavailable, "the job writes more than %d bytes a minute: send it again later", b.perMinute).Because(ctx.Err())
		case <-timer.C:
		}
	}
}

// Spend blocks until the job may write, and charges the job for size bytes.
func (b *Budget) Spend(ctx context.Context, job types.UID, size int) error {
	for {
		if err := b.Wait(ctx, job); err != nil {
			return err
		}
		// Another write of the job may have been charged since.
		if b.add(job, size) <= 0 {
			return nil
		}
	}
}

// Charge charges a job for a write that must not wait. The next write waits instead.
func (b *Budget) Charge(job types.UID, size int) {
	b.Refund(job, -size)
}

// Refund returns the charge of a write that did not happen.
func (b *Budget) Refund(job types.UID, size int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if known, isAccount := b.account(job); isAccount {
		known.left += float64(size)
	}
}

// add charges the job if it may write. Otherwise it returns how long the write must wait.
func (b *Budget) add(job types.UID, size int) time.Duration {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now, most := b.clock.Now(), float64(b.perMinute)
	known, isAccount := b.account(job)
	if !isAccount {
		known = &account{left: most, at: now}
		b.each.Add(job, known)
	}
	known.left = min(most, known.left+most*now.Sub(known.at).Minutes())
	known.at = now
	if known.left > 0 {
		known.left -= float64(size)
		return 0
	}
	return time.Duration(-known.left/most*float64(time.Minute)) + time.Millisecond
}

func (b *Budget) account(job types.UID) (*account, bool) {
	known, _ := b.each.Get(job)
	found, isAccount := known.(*account)
	return found, isAccount
}
