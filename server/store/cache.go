// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/intern"
	"opendilab.org/di-orchestrator/internal/names"
)

// CacheOptions returns the options of the server's cache. The cache contains all pods and nodes. Therefore
// it keeps only the fields that the server reads, and returns objects without copying them. Objects share
// equal parts.
func CacheOptions() cache.Options {
	shared, parts := true, intern.New()
	return cache.Options{
		DefaultTransform:             parts.After(cache.TransformStripManagedFields()),
		DefaultUnsafeDisableDeepCopy: &shared,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:  {Transform: parts.After(trimPod)},
			&corev1.Node{}: {Transform: trimNode},
		},
	}
}

// WarmUp starts all informers of the server. It returns once they are synced.
func WarmUp(ctx context.Context, informers cache.Cache) error {
	for _, object := range []client.Object{
		&v2alpha1.DIJob{}, &v2alpha1.Membership{}, &v2alpha1.AggregatorConfig{}, &corev1.Pod{}, &corev1.Node{},
	} {
		if _, err := informers.GetInformer(ctx, object); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	if !informers.WaitForCacheSync(ctx) {
		return fmt.Errorf("waiting for the caches: %w", context.Cause(ctx))
	}
	return nil
}

// trimPod keeps the fields of a pod that the server reads. It keeps only the identity and addresses of
// pods that belong to no job.
func trimPod(object any) (any, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	trimmed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		UID:             pod.UID,
		ResourceVersion: pod.ResourceVersion,
	}}
	trimmed.Spec.HostNetwork = pod.Spec.HostNetwork
	trimmed.Status.Phase = pod.Status.Phase
	trimmed.Status.PodIP = pod.Status.PodIP
	trimmed.Status.PodIPs = pod.Status.PodIPs
	if JobOwner(pod) == nil {
		return trimmed, nil
	}
	trimmed.Labels = pod.Labels
	trimmed.Annotations = selected(pod.Annotations, names.AnnotationSlot, names.AnnotationDDPGPUs, names.AnnotationDDPPort,
		names.AnnotationRank, names.AnnotationAttempt, names.AnnotationReschedule)
	trimmed.OwnerReferences = pod.OwnerReferences
	trimmed.CreationTimestamp = pod.CreationTimestamp
	trimmed.DeletionTimestamp = pod.DeletionTimestamp
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		trimmed.Spec.Containers = append(trimmed.Spec.Containers, corev1.Container{
			Name:      container.Name,
			Ports:     container.Ports,
			Resources: container.Resources,
		})
	}
	return trimmed, nil
}

// trimNode keeps the allocatable resources of a node.
func trimNode(object any) (any, error) {
	node, isNode := object.(*corev1.Node)
	if !isNode {
		return object, nil
	}
	trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:            node.Name,
		UID:             node.UID,
		ResourceVersion: node.ResourceVersion,
	}}
	trimmed.Status.Allocatable = node.Status.Allocatable
	return trimmed, nil
}

func selected(all map[string]string, keys ...string) map[string]string {
	few := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, found := all[key]; found {
			few[key] = value
		}
	}
	return few
}
