// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/store"
)

// Caller is the pod that a request names as its own, with that pod's job. The Sender may be another pod or a
// user.
type Caller struct {
	// Pod is the pod.
	Pod *corev1.Pod
	// Job is the job that controls the pod.
	Job *v2alpha1.DIJob
}

// Role returns the role of the pod in its job.
func (c *Caller) Role() names.ReplicaType {
	return store.RoleOf(c.Pod)
}

// Container identifies the running instance of the pod's main container. The result changes when the container
// restarts.
func (c *Caller) Container() string {
	return membership.Instance(c.Pod)
}

// Callers finds the callers that requests name.
type Callers struct {
	options    Options
	lookups    *Lookups
	authorizer *Authorizer
}

// Caller returns a caller that has one of the roles. It reads the cache first, and live if the cache has no
// such pod.
func (c *Callers) Caller(ctx context.Context, key types.NamespacedName, roles ...names.ReplicaType) (*Caller, error) {
	return c.caller(ctx, key, func(pod *corev1.Pod) error { return c.lookups.Find(ctx, key, pod) }, roles)
}

// WritingCaller reads a caller live. It refuses senders that may not write for the caller's job, and jobs that
// cannot be written. The read is live because the meaning of the request depends on whether the container has
// restarted.
func (c *Callers) WritingCaller(ctx context.Context, key types.NamespacedName, wanted Permission, roles ...names.ReplicaType) (*Caller, error) {
	found, err := c.caller(ctx, key, func(pod *corev1.Pod) error { return c.readRunning(ctx, key, pod) }, roles)
	if err != nil {
		return nil, err
	}
	if err := c.authorizer.Authorize(ctx, found.Job, wanted); err != nil {
		return nil, err
	}
	return found, store.CheckWritable(found.Job)
}

// readRunning reads a pod live. It repeats the read while the status shows a main container that has
// terminated and will be restarted. In that case the caller is the new container and must not be mistaken for
// the old one. The wait is bounded.
func (c *Callers) readRunning(ctx context.Context, key types.NamespacedName, into *corev1.Pod) error {
	// Names that are not in the cache are subject to the rate limits of lookups.
	if err := c.lookups.Find(ctx, key, &corev1.Pod{}); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.RestartTimeout)
	defer cancel()
	err := store.Retry(bounded, func(ctx context.Context) error {
		var pod corev1.Pod
		if err := c.options.Cluster.Live(ctx, key, &pod); err != nil {
			return err
		}
		if awaitsRestart(&pod) {
			return store.ErrNotYet
		}
		pod.DeepCopyInto(into)
		return nil
	})
	if failed := new(failure.Error); errors.As(err, &failed) && failed.Kind == failure.Unavailable {
		return c.lookups.Look(ctx, key, into)
	}
	return err
}

// awaitsRestart reports whether the status of a pod shows a main container that has terminated and will be
// restarted.
func awaitsRestart(pod *corev1.Pod) bool {
	main := podstate.MainContainer(pod)
	if main == nil || !podstate.Active(pod) {
		return false
	}
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		if main.State.Terminated != nil && main.State.Terminated.ExitCode == 0 {
			return false
		}
	case corev1.RestartPolicyAlways:
	}
	waiting := main.State.Waiting
	return main.State.Terminated != nil || waiting != nil && waiting.Reason == podstate.CrashLoopBackOff
}

func (c *Callers) caller(ctx context.Context, key types.NamespacedName, read func(*corev1.Pod) error, roles []names.ReplicaType) (*Caller, error) {
	var pod corev1.Pod
	err := read(&pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure.New(failure.NotFound, "%s %q not found", roles[0], key).Because(err)
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	}
	for _, role := range roles {
		if store.RoleOf(&pod) == role {
			job, err := c.JobOf(ctx, &pod)
			return &Caller{Pod: &pod, Job: job}, err
		}
	}
	return nil, failure.New(failure.NotFound, "pod %q is no %s of a job", key, roles[0])
}

// JobOf returns the coordinator-led job that controls a pod.
func (c *Callers) JobOf(ctx context.Context, pod *corev1.Pod) (*v2alpha1.DIJob, error) {
	owner := store.JobOwner(pod)
	if owner == nil {
		return nil, failure.New(failure.NotFound, "pod %s/%s belongs to no job", pod.Namespace, pod.Name)
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
	var job v2alpha1.DIJob
	err := c.lookups.Find(ctx, key, &job)
	if err == nil && job.UID != owner.UID {
		// The cache may still have an earlier job of the same name.
		job = v2alpha1.DIJob{}
		err = c.lookups.Look(ctx, key, &job)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure.New(failure.NotFound, "job %q of pod %q is gone", key, pod.Name).Because(err)
	case err != nil:
		return nil, fmt.Errorf("reading job %s: %w", key, err)
	case job.UID != owner.UID:
		return nil, failure.New(failure.NotFound, "job %q of pod %q is gone: another bears its name", key, pod.Name)
	case job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed:
		return nil, failure.New(failure.NotFound, "job %q is not coordinator-led", key)
	}
	return &job, nil
}
