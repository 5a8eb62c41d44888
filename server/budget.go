// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// budget bounds the bytes that are written for one job. The API server stores an
// object whole and keeps what it was until etcd is compacted, so that the size of
// the object counts, and not that of the change.
type budget struct {
	perMinute int
	// waits is told of each write that has to wait.
	waits func()

	mutex sync.Mutex
	each  *lru.Cache
}

// account is what one job has left; less than nothing after a write that is larger.
type account struct {
	left float64
	at   time.Time
}

func newBudget(perMinute int, waits func()) *budget {
	return &budget{perMinute: perMinute, waits: waits, each: lru.New(maxLimiters)}
}

// wait returns when a job may write, or that it may not within the request's time.
func (b *budget) wait(ctx context.Context, job types.UID) error {
	for told := false; ; {
		missing := b.add(job, 0)
		if missing <= 0 {
			return nil
		}
		if !told {
			b.waits()
			told = true
		}
		timer := time.NewTimer(missing)
		select {
		case <-ctx.Done():
			timer.Stop()
			return failure(KindUnavailable, "the job writes more than %d bytes a minute: send it again later", b.perMinute).because(ctx.Err())
		case <-timer.C:
		}
	}
}

// spend waits until a job may write, and charges it for a write of so many bytes,
// unless another write came first.
func (b *budget) spend(ctx context.Context, job types.UID, size int) error {
	for {
		if err := b.wait(ctx, job); err != nil {
			return err
		}
		if b.add(job, size) <= 0 {
			return nil
		}
	}
}

// owe charges a job for a write that ends what it was charged for, and so does not
// wait: what is written next does.
func (b *budget) owe(job types.UID, size int) {
	b.refund(job, -size)
}

// refund takes back the charge of a write that was not done.
func (b *budget) refund(job types.UID, size int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if known, isAccount := b.account(job); isAccount {
		known.left += float64(size)
	}
}

// add charges a job that may write, and returns how long one waits that may not.
func (b *budget) add(job types.UID, size int) time.Duration {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now, most := time.Now(), float64(b.perMinute)
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

func (b *budget) account(job types.UID) (*account, bool) {
	known, _ := b.each.Get(job)
	found, isAccount := known.(*account)
	return found, isAccount
}

// charged does a write of an object within its job's budget.
func (b *budget) charged(ctx context.Context, job types.UID, object client.Object, more int, write func() error) error {
	content, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", client.ObjectKeyFromObject(object), err)
	}
	size := len(content) + more
	if err := b.spend(ctx, job, size); err != nil {
		return err
	}
	err = write()
	if err != nil && !isUncertain(err) {
		b.refund(job, size)
	}
	return err
}
