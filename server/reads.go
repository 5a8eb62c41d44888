// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/server/wire"
)

const messageGet = "successfully get replicas"

// read is a read request of an authorized sender.
type read struct {
	// flow is the key of the read's flow in the fair queue.
	flow string
	// message is the message of the answer; messageGet by default.
	message string
	// data returns the answer from the caches without waiting.
	data reading
}

// reading returns an answer from the caches without waiting.
type reading func(context.Context) (any, error)

// newRead returns a read about a job, or about several jobs if job is nil. Unauthenticated senders share
// the flow of the job.
func newRead(ctx context.Context, job *v2alpha1.DIJob, data reading) *read {
	sender := auth.SenderOf(ctx)
	if job != nil && !sender.IsKnown() {
		return &read{flow: "job/" + string(job.UID), data: data}
	}
	return &read{flow: sender.Account(), data: data}
}

// readQueue answers reads in the order of a fair queue.
type readQueue struct {
	queue *limit.Queue
	// hold is how long a read waits for its turn.
	hold time.Duration
}

// answer answers a read when the fair queue runs it. It releases the queue before it sends the answer, so a
// slow client blocks no other.
func (q *readQueue) answer(c *gin.Context, wanted *read) error {
	body, err := q.encode(c.Request.Context(), wanted)
	if err != nil {
		return err
	}
	c.Data(http.StatusOK, jsonType, body)
	return nil
}

func (q *readQueue) encode(ctx context.Context, wanted *read) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, q.hold)
	defer cancel()
	release, err := q.queue.Acquire(bounded, wanted.flow)
	if err != nil {
		return nil, failure.TimedOut(err)
	}
	defer release()
	data, err := wanted.data(ctx)
	if err != nil {
		return nil, err
	}
	return wire.Success(cmp.Or(wanted.message, messageGet), data).Encode()
}

// replicaReads answers reads of the replicas of coordinator-led jobs.
type replicaReads struct {
	access *auth.Auth
	store  *store.Store
	reads  *readQueue
	// gpus is the resource that counts GPUs.
	gpus corev1.ResourceName
}

// get answers GET /replicas.
func (r *replicaReads) get(c *gin.Context) error {
	filter, err := wire.ReadFilter(c.Request.URL.RawQuery)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	in := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: filter.Namespace, Name: name}
	}
	var found *read
	switch {
	case filter.Name != "":
		found, err = r.replica(ctx, in(filter.Name))
	case filter.Aggregator != "":
		found, err = r.ddpLearners(ctx, in(filter.Aggregator))
	case filter.Coordinator != "":
		found, err = r.replicasOf(ctx, in(filter.Coordinator))
	default:
		found, err = r.allReplicas(ctx, filter.Namespace)
	}
	if err != nil {
		return err
	}
	return r.reads.answer(c, found)
}

// allReplicas lists the replicas of each coordinator-led job that the sender may read, by name. It lists
// one namespace, or all namespaces if namespace is empty.
func (r *replicaReads) allReplicas(ctx context.Context, namespace string) (*read, error) {
	visible, err := r.access.Authorizer.Visible(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return newRead(ctx, nil, func(ctx context.Context) (any, error) { return r.listJobs(ctx, namespace, visible) }), nil
}

func (r *replicaReads) listJobs(ctx context.Context, namespace string, visible func(*v2alpha1.DIJob) bool) ([]wire.Replicas, error) {
	var jobs v2alpha1.DIJobList
	if err := r.store.List(ctx, &jobs, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing jobs: %w", err)
	}
	all := []wire.Replicas{}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed || !visible(job) {
			continue
		}
		one, err := r.listReplicas(ctx, job, names.CoordinatorPod(job.Name))
		if err != nil {
			return nil, err
		}
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b wire.Replicas) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Coordinator, b.Coordinator))
	})
	return all, nil
}

// replicasOf lists the replicas of the job of a coordinator.
func (r *replicaReads) replicasOf(ctx context.Context, coordinator types.NamespacedName) (*read, error) {
	job, err := jobOfCoordinator(ctx, r.access, coordinator, auth.Replicas("get"))
	if err != nil {
		return nil, err
	}
	return newRead(ctx, job, func(ctx context.Context) (any, error) { return r.listReplicas(ctx, job, coordinator.Name) }), nil
}

