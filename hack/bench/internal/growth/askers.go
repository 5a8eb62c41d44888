// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
)

const (
	// askAgain is when a coordinator asks again after a failure, such as before di-server has seen its pod.
	askAgain = 200 * time.Millisecond
	// concurrentAskers is the number of coordinators that ask at a time.
	concurrentAskers = 16
	// question asks for all replicas of a job.
	question = `"collectors":{"replicas":3},"learners":{"replicas":1}`
)

// askers are the coordinators. Each asks di-server for its replicas once it runs.
type askers struct {
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

func startAskers(ctx context.Context, server string) *askers {
	a := &askers{server: server, queue: workqueue.NewTypedDelayingQueue[coordinator.Caller]()}
	for range concurrentAskers {
		a.ended.Go(func() { a.run(ctx) })
	}
	return a
}

func (a *askers) stop() {
	a.queue.ShutDown()
	a.ended.Wait()
}

// add makes a coordinator ask.
func (a *askers) add(pod *corev1.Pod) {
	a.queue.Add(coordinator.Caller{From: pod.Status.PodIP, Namespace: pod.Namespace, Pod: pod.Name})
}

func (a *askers) run(ctx context.Context) {
	for {
		caller, ended := a.queue.Get()
		if ended {
			return
		}
		if !a.ask(ctx, caller) && ctx.Err() == nil {
			a.queue.AddAfter(caller, askAgain)
		}
		a.queue.Done(caller)
	}
}

func (a *askers) ask(ctx context.Context, caller coordinator.Caller) bool {
	began := time.Now()
	line := coordinator.NewLine(a.server, &caller, false)
	_, err := line.Write(ctx, "POST", "/replicas", question)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if err != nil {
		a.failure = err
		return false
	}
	a.times = append(a.times, time.Since(began))
	a.callers = append(a.callers, caller)
	return true
}

// take returns the times of the answers since the last call, and the last failure.
func (a *askers) take() ([]time.Duration, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	times := a.times
	a.times = nil
	return times, a.failure
}

// served returns the coordinators of a namespace that have their replicas.
func (a *askers) served(namespace string) []coordinator.Caller {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var served []coordinator.Caller
	for _, caller := range a.callers {
		if caller.Namespace == namespace {
			served = append(served, caller)
		}
	}
	return served
}

// forget forgets the coordinators of a namespace.
func (a *askers) forget(namespace string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.callers = slices.DeleteFunc(a.callers, func(caller coordinator.Caller) bool { return caller.Namespace == namespace })
}
