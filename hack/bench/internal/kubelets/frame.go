// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelets is what the kubelets that benchmarks play have in common: they
// see pods, and write those that are due, so many at a time.
package kubelets

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/names"
)

// Writers is how many pods are written at a time.
const Writers = 32

// What a kubelet writes of a pod, as a strategic merge patch, to which the pod's UID is added.
const (
	Running = `{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[` +
		`{"type":"Initialized","status":"True"},{"type":"ContainersReady","status":"True"},{"type":"Ready","status":"True"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":true,"started":true,"image":"i","imageID":"i","state":{"running":{}}}]}}`
	Succeeded = `{"metadata":{"uid":%q},"status":{"phase":"Succeeded","conditions":[` + unready +
		`"state":{"running":null,"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`
	Failed = `{"metadata":{"uid":%q},"status":{"phase":"Failed","conditions":[` + unready +
		`"state":{"running":null,"terminated":{"exitCode":1,"reason":"Error"}}}]}}`

	unready = `{"type":"ContainersReady","status":"False"},{"type":"Ready","status":"False"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":false,"image":"i","imageID":"i",`
)

// AtOnce deletes the pod of that UID without waiting for its containers.
func AtOnce(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &uid}}
}

// Frame has pods written that are due.
type Frame struct {
	write  func(context.Context, types.NamespacedName) error
	queue  workqueue.TypedDelayingInterface[types.NamespacedName]
	cancel context.CancelFunc
	ended  sync.WaitGroup

	// mutex guards err.
	mutex sync.Mutex
	err   error
}

// New returns a frame that writes pods by a function, which is called for several
// at a time, and for each of them by one only.
func New(write func(context.Context, types.NamespacedName) error) *Frame {
	return &Frame{write: write, queue: workqueue.NewTypedDelayingQueue[types.NamespacedName]()}
}

// Start has handlers see the pods of an informer, and returns when they have seen
// all there are. The caller stops it, unless it fails.
func (f *Frame) Start(ctx context.Context, informer cache.SharedIndexInformer, handlers cache.ResourceEventHandler) error {
	running, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	seen, err := informer.AddEventHandler(handlers)
	if err != nil {
		f.Stop()
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	f.ended.Go(func() { informer.RunWithContext(running) })
	for range Writers {
		f.ended.Go(func() { f.writeAll(running) })
	}
	if !cache.WaitForCacheSync(running.Done(), seen.HasSynced) {
		f.Stop()
		return fmt.Errorf("starting the kubelet: %w", context.Cause(ctx))
	}
	return nil
}

// Stop returns when nothing is seen or written any more.
func (f *Frame) Stop() {
	f.cancel()
	f.queue.ShutDown()
	f.ended.Wait()
}

// Due has a pod written after a time.
func (f *Frame) Due(pod types.NamespacedName, after time.Duration) {
	f.queue.AddAfter(pod, after)
}

// Err returns the first thing that went wrong.
func (f *Frame) Err() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.err
}

func (f *Frame) writeAll(ctx context.Context) {
	for {
		pod, ended := f.queue.Get()
		if ended {
			return
		}
		err := f.write(ctx, pod)
		f.queue.Done(pod)
		if err != nil && ctx.Err() == nil {
			f.fail(err)
		}
	}
}

func (f *Frame) fail(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.err == nil {
		f.err = err
	}
}
