// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// gone is the error of a change of an object that may have changed or gone meanwhile.
func gone(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// loseNode loses a node. Its pods are deleted as the taint manager does, and stay until the node returns, or are
// removed with it by the pod garbage collector.
func (f *faults) loseNode(ctx context.Context, random *rand.Rand) (bool, error) {
	name := nodeName(random.IntN(nodeCount))
	if f.world.isDown(name) {
		return false, nil
	}
	return true, f.around("node", name, func() error {
		f.world.setDown(name, true)
		_ = pace.Pause(ctx, time.Second)
		collected := random.IntN(2) == 0
		for _, pod := range f.world.kubelet.Pods() {
			if pod.Namespace != namespace || pod.Spec.NodeName != name {
				continue
			}
			f.world.log.Add(history.Entry{Cause: &history.Cause{What: "the pod's node is lost", Pod: string(pod.UID)}})
			if err := f.world.eventually(ctx, "losing a node", func(ctx context.Context) error { return lose(ctx, f.world, pod.DeepCopy(), collected) }); err != nil {
				return err
			}
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if collected {
			if err := f.world.eventually(ctx, "removing a node", func(ctx context.Context) error { return gone(f.world.API.Delete(ctx, node)) }); err != nil {
				return err
			}
		}
		_ = pace.Pause(ctx, f.lasting(random))
		if err := f.world.eventually(ctx, "a node returns", func(ctx context.Context) error { return f.world.addNode(ctx, name) }); err != nil {
			return err
		}
		f.world.setDown(name, false)
		f.world.kubelet.Visit()
		return nil
	})
}

// lose deletes a pod of a lost node.
func lose(ctx context.Context, w *world, pod *corev1.Pod, collected bool) error {
	if err := w.API.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return gone(err)
	}
	reason := "DeletionByTaintManager"
	options := []client.DeleteOption{client.Preconditions{UID: &pod.UID}}
	if collected {
		reason, pod.Status.Phase = "DeletionByPodGC", corev1.PodFailed
		options = append(options, client.GracePeriodSeconds(0))
	}
	pods.Disrupt(&pod.Status, reason)
	if err := gone(w.API.Status().Update(ctx, pod)); err != nil {
		return err
	}
	return gone(w.API.Delete(ctx, pod, options...))
}

// reshard changes the number of shards, and restarts the operators one after the other, as a Deployment does.
func (f *faults) reshard(ctx context.Context, _ *rand.Rand) (bool, error) {
	operators := f.world.of(operator)
	for _, each := range operators {
		if !each.faulty.TryLock() {
			return false, nil
		}
		defer each.faulty.Unlock()
	}
	return true, f.around("shards", "operators", func() error {
		for _, each := range operators {
			each.mutex.Lock()
			each.shards = 3 - each.shards
			each.mutex.Unlock()
			if process := each.running(); process != nil && !process.HasEnded() {
				_ = process.Stop() // an operator that has lost a Lease meanwhile ends with an error
			}
			if err := each.waitReady(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// rotate asks the webhooks for a new authority.
func (f *faults) rotate(ctx context.Context, random *rand.Rand) (bool, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: names.WebhookAuthority}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"diengine.opendilab.org/rotate":"%d"}}}`, random.Int()))
	return true, f.world.eventually(ctx, "rotating the authority", func(ctx context.Context) error { return f.world.API.Patch(ctx, secret, patch) })
}
