// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

const messageGet = "successfully get replicas"

// jobReplicas is the answer about one job, or about the DDP learners of one
// aggregator, which has no collectors and says null for them.
type jobReplicas struct {
	Namespace   string   `json:"namespace"`
	Coordinator string   `json:"coordinator"`
	Collectors  []string `json:"collectors"`
	Learners    []string `json:"learners"`
}

// oneReplica is the answer about one replica.
type oneReplica struct {
	Namespace   string            `json:"namespace"`
	Coordinator string            `json:"coordinator"`
	ReplicaType names.ReplicaType `json:"replicaType"`
	Name        string            `json:"name"`
}

// getReplicas answers GET /replicas.
func (s *Server) getReplicas(c *gin.Context) error {
	wanted, err := readFilter(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	var read *reading
	switch {
	case wanted.name != "":
		read, err = s.replica(ctx, types.NamespacedName{Namespace: wanted.namespace, Name: wanted.name})
	case wanted.aggregator != "":
		read, err = s.ddpLearners(ctx, types.NamespacedName{Namespace: wanted.namespace, Name: wanted.aggregator})
	case wanted.coordinator != "":
		read, err = s.replicasOf(ctx, types.NamespacedName{Namespace: wanted.namespace, Name: wanted.coordinator})
	default:
		read, err = s.allReplicas(ctx, wanted.namespace)
	}
	if err != nil {
		return err
	}
	return s.answerInTurn(c, read)
}

// allReplicas lists the replicas of each coordinator-led job of a namespace, or
// of all, that the caller may see, by name.
func (s *Server) allReplicas(ctx context.Context, namespace string) (*reading, error) {
	visible, err := s.gate.visible(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return readingOf(ctx, nil, func(ctx context.Context) (any, error) { return s.listedIn(ctx, namespace, visible) }), nil
}

func (s *Server) listedIn(ctx context.Context, namespace string, visible func(*v2alpha1.DIJob) bool) ([]jobReplicas, error) {
	var jobs v2alpha1.DIJobList
	if err := s.store.list(ctx, &jobs, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing jobs: %w", err)
	}
	all := []jobReplicas{}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed || !visible(job) {
			continue
		}
		one, err := s.listed(ctx, job, names.CoordinatorPod(job.Name))
		if err != nil {
			return nil, err
		}
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b jobReplicas) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Coordinator, b.Coordinator))
	})
	return all, nil
}

// replicasOf lists the replicas of the job of a coordinator.
func (s *Server) replicasOf(ctx context.Context, coordinator types.NamespacedName) (*reading, error) {
	if err := s.gate.approach(ctx, podTarget(coordinator), getting()); err != nil {
		return nil, err
	}
	found, err := s.knownCaller(ctx, coordinator, names.ReplicaTypeCoordinator)
	if err != nil {
		return nil, err
	}
	if err := s.gate.admit(ctx, found.job, getting()); err != nil {
		return nil, err
	}
	return readingOf(ctx, found.job, func(ctx context.Context) (any, error) { return s.listed(ctx, found.job, coordinator.Name) }), nil
}

// listed lists the replicas of a job: its members, and where there is no list
// of them, before the operator made it and after the job has finished, its pods.
func (s *Server) listed(ctx context.Context, job *v2alpha1.DIJob, coordinator string) (*jobReplicas, error) {
	place, err := s.placeOf(ctx, job)
	if err != nil {
		return nil, err
	}
	members, err := s.membershipOf(ctx, job)
	if err != nil {
		return nil, err
	}
	var urls membership.URLs
	if members == nil || isFinished(job) {
		urls = place.podURLs()
	} else {
		urls = place.Listed(&members.Spec, &members.Status)
	}
	return answer(job, coordinator, urls), place.err()
}

func answer(job *v2alpha1.DIJob, coordinator string, urls membership.URLs) *jobReplicas {
	return &jobReplicas{
		Namespace:   job.Namespace,
		Coordinator: coordinator,
		Collectors:  urls.Collectors,
		Learners:    urls.Learners,
	}
}

