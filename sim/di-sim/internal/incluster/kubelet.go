// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// These are the statuses that a kubelet writes, as strategic merge patches with verbs for the pod's UID,
// and the time since when it is ready. A pod is ready once its job has restarted.
const (
	running = `{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[` +
		`{"type":"Initialized","status":"True"},{"type":"ContainersReady","status":"False"},{"type":"Ready","status":"False"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":false,"started":true,"image":"i","imageID":"i","state":{"running":{}}}]}}`
	ready = `{"metadata":{"uid":%q},"status":{"conditions":[` +
		`{"type":"ContainersReady","status":"True"},{"type":"Ready","status":"True","lastTransitionTime":%q}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":true,"started":true,"image":"i","imageID":"i","state":{"running":{}}}]}}`
	succeeded = `{"metadata":{"uid":%q},"status":{"phase":"Succeeded",` +
		`"conditions":[{"type":"ContainersReady","status":"False"},{"type":"Ready","status":"False"}],` +
		`"containerStatuses":[{"name":"` + names.Container + `","ready":false,"image":"i","imageID":"i",` +
		`"state":{"running":null,"terminated":{"exitCode":0,"reason":"Completed"}}}]}}`
)

const (
	// kubeletWorkers is the number of pods that are written concurrently.
	kubeletWorkers = 16
	// fullNodeRetry is the interval of attempts to start a pod on a full node.
	fullNodeRetry = 20 * time.Millisecond
)

// kubelet simulates the scheduler and the kubelets of all nodes. It binds a pod to the node that it was
// created for once that node has a free GPU, runs it, and removes it when it is deleted.
type kubelet struct {
	api  client.Client
	gpus int

	mutex sync.Mutex
	// mutex guards bound, the pods that occupy a GPU.
	bound map[types.NamespacedName]seat
}

// seat is the GPU of a pod.
type seat struct {
	uid  types.UID
	node string
}

// setup adds the kubelet to a manager.
func (k *kubelet) setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("kubelet").For(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: kubeletWorkers}).Complete(k)
	if err != nil {
		return fmt.Errorf("adding the kubelet: %w", err)
	}
	return nil
}

// Reconcile writes the next state of a pod.
func (k *kubelet) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	err := k.api.Get(ctx, request.NamespacedName, pod)
	switch {
	case apierrors.IsNotFound(err):
		k.release(request.NamespacedName)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading pod %s: %w", request, err)
	case podstate.Terminating(pod):
		err = k.api.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case podstate.Finished(pod):
		k.release(request.NamespacedName)
	case pod.Status.Phase == corev1.PodRunning:
	case !k.occupy(pod):
		return ctrl.Result{RequeueAfter: fullNodeRetry}, nil
	default:
		err = k.start(ctx, pod)
	}
	if isHarmless(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, fmt.Errorf("writing pod %s: %w", request, err)
}

// isHarmless reports whether a write of a pod succeeded, or was refused because the pod is gone or another
// one has its name by now. The API server answers a wrong UID as invalid.
func isHarmless(err error) bool {
	return client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}

// start binds a pod, if it has no node, and lets it run.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: pod.Annotations[names.AnnotationNode]},
		}
		if err := k.api.SubResource("binding").Create(ctx, pod, binding); err != nil {
			return err
		}
	}
	return k.api.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, running, pod.UID)))
}

// occupy gives a pod a GPU of its node, and reports whether one was free.
func (k *kubelet) occupy(pod *corev1.Pod) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	key, node := client.ObjectKeyFromObject(pod), pod.Annotations[names.AnnotationNode]
	if k.bound[key].uid == pod.UID {
		return true
	}
	delete(k.bound, key)
	used := 0
	for _, other := range k.bound {
		if other.node == node {
			used++
		}
	}
	if used >= k.gpus {
		return false
	}
	k.bound[key] = seat{uid: pod.UID, node: node}
	return true
}

func (k *kubelet) release(pod types.NamespacedName) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	delete(k.bound, pod)
}
