// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
)

// Cluster is all access of di-server to the cluster.
type Cluster interface {
	CachedReader
	LiveReader
	// Create creates a review, such as a TokenReview.
	Create(ctx context.Context, object client.Object) error
	// Update writes an object if the object has not changed since it was read.
	Update(ctx context.Context, object client.Object) error
	// Patch patches an object, or the named subresource.
	Patch(ctx context.Context, object client.Object, subresource string, patch client.Patch) error
}

// CachedReader reads from the cache. Callers must not change its results, because the cache shares them.
type CachedReader interface {
	// Get reads an object.
	Get(ctx context.Context, key types.NamespacedName, object client.Object) error
	// List lists objects.
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	// Pods returns the pods under a key of an index.
	Pods(ctx context.Context, index, key string) ([]*corev1.Pod, error)
}

// LiveReader reads from the API server.
type LiveReader interface {
	// Live reads an object.
	Live(ctx context.Context, key types.NamespacedName, object client.Object) error
	// Look reads an object that a sender named and that is not in the cache.
	Look(ctx context.Context, key types.NamespacedName, object client.Object) error
	// LiveList lists objects.
	LiveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
}

// LookupClient reads objects and creates reviews on behalf of callers.
type LookupClient interface {
	client.Reader
	// Create creates a review.
	Create(ctx context.Context, object client.Object, options ...client.CreateOption) error
}

// NewLookupClient returns a LookupClient that reads with one client and creates with the other.
func NewLookupClient(reader client.Reader, creator client.Client) LookupClient {
	return lookupClient{reader, creator}
}

type lookupClient struct {
	client.Reader
	creator client.Client
}

func (c lookupClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.creator.Create(ctx, object, options...)
}

// Clients are the clients of a Cluster.
type Clients struct {
	// Cached reads from Informers and writes to the API server.
	Cached client.Client
	// Informers are the caches.
	Informers cache.Informers
	// Live reads from the API server.
	Live client.Reader
	// Lookups reads objects and creates reviews on behalf of callers, so that unknown senders do not
	// exhaust the calls of the other clients.
	Lookups LookupClient
	// CallTimeout bounds each call of the API server.
	CallTimeout time.Duration
	// OnForbidden is called with the error of a call for which the server has no permission. Only an
	// administrator can grant the permission.
	OnForbidden func(error)
}

// NewCluster returns the cluster that clients reach.
func NewCluster(clients Clients) Cluster {
	return cluster{Clients: clients, pod: &corev1.Pod{}}
}

type cluster struct {
	Clients
	// pod selects the informer of pods. It saves an allocation per request.
	pod *corev1.Pod
}

// call sets the deadline of an API call.
func (c cluster) call(ctx context.Context, do Attempt) error {
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	err := do(ctx)
	if apierrors.IsForbidden(err) {
		c.OnForbidden(err)
	}
	return err
}

func (c cluster) Get(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return c.Cached.Get(ctx, key, object)
}

func (c cluster) Live(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return c.read(ctx, c.Clients.Live, key, object)
}

func (c cluster) Look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return c.read(ctx, c.Lookups, key, object)
}

// read reads an object. It returns NotFound for names that cannot be part of a path, because requests may
// contain any name and the client would fail.
func (c cluster) read(ctx context.Context, from client.Reader, key types.NamespacedName, object client.Object) error {
	if content.IsPathSegmentName(key.Namespace) != nil || content.IsPathSegmentName(key.Name) != nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return c.call(ctx, func(ctx context.Context) error { return from.Get(ctx, key, object) })
}

func (c cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.Cached.List(ctx, list, options...)
}

// Pods reads the index directly. A list through the client would copy every pod on every request. A cache of
// some namespaces has an index for each, which only the client reaches.
func (c cluster) Pods(ctx context.Context, index, key string) ([]*corev1.Pod, error) {
	informer, err := podInformer(ctx, c.Informers, c.pod)
	if err != nil {
		return nil, err
	}
	if informer == nil {
		return c.listPods(ctx, index, key)
	}
	found, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, object := range found {
		if pod, isPod := object.(*corev1.Pod); isPod {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

func (c cluster) listPods(ctx context.Context, index, key string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.MatchingFields{index: key}); err != nil {
		return nil, fmt.Errorf("listing pods by %s: %w", index, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// podInformer returns the informer of pods with its indexes; nil if the cache has one for each namespace.
func podInformer(ctx context.Context, informers cache.Informers, pod *corev1.Pod, options ...cache.InformerGetOption,
) (toolscache.SharedIndexInformer, error) {
	informer, err := informers.GetInformer(ctx, pod, options...)
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	shared, isShared := informer.(toolscache.SharedIndexInformer)
	if !isShared {
		return nil, nil
	}
	return shared, nil
}

func (c cluster) LiveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.call(ctx, func(ctx context.Context) error { return c.Lookups.List(ctx, list, options...) })
}

func (c cluster) Create(ctx context.Context, object client.Object) error {
	return c.call(ctx, func(ctx context.Context) error { return c.Lookups.Create(ctx, object) })
}

func (c cluster) Update(ctx context.Context, object client.Object) error {
	return c.call(ctx, func(ctx context.Context) error { return c.Cached.Update(ctx, object) })
}

func (c cluster) Patch(ctx context.Context, object client.Object, subresource string, patch client.Patch) error {
	return c.call(ctx, func(ctx context.Context) error {
		if subresource == "" {
			return c.Cached.Patch(ctx, object, patch, fieldOwner)
		}
		return c.Cached.SubResource(subresource).Patch(ctx, object, patch, fieldOwner)
	})
}

// fieldOwner is the field manager of di-server in jobs. The Events of a resize name it.
const fieldOwner = client.FieldOwner(names.ServerName)