// listReplicas lists the replicas of a job. It lists the members. Before the operator creates the
// Membership, and after the job has finished, it lists the pods.
func (r *replicaReads) listReplicas(ctx context.Context, job *v2alpha1.DIJob, coordinator string) (*wire.Replicas, error) {
	endpoints, err := r.store.EndpointsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	list, err := r.store.MembershipOf(ctx, job)
	if err != nil {
		return nil, err
	}
	var urls membership.URLs
	if list == nil || store.IsFinished(job) {
		urls = endpoints.PodURLs()
	} else {
		urls = endpoints.Listed(&list.Spec, &list.Status)
	}
	return wire.NewReplicas(job, coordinator, urls), endpoints.Err()
}

// ddpLearners lists the DDP learners of an aggregator. The answer depends on the aggregator's own name.
// Therefore it is the same as long as the aggregator exists, even after its unit was replaced.
func (r *replicaReads) ddpLearners(ctx context.Context, key types.NamespacedName) (*read, error) {
	found, err := r.find(ctx, key)
	if err != nil {
		return nil, err
	}
	if found.role != names.ReplicaTypeAggregator {
		return nil, failure.New(failure.NotFound, "replica %q is no aggregator but a %s", key, found.role)
	}
	if err := r.access.Authorizer.Authorize(ctx, found.job, auth.Replicas("get")); err != nil {
		return nil, err
	}
	return newRead(ctx, found.job, func(ctx context.Context) (any, error) {
		endpoints, err := r.store.EndpointsOf(ctx, found.job)
		if err != nil {
			return nil, err
		}
		learners := endpoints.DDPLearners(key.Name, found.pod, found.member, r.gpus)
		return wire.NewReplicas(found.job, key.Name, membership.URLs{Learners: learners}), endpoints.Err()
	}), nil
}

// replica returns the answer about one replica.
func (r *replicaReads) replica(ctx context.Context, key types.NamespacedName) (*read, error) {
	found, err := r.find(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := r.access.Authorizer.Authorize(ctx, found.job, auth.Replicas("get")); err != nil {
		return nil, err
	}
	data := &wire.Replica{
		Namespace:   key.Namespace,
		Coordinator: names.CoordinatorPod(found.job.Name),
		ReplicaType: found.role,
		Name:        key.Name,
	}
	return newRead(ctx, found.job, func(context.Context) (any, error) { return data, nil }), nil
}

// replica is a replica: its pod if the pod exists, and its member if it has one.
type replica struct {
	job    *v2alpha1.DIJob
	role   names.ReplicaType
	pod    *corev1.Pod
	member *v2alpha1.Member
}

// find finds a replica by the name of its pod. It reads the pod from the cache, then the member whose pod
// has the name, then the pod live.
func (r *replicaReads) find(ctx context.Context, key types.NamespacedName) (*replica, error) {
	if err := r.access.Authorizer.Preauthorize(ctx, auth.PodTarget(key), auth.Replicas("get")); err != nil {
		return nil, err
	}
	var pod corev1.Pod
	err := r.store.Get(ctx, key, &pod)
	if apierrors.IsNotFound(err) {
		if found, err := r.findMember(ctx, key); found != nil || err != nil {
			return found, err
		}
		err = r.access.Lookups.Look(ctx, key, &pod)
		if apierrors.IsNotFound(err) {
			return nil, failure.New(failure.NotFound, "replica %q not found", key).Because(err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	}
	return r.replicaOf(ctx, &pod)
}

// replicaOf returns the replica of a pod.
func (r *replicaReads) replicaOf(ctx context.Context, pod *corev1.Pod) (*replica, error) {
	role := store.RoleOf(pod)
	if role == "" {
		return nil, failure.New(failure.NotFound, "pod %s/%s is no replica of a job", pod.Namespace, pod.Name)
	}
	job, err := r.access.Callers.JobOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	list, err := r.store.MembershipOf(ctx, job)
	if err != nil {
		return nil, err
	}
	found := &replica{job: job, role: role, pod: pod}
	if list != nil {
		found.member = membership.BySlot(&list.Spec, pod.Annotations[names.AnnotationSlot])
	}
	return found, nil
}

// findMember finds the member whose pod has a name; nil if there is none. The name of the pod also
// determines the possible jobs.
func (r *replicaReads) findMember(ctx context.Context, key types.NamespacedName) (*replica, error) {
	for _, name := range membership.JobNames(key.Name) {
		var job v2alpha1.DIJob
		err := r.store.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, &job)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading job %s/%s: %w", key.Namespace, name, err)
		}
		list, err := r.store.MembershipOf(ctx, &job)
		if err != nil {
			return nil, err
		}
		if list == nil {
			continue
		}
		if member, role := membership.Find(name, &list.Spec, &list.Status, key.Name); member != nil {
			return &replica{job: &job, role: role, member: member}, nil
		}
	}
	return nil, nil
}
