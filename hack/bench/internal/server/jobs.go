// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	namespace = metav1.NamespaceDefault
	// writers is the number of jobs that are created concurrently.
	writers = 32
)

// makeJobs creates jobs with the Memberships and running pods that an operator would create for
// them. It returns their coordinators.
func (r *polling) makeJobs(ctx context.Context, jobs int, collectors, learners int32) ([]coordinator.Caller, error) {
	callers := make([]coordinator.Caller, jobs)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range jobs {
		group.Go(func() error {
			var err error
			callers[i], err = r.makeJob(ctx, i, collectors, learners)
			return err
		})
	}
	return callers, group.Wait()
}

func (r *polling) makeJob(ctx context.Context, index int, collectors, learners int32) (coordinator.Caller, error) {
	job := harness.CoordinatorLedJob(namespace, fmt.Sprintf("cartpole-dqn-%04d", index))
	if err := r.create(ctx, job); err != nil {
		return coordinator.Caller{}, err
	}
	list := &v2alpha1.Membership{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: job.Name, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind("DIJob")),
		}},
		Spec: v2alpha1.MembershipSpec{JobUID: job.UID},
	}
	grow := membership.Grow{Job: job.Name, MaxMembers: membership.MaxMembers, Random: rand.String, Demands: []membership.Demand{
		{Task: v2alpha1.TaskTypeCollector, Replicas: collectors}, {Task: v2alpha1.TaskTypeLearner, Replicas: learners},
	}}
	if _, err := grow.Apply(&list.Spec, &list.Status); err != nil {
		return coordinator.Caller{}, fmt.Errorf("listing members: %w", err)
	}
	if err := r.create(ctx, list); err != nil {
		return coordinator.Caller{}, err
	}
	pods, err := podsOf(job, list)
	if err != nil {
		return coordinator.Caller{}, err
	}
	for i, pod := range pods {
		if err := r.runPod(ctx, pod, coordinator.Address(index, i)); err != nil {
			return coordinator.Caller{}, err
		}
	}
	list.Status = statusOf(list)
	if err := r.world.API.Status().Update(ctx, list); err != nil {
		return coordinator.Caller{}, fmt.Errorf("writing the status of a Membership: %w", err)
	}
	return coordinator.Caller{From: coordinator.Address(index, 0), Namespace: namespace, Pod: names.CoordinatorPod(job.Name)}, nil
}

// podsOf returns the pods of a job, the coordinator first.
func podsOf(job *v2alpha1.DIJob, list *v2alpha1.Membership) ([]*corev1.Pod, error) {
	builder := workload.NewBuilder(job, workload.Settings{})
	pod, err := builder.Coordinator()
	if err != nil {
		return nil, fmt.Errorf("building a coordinator: %w", err)
	}
	pods := []*corev1.Pod{pod}
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		if pod, err = builder.Replica(member, member.PodName); err != nil {
			return nil, fmt.Errorf("building a replica: %w", err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// statusOf returns a status in which all pods of a list are running.
func statusOf(list *v2alpha1.Membership) v2alpha1.MembershipStatus {
	var status v2alpha1.MembershipStatus
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		status.Slots = append(status.Slots, v2alpha1.SlotStatus{Slot: member.Slot, ObservedPod: member.PodName, Phase: corev1.PodRunning})
	}
	return status
}

// runPod creates a ready pod.
func (r *polling) runPod(ctx context.Context, pod *corev1.Pod, address string) error {
	if err := r.create(ctx, pod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = address
	pod.Status.PodIPs = []corev1.PodIP{{IP: address}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: names.Container, Ready: true, Image: pod.Spec.Containers[0].Image,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	if err := r.world.API.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

func (r *polling) create(ctx context.Context, object client.Object) error {
	if err := r.world.API.Create(ctx, object); err != nil {
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
