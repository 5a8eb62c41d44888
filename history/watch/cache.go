// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
)

// CacheOptions returns the options of the cache. It keeps what a record has: of pods of jobs their names
// and status, of other pods their names only, and of ConfigMaps that of the allocator's groups.
func CacheOptions(groups types.NamespacedName) cache.Options {
	named := cache.Config{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, groups.Name)}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Transform: trimPod},
			&v2alpha1.DIJob{}:   {Transform: trimJob},
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{groups.Namespace: named}},
		},
	}
}

func trimPod(in any) (any, error) {
	pod, isPod := in.(*corev1.Pod)
	if !isPod {
		return in, nil
	}
	if len(controllers.OwnerUID(pod)) == 0 {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		}}, nil
	}
	controllers.Shrink(pod)
	containers := make([]corev1.Container, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		whole := &pod.Spec.Containers[i]
		containers[i].Name = whole.Name
		containers[i].Resources = corev1.ResourceRequirements{Limits: memoryOf(whole.Resources.Limits), Requests: memoryOf(whole.Resources.Requests)}
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, RestartPolicy: pod.Spec.RestartPolicy, Containers: containers}
	return pod, nil
}

// memoryOf returns the memory of a list, at which a container is killed.
func memoryOf(list corev1.ResourceList) corev1.ResourceList {
	memory, exists := list[corev1.ResourceMemory]
	if !exists {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceMemory: memory}
}

// trimJob leaves the managed fields that tell who wrote the spec.
func trimJob(in any) (any, error) {
	job, isJob := in.(*v2alpha1.DIJob)
	if !isJob {
		return in, nil
	}
	job.ManagedFields = slices.DeleteFunc(job.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "status"
	})
	return job, nil
}

// SetupIndexes adds the indexes that Recorder reads.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.Pod{}, controllers.OwnerIndex, controllers.OwnerName); err != nil {
		return fmt.Errorf("indexing pods by their job: %w", err)
	}
	if err := indexer.IndexField(ctx, &v2alpha1.ScalePlan{}, controllers.PlanIndex, controllers.JobOfPlan); err != nil {
		return fmt.Errorf("indexing ScalePlans by their job: %w", err)
	}
	return nil
}
