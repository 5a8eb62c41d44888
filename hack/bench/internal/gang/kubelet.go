// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
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

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
)

// kubelet runs each pod that is bound to a node, lets it succeed after some work, and
// ends those that are deleted. The ledger of the namespace sees each event of a pod.
type kubelet struct {
	*harness.Kubelet

	api  kubernetes.Interface
	work time.Duration
	pods cache.Indexer
	// ledgers by namespace.
	ledgers map[string]*ledger

	// mutex guards ends.
	mutex sync.Mutex
	// ends are when pods that run have done their work.
	ends map[types.UID]time.Time
}

// startKubelet starts it and returns when it sees all pods.
func startKubelet(ctx context.Context, config *rest.Config, work time.Duration, ledgers map[string]*ledger) (*kubelet, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("starting the kubelet: %w", err)
	}
	pods := cache.NewListWatchFromClient(api.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{})
	k := &kubelet{api: api, work: work, pods: informer.GetIndexer(), ledgers: ledgers, ends: map[types.UID]time.Time{}}
	k.Kubelet = harness.NewKubelet(k.write)
	return k, k.Start(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    k.see,
		UpdateFunc: func(_, after any) { k.see(after) },
	})
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
		k.Due(key, 0)
	case phase == corev1.PodRunning:
		k.Due(key, k.workLeft(pod))
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

// write brings a pod to what is next. That it is gone by now is as good.
func (k *kubelet) write(ctx context.Context, key types.NamespacedName) error {
	object, exists, err := k.pods.GetByKey(key.String())
	pod, isPod := object.(*corev1.Pod)
	if err != nil || !exists || !isPod {
		return err
	}
	switch {
	case pod.DeletionTimestamp != nil:
		err = k.api.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, harness.AtOnce(pod.UID))
	case pod.Status.Phase == corev1.PodPending:
		err = k.patch(ctx, pod, harness.Running)
	case pod.Status.Phase == corev1.PodRunning && k.workLeft(pod) <= 0:
		err = k.patch(ctx, pod, harness.Succeeded)
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

// left is how many pods there are.
func (k *kubelet) left() int { return len(k.pods.ListKeys()) }