// ddpLearners lists the DDP learners of an aggregator. What an aggregator is
// told follows from its own name, so that it never changes while it lives,
// even when its unit was replaced meanwhile.
func (s *Server) ddpLearners(ctx context.Context, key types.NamespacedName) (*reading, error) {
	found, err := s.aggregator(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := s.gate.admit(ctx, found.job, getting()); err != nil {
		return nil, err
	}
	return readingOf(ctx, found.job, func(ctx context.Context) (any, error) {
		place, err := s.placeOf(ctx, found.job)
		if err != nil {
			return nil, err
		}
		data := answer(found.job, key.Name, membership.URLs{Learners: place.ownURLs(found, key.Name, s.options.GPUResource)})
		return data, place.err()
	}), nil
}

// foundReplica is a replica: its pod, where it exists, and its member, where
// it is on the list.
type foundReplica struct {
	job    *v2alpha1.DIJob
	role   names.ReplicaType
	pod    *corev1.Pod
	member *v2alpha1.Member
}

func (s *Server) aggregator(ctx context.Context, key types.NamespacedName) (*foundReplica, error) {
	found, err := s.anyReplica(ctx, key)
	if err != nil {
		return nil, err
	}
	if found.role != names.ReplicaTypeAggregator {
		return nil, failure(KindNotFound, "replica %q is no aggregator but a %s", key, found.role)
	}
	return found, nil
}

// replica describes one replica.
func (s *Server) replica(ctx context.Context, key types.NamespacedName) (*reading, error) {
	found, err := s.anyReplica(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := s.gate.admit(ctx, found.job, getting()); err != nil {
		return nil, err
	}
	data := &oneReplica{
		Namespace:   key.Namespace,
		Coordinator: names.CoordinatorPod(found.job.Name),
		ReplicaType: found.role,
		Name:        key.Name,
	}
	return readingOf(ctx, found.job, func(context.Context) (any, error) { return data, nil }), nil
}

// anyReplica finds a replica by name: its pod in the cache, else the member
// that is to have a pod of that name, else its pod live.
func (s *Server) anyReplica(ctx context.Context, key types.NamespacedName) (*foundReplica, error) {
	if err := s.gate.approach(ctx, podTarget(key), getting()); err != nil {
		return nil, err
	}
	var pod corev1.Pod
	err := s.store.get(ctx, key, &pod)
	if apierrors.IsNotFound(err) {
		found, err := s.namedMember(ctx, key)
		if found != nil || err != nil {
			return found, err
		}
		err = s.look(ctx, key, &pod)
		if apierrors.IsNotFound(err) {
			return nil, failure(KindNotFound, "replica %q not found", key).because(err)
		}
		if err != nil {
			return nil, fmt.Errorf("reading pod %s: %w", key, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	}
	return s.replicaOfPod(ctx, &pod)
}

// replicaOfPod returns the replica that a pod is.
func (s *Server) replicaOfPod(ctx context.Context, pod *corev1.Pod) (*foundReplica, error) {
	role := roleOf(pod)
	if role == "" {
		return nil, failure(KindNotFound, "pod %s/%s is no replica of a job", pod.Namespace, pod.Name)
	}
	job, err := s.jobOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	members, err := s.membershipOf(ctx, job)
	if err != nil {
		return nil, err
	}
	found := &foundReplica{job: job, role: role, pod: pod}
	if members != nil {
		found.member = slotMember(&members.Spec, pod.Annotations[names.AnnotationSlot])
	}
	return found, nil
}

// namedMember finds the member that is to have a pod of that name, for which
// the name itself tells the job; nil where there is none.
func (s *Server) namedMember(ctx context.Context, key types.NamespacedName) (*foundReplica, error) {
	for _, name := range membership.JobNames(key.Name) {
		var job v2alpha1.DIJob
		err := s.store.get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, &job)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading job %s/%s: %w", key.Namespace, name, err)
		}
		members, err := s.membershipOf(ctx, &job)
		if err != nil {
			return nil, err
		}
		if members == nil {
			continue
		}
		member, role := membership.Find(name, &members.Spec, &members.Status, key.Name)
		if member != nil {
			return &foundReplica{job: &job, role: role, member: member}, nil
		}
	}
	return nil, nil
}

func slotMember(spec *v2alpha1.MembershipSpec, slot string) *v2alpha1.Member {
	for i := range spec.Members {
		if spec.Members[i].Slot == slot {
			return &spec.Members[i]
		}
	}
	return nil
}
