// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Queue is a fair queue. It bounds concurrent requests in total and per flow, for example per job. It serves
// waiting flows round robin, so many requests of one flow do not delay other flows.
type Queue struct {
	total, perFlow int

	mutex   sync.Mutex
	running int
	flows   map[string]*flow
	// waiting are the flows with waiting requests, in round-robin order.
	waiting []string
}

// flow is the requests with one key.
type flow struct {
	running int
	// waiting are the channels of waiting requests, first in first out. A channel closes when its request may
	// run.
	waiting []chan struct{}
}

// NewQueue returns a queue for the given number of processors. One flow may use half of the total.
func NewQueue(processors int) *Queue {
	return &Queue{total: max(4, 2*processors), perFlow: max(2, processors), flows: map[string]*flow{}}
}

// PerFlow returns how many requests of one flow may run concurrently.
func (q *Queue) PerFlow() int {
	return q.perFlow
}

// Len returns how many requests run or wait.
func (q *Queue) Len() int {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	all := 0
	for _, each := range q.flows {
		all += each.running + len(each.waiting)
	}
	return all
}

// Acquire blocks until a request of a flow may run. It returns the function that releases the request.
func (q *Queue) Acquire(ctx context.Context, key string) (func(), error) {
	ready := q.enqueue(key)
	select {
	case <-ready:
		return func() { q.release(key) }, nil
	case <-ctx.Done():
	}
	if !q.dequeue(key, ready) {
		q.release(key)
	}
	return nil, fmt.Errorf("waiting for other reads: %w", ctx.Err())
}

// enqueue adds a request to its flow, and returns a channel that is closed when
// the request may run.
func (q *Queue) enqueue(key string) chan struct{} {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	own := q.flows[key]
	if own == nil {
		own = &flow{}
		q.flows[key] = own
	}
	ready := make(chan struct{})
	own.waiting = append(own.waiting, ready)
	if len(own.waiting) == 1 {
		q.waiting = append(q.waiting, key)
	}
	q.dispatch()
	return ready
}

// dequeue removes a waiting request, and reports whether it was still waiting.
func (q *Queue) dequeue(key string, ready chan struct{}) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	own := q.flows[key]
	at := slices.Index(own.waiting, ready)
	if at < 0 {
		return false
	}
	own.waiting = slices.Delete(own.waiting, at, at+1)
	if len(own.waiting) == 0 {
		q.waiting = slices.DeleteFunc(q.waiting, func(other string) bool { return other == key })
	}
	q.dropIdle(key)
	return true
}

// release ends a running request.
func (q *Queue) release(key string) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.running--
	q.flows[key].running--
	q.dropIdle(key)
	q.dispatch()
}

// dispatch starts waiting requests while there is capacity.
func (q *Queue) dispatch() {
	for q.running < q.total {
		at := slices.IndexFunc(q.waiting, func(key string) bool { return q.flows[key].running < q.perFlow })
		if at < 0 {
			return
		}
		key := q.waiting[at]
		q.waiting = slices.Delete(q.waiting, at, at+1)
		own := q.flows[key]
		close(own.waiting[0])
		own.waiting = own.waiting[1:]
		if len(own.waiting) > 0 {
			q.waiting = append(q.waiting, key)
		}
		own.running++
		q.running++
	}
}

// dropIdle removes a flow without requests.
func (q *Queue) dropIdle(key string) {
	if own := q.flows[key]; own.running == 0 && len(own.waiting) == 0 {
		delete(q.flows, key)
	}
}
