// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/upgrade/crds"
)

// firstRetry and lastRetry bound the backoff of a failed step.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// Definitions watch the CustomResourceDefinitions. Each watch selects one name and reads only metadata.
type Definitions struct {
	caches map[string]cache.Cache
}

// WatchDefinitions adds the watches of definitions to a manager.
func WatchDefinitions(mgr ctrl.Manager) (*Definitions, error) {
	d := &Definitions{caches: map[string]cache.Cache{}}
	for _, name := range []string{jobsDefinition, configsDefinition} {
		made, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				newDefinitionMetadata(): {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)},
			},
		})
		if err != nil {
			return nil, fmt.Errorf("making the cache of customresourcedefinition %s: %w", name, err)
		}
		if err := controllers.AddCache(mgr, made); err != nil {
			return nil, fmt.Errorf("adding the cache of customresourcedefinition %s: %w", name, err)
		}
		d.caches[name] = made
	}
	return d, nil
}

// JobVersion returns the desired storage version of jobs. Owner references name jobs in this version. It
// returns v2alpha1 if the annotation names no existing version.
func (d *Definitions) JobVersion(ctx context.Context) (string, error) {
	jobs := newDefinitionMetadata()
	if err := d.caches[jobsDefinition].Get(ctx, client.ObjectKey{Name: jobsDefinition}, jobs); err != nil {
		return "", fmt.Errorf("getting customresourcedefinition %s: %w", jobsDefinition, err)
	}
	if jobs.Annotations[crds.AnnotationStorageVersion] == v1alpha1.Version {
		return v1alpha1.Version, nil
	}
	return v2alpha1.Version, nil
}

// Setup adds the migration of stored objects to a manager.
func Setup(mgr ctrl.Manager, definitions *Definitions, options Options) error {
	// The annotations of one definition also apply to the other, so a change enqueues both.
	both := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{
			{NamespacedName: types.NamespacedName{Name: jobsDefinition}},
			{NamespacedName: types.NamespacedName{Name: configsDefinition}},
		}
	})
	building := ctrl.NewControllerManagedBy(mgr).Named("storage-migration").WithOptions(controller.Options{
		MaxConcurrentReconciles: 1,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	})
	for _, watched := range definitions.caches {
		building = building.WatchesRawSource(source.Kind(watched, client.Object(newDefinitionMetadata()), both))
	}
	if err := building.Complete(New(options)); err != nil {
		return fmt.Errorf("adding the storage migration: %w", err)
	}
	return nil
}

func newDefinitionMetadata() *metav1.PartialObjectMetadata {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return definition
}
