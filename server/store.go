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
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// ownerIndex is the index of pods by the job that controls them, as ownerKey
// names it.
const ownerIndex = "diengine.opendilab.org/owner"

// store is all that the server asks of the cluster. What get, list and pods
// return is shared with the cache and must not be changed.
type store interface {
	// get reads an object from the cache.
	get(ctx context.Context, key types.NamespacedName, object client.Object) error
	// live reads an object from the API server.
	live(ctx context.Context, key types.NamespacedName, object client.Object) error
	// look reads an object from the API server that a sender named and the cache
	// does not know.
	look(ctx context.Context, key types.NamespacedName, object client.Object) error
	// list lists objects from the cache.
	list(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	// pods returns the pods that the cache has under a key of an index.
	pods(ctx context.Context, index, key string) ([]*corev1.Pod, error)
	// liveList lists objects from the API server.
	liveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
	// create creates an object: a question to the API server, such as a TokenReview.
	create(ctx context.Context, object client.Object) error
	// update writes an object if it is unchanged since it was read.
	update(ctx context.Context, object client.Object) error
	// patch writes a patch of an object, or of its subresource of that name.
	patch(ctx context.Context, object client.Object, subresource string, patch client.Patch) error
}

// Asker asks the API server: it reads objects and creates reviews.
type Asker interface {
	client.Reader
	Create(ctx context.Context, object client.Object, options ...client.CreateOption) error
}

// readerAndCreator is an Asker of two clients.
type readerAndCreator struct {
	client.Reader
	creator client.Client
}

func (a readerAndCreator) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return a.creator.Create(ctx, object, options...)
}

// clusterStore is the store over a cached client, its cache and a live reader.
type clusterStore struct {
	cached    client.Client
	informers cache.Informers
	reader    client.Reader
	// lookups asks the API server what strangers may cause to be asked, so that they
	// take no calls from those that write for jobs.
	lookups Asker
	// pod tells the informers which kind is meant; one does for all requests.
	pod *corev1.Pod
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

func (s clusterStore) live(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return s.read(ctx, s.reader, key, object)
}

func (s clusterStore) look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return s.read(ctx, s.lookups, key, object)
}

// read knows that no object has a name that cannot stand in a path: the client
// would fail, and what a request names need not be a name.
func (s clusterStore) read(ctx context.Context, from client.Reader, key types.NamespacedName, object client.Object) error {
	if content.IsPathSegmentName(key.Namespace) != nil || content.IsPathSegmentName(key.Name) != nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return s.call(ctx, func(ctx context.Context) error { return from.Get(ctx, key, object) })
}

func (s clusterStore) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.cached.List(ctx, list, options...)
}

// pods reads the index itself, as a list through the client copies every pod,
// and there is one with each request.
func (s clusterStore) pods(ctx context.Context, index, key string) ([]*corev1.Pod, error) {
	informer, err := podInformer(ctx, s.informers, s.pod)
	if err != nil {
		return nil, err
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

// podInformer returns the informer of pods with its indexes.
func podInformer(ctx context.Context, informers cache.Informers, pod *corev1.Pod, options ...cache.InformerGetOption,
) (toolscache.SharedIndexInformer, error) {
	informer, err := informers.GetInformer(ctx, pod, options...)
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	shared, isShared := informer.(toolscache.SharedIndexInformer)
	if !isShared {
		return nil, fmt.Errorf("watching pods: %T has no index that can be read", informer)
	}
	return shared, nil
}

func (s clusterStore) liveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return s.call(ctx, func(ctx context.Context) error { return s.lookups.List(ctx, list, options...) })
}

func (s clusterStore) create(ctx context.Context, object client.Object) error {
	return s.call(ctx, func(ctx context.Context) error { return s.lookups.Create(ctx, object) })
}

func (s clusterStore) update(ctx context.Context, object client.Object) error {
	return s.call(ctx, func(ctx context.Context) error { return s.cached.Update(ctx, object) })
}

func (s clusterStore) patch(ctx context.Context, object client.Object, subresource string, patch client.Patch) error {
	return s.call(ctx, func(ctx context.Context) error {
		if subresource == "" {
			return s.cached.Patch(ctx, object, patch, fieldOwner)
		}
		return s.cached.SubResource(subresource).Patch(ctx, object, patch, fieldOwner)
	})
}

// fieldOwner is the name under which di-server owns fields of jobs: events that
// tell of a resize name its writer.
const fieldOwner = client.FieldOwner(names.ServerName)

// SetupIndexes adds the indexes that the server reads by; it is called before
// the cache starts.
func SetupIndexes(ctx context.Context, informers cache.Informers) error {
	informer, err := podInformer(ctx, informers, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	err = informer.AddIndexers(toolscache.Indexers{
		ownerIndex: podIndex(func(pod *corev1.Pod) []string {
			owner := jobOwner(pod)
			if owner == nil {
				return nil
			}
			return []string{ownerKey(pod.Namespace, owner.UID)}
		}),
		addressIndex: podIndex(standsFor),
	})
	if err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	return nil
}

// ownerKey is the key of ownerIndex: who owns a pod is of its namespace, whatever
// another namespace's pod says of itself.
func ownerKey(namespace string, owner types.UID) string {
	return namespace + "/" + string(owner)
}

// podIndex makes an index function of one of pods.
func podIndex(keys func(*corev1.Pod) []string) toolscache.IndexFunc {
	return func(object any) ([]string, error) {
		pod, isPod := object.(*corev1.Pod)
		if !isPod {
			return nil, nil
		}
		return keys(pod), nil
	}
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

// ownedBy reports whether a job controls an object. One of another namespace may
// say so too, but is none of its.
func ownedBy(object metav1.Object, job *v2alpha1.DIJob) bool {
	owner := jobOwner(object)
	return owner != nil && owner.UID == job.UID && object.GetNamespace() == job.Namespace
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

// look reads an object live, for the sender of the request.
func (s *Server) look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return s.lookups.read(ctx, senderOf(ctx), key, object)
}

// podsOf returns the pods that a job controls, by name.
func (s *Server) podsOf(ctx context.Context, job *v2alpha1.DIJob) (map[string]*corev1.Pod, error) {
	list, err := s.store.pods(ctx, ownerIndex, ownerKey(job.Namespace, job.UID))
	if err != nil {
		return nil, fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	pods := make(map[string]*corev1.Pod, len(list))
	for _, pod := range list {
		pods[pod.Name] = pod
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
