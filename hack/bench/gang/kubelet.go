// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/names"
)

// kubeletWriters is how many pods the kubelet writes at a time.
const kubeletWriters = 32

// kubelet stands for the kubelets of all nodes. It makes each pod run that is bound
// to a node, has it succeed after a time of work, and ends those that are deleted.
// Each look at a pod goes into the ledger of its namespace.
type kubelet struct {
	api   kubernetes.Interface
	work  time.Duration
	queue workqueue.TypedDelayingInterface[types.NamespacedName]
	pods  cache.Indexer
	// ledgers by namespace.
	ledgers map[string]*ledger

	cancel context.CancelFunc
	ended  sync.WaitGroup
	// mutex guards what follows.
	mutex sync.Mutex
	// ends are when pods that run have done their work.
	ends map[types.UID]time.Time
	err  error
}

// startKubelet starts it and returns when it sees all pods.
func startKubelet(ctx context.Context, config *rest.Config, work time.Duration, ledgers map[string]*ledger) (*kubelet, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("starting the kubelet: %w", err)
	}
	running, cancel := context.WithCancel(ctx)
	k := &kubelet{
		api: api, work: work, ledgers: ledgers, cancel: cancel, ends: map[types.UID]time.Time{},
		queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
	}
	pods := cache.NewListWatchFromClient(api.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{})
	k.pods = informer.GetIndexer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    k.see,
		UpdateFunc: func(_, after any) { k.see(after) },
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("starting the kubelet: %w", err)
	}
	k.ended.Go(func() { informer.RunWithContext(running) })
	for range kubeletWriters {
		k.ended.Go(func() { k.writeAll(running) })
	}
	if !cache.WaitForCacheSync(running.Done(), informer.HasSynced) {
		k.stop()
		return nil, fmt.Errorf("starting the kubelet: %w", context.Cause(ctx))
	}
	return k, nil
}

func (k *kubelet) stop() {
	k.cancel()
	k.queue.ShutDown()
	k.ended.Wait()
}

// see notes a pod, and has it written when it is time to.
func (k *kubelet) see(object any) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod || pod.Spec.NodeName == "" {
		return
	}
	phase := pod.Status.Phase
	if of := k.ledgers[pod.Namespace]; of != nil {
		of.see(&sight{
			job: pod.Labels[names.LabelJob], uid: pod.UID, bound: true, at: time.Now(),
			runs: phase == corev1.PodRunning, ended: phase == corev1.PodSucceeded || phase == corev1.PodFailed,
		})
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	switch {
	case pod.DeletionTimestamp != nil || phase == corev1.PodPending:
		k.queue.Add(key)
	case phase == corev1.PodRunning:
		k.queue.AddAfter(key, k.workLeft(pod))
	}
}

// workLeft is how long a pod that runs has yet to.
func (k *kubelet) workLeft(pod *corev1.Pod) time.Duration {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.ends[pod.UID].IsZero() {
		k.ends[pod.UID] = time.Now().Add(k.work)
	}
	return time.Until(k.ends[pod.UID])
}

func (k *kubelet) writeAll(ctx context.Context) {
	for {
		key, over := k.queue.Get()
		if over {
			return
		}
		err := k.write(ctx, key)
		k.queue.Done(key)
		if err != nil && ctx.Err() == nil {
			k.mutex.Lock()
			k.err = errors.Join(k.err, err)
			k.mutex.Unlock()
		}
	}
}

// running and succeeded are what a kubelet writes of a pod, whose UID is added.
const (
	running = `{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[` +
		`{"type":"Initialized","status":"True"},{"type":"ContainersReady","status":"True"},{"type":"Ready","status":"True"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":true,"started":true,"image":"i","imageID":"i","state":{"running":{}}}]}}`
	succeeded = `{"metadata":{"uid":%q},"status":{"phase":"Succeeded","conditions":[` +
		`{"type":"ContainersReady","status":"False"},{"type":"Ready","status":"False"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":false,"image":"i","imageID":"i",` +
		`"state":{"running":null,"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`
)

// write brings a pod to what is next. That it is gone by now is as good.
func (k *kubelet) write(ctx context.Context, key types.NamespacedName) error {
	object, exists, err := k.pods.GetByKey(key.String())
	pod, isPod := object.(*corev1.Pod)
	if err != nil || !exists || !isPod {
		return err
	}
	switch {
	case pod.DeletionTimestamp != nil:
		err = k.api.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	case pod.Status.Phase == corev1.PodPending:
		err = k.patch(ctx, pod, running)
	case pod.Status.Phase == corev1.PodRunning && k.workLeft(pod) <= 0:
		err = k.patch(ctx, pod, succeeded)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("the kubelet, of pod %s: %w", key, err)
	}
	return nil
}

func (k *kubelet) patch(ctx context.Context, pod *corev1.Pod, status string) error {
	_, err := k.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, status, pod.UID), metav1.PatchOptions{}, "status")
	return err
}

// failure is what went wrong so far.
func (k *kubelet) failure() error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.err
}

// left is how many pods there are.
func (k *kubelet) left() int { return len(k.pods.ListKeys()) }
