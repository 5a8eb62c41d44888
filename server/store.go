// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// ownerIndex is the index of pods by the UID of the job that controls them.
const ownerIndex = "diengine.opendilab.org/owner"

// store is all that the server asks of the cluster. What get and list return
// is shared with the cache and must not be changed.
type store interface {
	// get reads an object from the cache.
	get(ctx context.Context, key types.NamespacedName, object client.Object) error
	// live reads an object from the API server.
	live(ctx context.Context, key types.NamespacedName, object client.Object) error
	// list lists objects from the cache.
	list(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	// liveList lists objects from the API server.
	liveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	// create creates an object: a question to the API server, such as a TokenReview.
	create(ctx context.Context, object client.Object) error
	// update writes an object if it is unchanged since it was read.
	update(ctx context.Context, object client.Object) error
	// patch writes a patch of an object, or of its subresource of that name.
	patch(ctx context.Context, object client.Object, subresource string, patch client.Patch, options ...client.PatchOption) error
}

// clusterStore is the store over a cached client and a live reader.
type clusterStore struct {
	cached client.Client
	reader client.Reader
	// callTime bounds each call of the API server.
	callTime time.Duration
	told     observer
}

// call makes a call of the API server in the time for one. What the server
// itself may not do is told, as only a person can mend it.
func (s clusterStore) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.callTime)
	defer cancel()
	err := do(ctx)
	if apierrors.IsForbidden(err) {
		s.told.forbidden(err)
	}
	return err
}

func (s clusterStore) get(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return s.cached.Get(ctx, key, object)
}

// live knows that no object has a name that cannot stand in a path: the client
// would fail, and what a request names need not be a name.
func (s clusterStore) live(ctx context.Context, key types.NamespacedName, object client.Object) error {
	if content.IsPathSegmentName(key.Namespace) != nil || content.IsPathSegmentName(key.Name) != nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return s.call(ctx, func(ctx context.Context) error { return s.reader.Get(ctx, key, object) })
}

func (s clusterStore) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.cached.List(ctx, list, options...)
}

func (s clusterStore) liveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.call(ctx, func(ctx context.Context) error { return s.reader.List(ctx, list, options...) })
}

func (s clusterStore) create(ctx context.Context, object client.Object) error {
	return s.call(ctx, func(ctx context.Context) error { return s.cached.Create(ctx, object) })
}

func (s clusterStore) update(ctx context.Context, object client.Object) error {
	return s.call(ctx, func(ctx context.Context) error { return s.cached.Update(ctx, object) })
}

func (s clusterStore) patch(ctx context.Context, object client.Object, subresource string, patch client.Patch, options ...client.PatchOption) error {
	return s.call(ctx, func(ctx context.Context) error {
		if subresource == "" {
			return s.cached.Patch(ctx, object, patch, options...)
		}
		return s.cached.SubResource(subresource).Patch(ctx, object, patch, &client.SubResourcePatchOptions{
			PatchOptions: *(&client.PatchOptions{}).ApplyOptions(options),
		})
	})
}

// SetupIndexes adds the indexes that the server reads by; it is called before
// the cache starts.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &corev1.Pod{}, ownerIndex, func(object client.Object) []string {
		owner := jobOwner(object)
		if owner == nil {
			return nil
		}
		return []string{string(owner.UID)}
	})
	if err != nil {
		return fmt.Errorf("indexing pods by their job: %w", err)
	}
	err = indexer.IndexField(ctx, &corev1.Pod{}, addressIndex, func(object client.Object) []string {
		pod, isPod := object.(*corev1.Pod)
		if !isPod {
			return nil
		}
		return standsFor(pod)
	})
	if err != nil {
		return fmt.Errorf("indexing pods by their address: %w", err)
	}
	return nil
}

// jobOwner returns the reference to the job that controls an object, in
// whichever version it was written; nil where no job does.
func jobOwner(object metav1.Object) *metav1.OwnerReference {
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

// ownedBy says whether a job controls an object.
func ownedBy(object metav1.Object, job *v2alpha1.DIJob) bool {
	owner := jobOwner(object)
	return owner != nil && owner.UID == job.UID
}

// find reads an object from the cache, and live where the cache does not know
// it yet.
func (s *Server) find(ctx context.Context, key types.NamespacedName, object client.Object) error {
	err := s.store.get(ctx, key, object)
	if !apierrors.IsNotFound(err) {
		return err
	}
	return s.look(ctx, key, object)
}

// look reads an object live, patiently.
func (s *Server) look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return persist(ctx, func(ctx context.Context) error {
		return s.store.live(ctx, key, object)
	})
}

// podsOf returns the pods that a job controls, by name.
func (s *Server) podsOf(ctx context.Context, job *v2alpha1.DIJob) (map[string]*corev1.Pod, error) {
	var list corev1.PodList
	err := s.store.list(ctx, &list, client.InNamespace(job.Namespace), client.MatchingFields{ownerIndex: string(job.UID)})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	pods := make(map[string]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// membershipOf returns a job's Membership as the cache knows it; nil while
// there is none.
func (s *Server) membershipOf(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	var membership v2alpha1.Membership
	err := s.store.get(ctx, client.ObjectKeyFromObject(job), &membership)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Membership of job %s/%s: %w", job.Namespace, job.Name, err)
	case membership.Spec.JobUID != job.UID:
		return nil, nil
	}
	return &membership, nil
}
