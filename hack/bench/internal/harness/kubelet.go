// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

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

// Writers is how many pods are written concurrently.
const Writers = 32

// The status that a kubelet writes, as a strategic merge patch with a verb for the pod's UID.
const (
	Running = `{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[` +
		`{"type":"Initialized","status":"True"},{"type":"ContainersReady","status":"True"},{"type":"Ready","status":"True"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":true,"started":true,"image":"i","imageID":"i","state":{"running":{}}}]}}`
	Succeeded = `{"metadata":{"uid":%q},"status":{"phase":"Succeeded","conditions":[` + unready +
		`"state":{"running":null,"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`

	unready = `{"type":"ContainersReady","status":"False"},{"type":"Ready","status":"False"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":false,"image":"i","imageID":"i",`
)

// AtOnce deletes the pod of that UID without waiting for its containers.
func AtOnce(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &uid}}
}

// Kubelet plays the kubelets of all nodes: it watches pods and writes those that
// are due, at most Writers at a time.
type Kubelet struct {
	write  func(context.Context, types.NamespacedName) error
	queue  workqueue.TypedDelayingInterface[types.NamespacedName]
	cancel context.CancelFunc
	ended  sync.WaitGroup

	// mutex guards err.
	mutex sync.Mutex
	err   error
}

// NewKubelet returns a kubelet that writes pods with the function, which runs for
// several pods concurrently but never twice for the same one.
func NewKubelet(write func(context.Context, types.NamespacedName) error) *Kubelet {
	return &Kubelet{write: write, queue: workqueue.NewTypedDelayingQueue[types.NamespacedName]()}
}

// Start runs the informer, and returns when the handlers have seen all pods. The
// caller stops the kubelet, unless Start fails.
func (f *Kubelet) Start(ctx context.Context, informer cache.SharedIndexInformer, handlers cache.ResourceEventHandler) error {
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

// Stop returns when the informer and all writers have ended.
func (f *Kubelet) Stop() {
	f.cancel()
	f.queue.ShutDown()
	f.ended.Wait()
}

// Due schedules a write of a pod.
func (f *Kubelet) Due(pod types.NamespacedName, after time.Duration) {
	f.queue.AddAfter(pod, after)
}

// Err returns the first error of a write.
func (f *Kubelet) Err() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.err
}

func (f *Kubelet) writeAll(ctx context.Context) {
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

func (f *Kubelet) fail(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.err == nil {
		f.err = err
	}
}
