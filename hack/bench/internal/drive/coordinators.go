// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"opendilab.org/di-orchestrator/test/testkit/coordinator"
)

const (
	// askAgain is when a coordinator asks again after a failure, such as before di-server has seen its pod.
	askAgain = 200 * time.Millisecond
	// concurrentAskers is the number of coordinators that ask at a time.
	concurrentAskers = 16
	// question asks for all replicas of a job.
	question = `"collectors":{"replicas":3},"learners":{"replicas":1}`
)

// Coordinators are those of coordinator-led jobs. Each asks di-server for its replicas once it runs.
type Coordinators struct {
	server string
	queue  workqueue.TypedDelayingInterface[coordinator.Caller]
	ended  sync.WaitGroup

	mutex sync.Mutex
	// The mutex guards all fields below: the coordinators that have their replicas, the times of the
	// answers since they were taken, and the last failure.
	callers []coordinator.Caller
	times   []time.Duration
	failure error
}

// NewCoordinators returns coordinators that ask nothing yet.
func NewCoordinators() *Coordinators {
	return &Coordinators{queue: workqueue.NewTypedDelayingQueue[coordinator.Caller]()}
}

// Start lets the coordinators ask a di-server. The caller stops them.
func (c *Coordinators) Start(ctx context.Context, server string) {
	c.server = server
	for range concurrentAskers {
		c.ended.Go(func() { c.run(ctx) })
	}
}

// Stop makes no further calls.
func (c *Coordinators) Stop() {
	c.queue.ShutDown()
	c.ended.Wait()
}

// Add makes a coordinator ask.
func (c *Coordinators) Add(pod *corev1.Pod) {
	c.queue.Add(coordinator.Caller{From: pod.Status.PodIP, Namespace: pod.Namespace, Pod: pod.Name})
}

func (c *Coordinators) run(ctx context.Context) {
	for {
		caller, ended := c.queue.Get()
		if ended {
			return
		}
		if !c.ask(ctx, caller) && ctx.Err() == nil {
			c.queue.AddAfter(caller, askAgain)
		}
		c.queue.Done(caller)
	}
}

func (c *Coordinators) ask(ctx context.Context, caller coordinator.Caller) bool {
	began := time.Now()
	line := coordinator.NewLine(c.server, &caller, false)
	_, err := line.Write(ctx, "POST", "/replicas", question)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err != nil {
		c.failure = err
		return false
	}
	c.times = append(c.times, time.Since(began))
	c.callers = append(c.callers, caller)
	return true
}

// Take returns the times of the answers since the last call, and the last failure.
func (c *Coordinators) Take() ([]time.Duration, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	times := c.times
	c.times = nil
	return times, c.failure
}

// Served returns the coordinators of a namespace that have their replicas.
func (c *Coordinators) Served(namespace string) []coordinator.Caller {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var served []coordinator.Caller
	for _, caller := range c.callers {
		if caller.Namespace == namespace {
			served = append(served, caller)
		}
	}
	return served
}

// Forget forgets the coordinators of a namespace.
func (c *Coordinators) Forget(namespace string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.callers = slices.DeleteFunc(c.callers, func(caller coordinator.Caller) bool { return caller.Namespace == namespace })
}
