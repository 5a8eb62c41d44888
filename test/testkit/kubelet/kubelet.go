// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet simulates the kubelets of all nodes.
package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"opendilab.org/di-orchestrator/internal/names"
)

// writers is the number of concurrent writes of pods.
const writers = 32

// retryAfter is the pause before a failed write is repeated.
const retryAfter = 500 * time.Millisecond

// This is the status that a kubelet writes, as a strategic merge patch with a verb for the pod's
// UID.
const (
	running = `{"metadata":{"uid":%q},"status":{"phase":"Running",%s"conditions":[` +
		`{"type":"Initialized","status":"True"},{"type":"ContainersReady","status":"True"},{"type":"Ready","status":"True"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":true,"started":true,"image":"i","imageID":"i","state":{"running":{}}}]}}`
	addresses = `"podIP":%[1]q,"podIPs":[{"ip":%[1]q}],`
)

// Kubelet simulates the kubelets of all nodes: it runs pods and removes terminating ones. It binds a pod that the operator's allocator has placed, as a scheduler would, and
// gives it an address of the loopback interface.
type Kubelet struct {
	// Config is the client configuration of the API server.
	Config *rest.Config
	// BoundOnly ignores pods that are not bound to a node.
	BoundOnly bool
	// Nodes are the nodes to which it binds pods in turn that nothing else binds; may be empty.
	Nodes []string
	// Seen is called for each event of a pod, one at a time; may be nil.
	Seen func(pod *corev1.Pod, gone bool)
	// IsDown reports whether nothing runs on a node; nil if all nodes are up.
	IsDown func(node string) bool
	// Retry repeats failed writes, for an API server that restarts. Otherwise the first error is recorded.
	Retry bool

	api    kubernetes.Interface
	pods   cache.Indexer
	queue  workqueue.TypedDelayingInterface[types.NamespacedName]
	cancel context.CancelFunc
	ended  sync.WaitGroup
	// given is the number of given addresses, bound the number of pods bound to Nodes.
	given, bound atomic.Uint32

	mutex sync.Mutex
	// err is the first error of a write. The mutex guards it.
	err error
}

// Start returns when the kubelet has observed all pods. The caller stops it, unless Start fails.
func (k *Kubelet) Start(ctx context.Context) error {
	config := rest.CopyConfig(k.Config)
	config.QPS = -1
	var err error
	if k.api, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	k.queue = workqueue.NewTypedDelayingQueue[types.NamespacedName]()
	listWatch := cache.NewListWatchFromClient(k.api.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(listWatch, &corev1.Pod{}, 0, cache.Indexers{})
	if err := informer.SetTransform(ctrlcache.TransformStripManagedFields()); err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	k.pods = informer.GetIndexer()
	watching, cancel := context.WithCancel(ctx)
	k.cancel = cancel
	seen, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { k.see(pod, false) },
		UpdateFunc: func(_, pod any) { k.see(pod, false) },
		DeleteFunc: func(pod any) { k.see(pod, true) },
	})
	if err != nil {
		k.Stop()
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	k.ended.Go(func() { informer.RunWithContext(watching) })
	for range writers {
		k.ended.Go(func() { k.writeAll(watching) })
	}
	if !cache.WaitForCacheSync(watching.Done(), seen.HasSynced) {
		k.Stop()
		return fmt.Errorf("starting the kubelet: %w", context.Cause(ctx))
	}
	return nil
}

// Stop returns when the informer and all writers have stopped.
func (k *Kubelet) Stop() {
	k.cancel()
	k.queue.ShutDown()
	k.ended.Wait()
}

// Pod returns a pod; nil if there is none of that name.
func (k *Kubelet) Pod(key types.NamespacedName) *corev1.Pod {
	object, _, _ := k.pods.GetByKey(key.String())
	pod, _ := object.(*corev1.Pod)
	return pod
}

// Pods returns all pods.
func (k *Kubelet) Pods() []*corev1.Pod {
	var all []*corev1.Pod
	for _, object := range k.pods.List() {
		if pod, isPod := object.(*corev1.Pod); isPod {
			all = append(all, pod)
		}
	}
	return all
}

// Visit looks at all pods again, as after a node that was down has returned.
func (k *Kubelet) Visit() {
	for _, pod := range k.Pods() {
		k.schedule(pod)
	}
}

// Err returns the first error of a write.
func (k *Kubelet) Err() error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.err
}

// see records an event of a pod and schedules the next write.
func (k *Kubelet) see(object any, gone bool) {
	if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
		object = unknown.Obj
	}
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return
	}
	if k.Seen != nil {
		k.Seen(pod, gone)
	}
	if !gone {
		k.schedule(pod)
	}
}

// schedule queues a pod that needs a write.
func (k *Kubelet) schedule(pod *corev1.Pod) {
	if k.BoundOnly && pod.Spec.NodeName == "" {
		return
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodPending {
		k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (k *Kubelet) writeAll(ctx context.Context) {
	for {
		pod, ended := k.queue.Get()
		if ended {
			return
		}
		err := k.write(ctx, pod)
		k.queue.Done(pod)
		if err != nil && k.Retry {
			k.queue.AddAfter(pod, retryAfter)
			continue
		}
		if err != nil && ctx.Err() == nil {
			k.mutex.Lock()
			if k.err == nil {
				k.err = fmt.Errorf("the kubelet, of pod %s: %w", pod, err)
			}
			k.mutex.Unlock()
		}
	}
}

// address returns an unused address of the loopback interface.
func (k *Kubelet) address() string {
	given := k.given.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 1+given>>16, given>>8&0xff, given&0xff)
}

func (k *Kubelet) isDown(node string) bool { return k.IsDown != nil && k.IsDown(node) }

// place returns the node that the allocator has chosen for a pod. With Nodes, every pod has one.
func (k *Kubelet) place(pod *corev1.Pod) string {
	placed := pod.Annotations[names.AnnotationNode]
	if placed != "" || len(k.Nodes) == 0 {
		return placed
	}
	node := pod.Spec.NodeName
	for range k.Nodes {
		if node != "" && !k.isDown(node) {
			break
		}
		node = k.Nodes[int(k.bound.Add(1))%len(k.Nodes)]
	}
	return cmp.Or(pod.Spec.NodeName, node)
}

// write writes the next phase of a pod. It ignores a pod that no longer exists.
func (k *Kubelet) write(ctx context.Context, key types.NamespacedName) error {
	object, exists, err := k.pods.GetByKey(key.String())
	pod, isPod := object.(*corev1.Pod)
	if err != nil || !exists || !isPod || k.isDown(pod.Spec.NodeName) {
		return err
	}
	api := k.api.CoreV1().Pods(key.Namespace)
	patch := func(status, address string) error {
		_, err := api.Patch(ctx, key.Name, types.StrategicMergePatchType, fmt.Appendf(nil, status, pod.UID, address), metav1.PatchOptions{}, "status")
		return err
	}
	placed := k.place(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		err = api.Delete(ctx, key.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case placed != "" && pod.Spec.NodeName == "":
		err = api.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: key.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: placed},
		}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodPending && placed != "":
		err = patch(running, fmt.Sprintf(addresses, k.address()))
	case pod.Status.Phase == corev1.PodPending:
		err = patch(running, "")
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}
