// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

const (
	// OwnerIndex indexes pods by the job that controls them. OwnerKey returns its keys.
	OwnerIndex = "diengine.opendilab.org/owner"
	// AddressIndex indexes pods by the addresses that identify them.
	AddressIndex = "diengine.opendilab.org/address"
)

// SetupIndexes adds the indexes to a cache that has not been started.
func SetupIndexes(ctx context.Context, informers cache.Informers) error {
	informer, err := podInformer(ctx, informers, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	for name, keys := range map[string]func(*corev1.Pod) []string{OwnerIndex: ownerKeys, AddressIndex: PodAddresses} {
		if informer != nil {
			err = informer.AddIndexers(toolscache.Indexers{name: func(object any) ([]string, error) { return keysOf(object, keys), nil }})
		} else {
			err = informers.IndexField(ctx, &corev1.Pod{}, name, func(object client.Object) []string { return keysOf(object, keys) })
		}
		if err != nil {
			return fmt.Errorf("indexing pods by %s: %w", name, err)
		}
	}
	return nil
}

// ownerKeys returns the key of a pod in OwnerIndex.
func ownerKeys(pod *corev1.Pod) []string {
	owner := JobOwner(pod)
	if owner == nil {
		return nil
	}
	return []string{OwnerKey(pod.Namespace, owner.UID)}
}

func keysOf(object any, keys func(*corev1.Pod) []string) []string {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return nil
	}
	return keys(pod)
}

// OwnerKey returns the key of a job in OwnerIndex. It includes the namespace, because a pod in another
// namespace may claim the same owner.
func OwnerKey(namespace string, owner types.UID) string {
	return namespace + "/" + string(owner)
}

// JobOwner returns the owner reference to the job that controls an object, in any version; nil if no job
// controls it.
func JobOwner(object metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != "DIJob" {
		return nil
	}
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil || group.Group != v2alpha1.GroupName {
		return nil
	}
	return owner
}

// OwnedBy reports whether a job controls an object of its namespace.
func OwnedBy(object metav1.Object, job *v2alpha1.DIJob) bool {
	owner := JobOwner(object)
	return owner != nil && owner.UID == job.UID && object.GetNamespace() == job.Namespace
}

// RoleOf returns the role of a pod of a coordinator-led job; empty for other pods.
func RoleOf(pod *corev1.Pod) names.ReplicaType {
	if JobOwner(pod) == nil {
		return ""
	}
	return names.RoleOf(pod)
}

// PodAddresses returns the addresses that identify a pod whose processes may run. A node's address
// identifies only pods of jobs, because many other pods share it.
func PodAddresses(pod *corev1.Pod) []string {
	if podstate.Finished(pod) || pod.Spec.HostNetwork && JobOwner(pod) == nil {
		return nil
	}
	addresses := make([]string, 0, len(pod.Status.PodIPs))
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, address.Unmap().String())
		}
	}
	return addresses
}
