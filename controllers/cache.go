// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"runtime"
	"unique"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/intern"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// CacheOptions returns the options of a manager's cache. The cache watches all pods, because no selector
// matches both generations of jobs, and because the allocator accounts for the pods of other owners. Of
// foreign pods it keeps only the resources that they occupy, and of pods of jobs what podstate.Trim leaves.
// Objects share equal parts. It watches only the ConfigMaps and PodDisruptionBudgets of jobs, because a cluster may
// have many others.
func CacheOptions() cache.Options {
	parts := intern.New()
	trim := parts.After(trimForeign)
	ofJobs := cache.ByObject{
		Label:     labels.SelectorFromSet(labels.Set{names.LabelOperator: names.ControllerName}),
		Transform: trim,
	}
	return cache.Options{
		DefaultTransform: parts.After(cache.TransformStripManagedFields()),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Transform: trim},
			&corev1.Service{}:               {Transform: trim},
			&corev1.Node{}:                  {Transform: trimNode},
			&corev1.ConfigMap{}:             ofJobs,
			&policyv1.PodDisruptionBudget{}: ofJobs,
		},
	}
}

// AddCache adds a cache that starts with that of the manager. Otherwise only the leader would start it, but
// other operators reconcile the jobs of their shards.
func AddCache(mgr ctrl.Manager, added cache.Cache) error { return mgr.Add(withManager{Cache: added}) }

type withManager struct{ cache.Cache }

// GetCache makes a manager treat it like its own.
func (c withManager) GetCache() cache.Cache { return c.Cache }

// trimForeign shrinks an object. It drops most fields of a foreign object.
func trimForeign(in any) (any, error) {
	object, ok := in.(client.Object)
	if !ok {
		return in, nil
	}
	Shrink(object)
	if len(OwnerUID(object)) > 0 {
		return object, nil
	}
	meta := metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}
	switch object := object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{ObjectMeta: meta, Spec: occupancyOf(&object.Spec), Status: corev1.PodStatus{Phase: object.Status.Phase}}, nil
	case *corev1.Service:
		return &corev1.Service{ObjectMeta: meta}, nil
	case *corev1.ConfigMap:
		return &corev1.ConfigMap{ObjectMeta: meta}, nil
	case *policyv1.PodDisruptionBudget:
		return &policyv1.PodDisruptionBudget{ObjectMeta: meta}, nil
	}
	return object, nil
}

// Shrink drops the managed fields of an object, and what no decision reads of a job's pod, Service or budget. It shares long
// values with the other pods of the job.
func Shrink(object client.Object) {
	if object.GetManagedFields() != nil {
		object.SetManagedFields(nil)
	}
	if len(OwnerUID(object)) == 0 {
		return
	}
	switch object := object.(type) {
	case *corev1.Pod:
		podstate.Trim(object)
		shareVariables(object)
	case *corev1.Service:
		spec := &object.Spec
		object.Spec = corev1.ServiceSpec{
			Type: spec.Type, Selector: spec.Selector, Ports: spec.Ports, PublishNotReadyAddresses: spec.PublishNotReadyAddresses,
			ExternalName: spec.ExternalName,
		}
		object.Status = corev1.ServiceStatus{}
	case *policyv1.PodDisruptionBudget:
		object.Status = policyv1.PodDisruptionBudgetStatus{}
	}
}

// sharedLength is the minimum length of values that are shared.
const sharedLength = 128

// shareVariables shares the long values of a pod's variables with all pods that have the same values.
// Every pod of an earlier release has the addresses of all pods, so memory would grow with the square of
// their number.
func shareVariables(pod *corev1.Pod) {
	var shared []unique.Handle[string]
	share := func(containers []corev1.Container) {
		for i := range containers {
			for k := range containers[i].Env {
				if value := &containers[i].Env[k].Value; len(*value) >= sharedLength {
					handle := unique.Make(*value)
					*value, shared = handle.Value(), append(shared, handle)
				}
			}
		}
	}
	share(pod.Spec.InitContainers)
	share(pod.Spec.Containers)
	if len(shared) > 0 {
		// A value is shared while a handle of it exists, so the handles must live as long as the pod.
		runtime.AddCleanup(pod, func([]unique.Handle[string]) {}, shared)
	}
}

// occupancyOf returns a pod spec with only the node of a pod and the resources that it occupies.
func occupancyOf(spec *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: spec.NodeName, Resources: spec.Resources, Overhead: spec.Overhead,
		InitContainers: demandsOf(spec.InitContainers), Containers: demandsOf(spec.Containers),
	}
}

func demandsOf(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(containers))
	for i := range containers {
		kept[i] = corev1.Container{Resources: containers[i].Resources, RestartPolicy: containers[i].RestartPolicy}
	}
	return kept
}

// trimNode keeps the fields of a node that placement depends on.
func trimNode(in any) (any, error) {
	node, ok := in.(*corev1.Node)
	if !ok {
		return in, nil
	}
	trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels, DeletionTimestamp: node.DeletionTimestamp,
	}}
	trimmed.Spec.Unschedulable, trimmed.Spec.Taints = node.Spec.Unschedulable, node.Spec.Taints
	trimmed.Status.Allocatable = node.Status.Allocatable
	if ready := conditions.OfNode(node, corev1.NodeReady); ready != nil {
		kept := *ready
		kept.LastHeartbeatTime = metav1.Time{}
		trimmed.Status.Conditions = []corev1.NodeCondition{kept}
	}
	return trimmed, nil
}
