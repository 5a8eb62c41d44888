// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// caller is a pod that a request names as its own, and its job. Who really
// sends the request, and may, is for the gate to say.
type caller struct {
	pod *corev1.Pod
	job *v2alpha1.DIJob
}

// role returns the role of the pod in its job.
func (c *caller) role() names.ReplicaType {
	return roleOf(c.pod)
}

// container identifies the coordinator's container for its life: the pod and
// how often its container was restarted.
func (c *caller) container() string {
	return membership.Container(c.pod)
}

// knownCaller finds the caller in the caches, and live where they do not know it yet.
func (s *Server) knownCaller(ctx context.Context, key types.NamespacedName, roles ...names.ReplicaType) (*caller, error) {
	return s.callerFrom(ctx, key, func(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) error {
		return s.find(ctx, key, pod)
	}, roles)
}

// liveCaller finds the caller live: whether its container was restarted decides
// what its request means, and the cache may not know yet that it was. It tells
// why the sender may not write for its job, and why nobody may.
func (s *Server) liveCaller(ctx context.Context, key types.NamespacedName, wanted permission, roles ...names.ReplicaType) (*caller, error) {
	found, err := s.callerFrom(ctx, key, s.lookRunning, roles)
	if err != nil {
		return nil, err
	}
	if err := s.gate.admit(ctx, found.job, wanted); err != nil {
		return nil, err
	}
	return found, writable(found.job)
}

// lookRunning reads a pod live, again while its status says that its main
// container has ended and another will come: the caller can only be that one,
// and what it asks must not be taken for its predecessor's. A status that does
// not come along is waited for only so long.
func (s *Server) lookRunning(ctx context.Context, key types.NamespacedName, found *corev1.Pod) error {
	// What the cache does not know is looked for once, as others look it up.
	if err := s.find(ctx, key, &corev1.Pod{}); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.options.Times.Successor)
	defer cancel()
	err := persist(bounded, func(ctx context.Context) error {
		var pod corev1.Pod
		if err := s.store.live(ctx, key, &pod); err != nil {
			return err
		}
		if awaitsSuccessor(&pod) {
			return errNotYet
		}
		pod.DeepCopyInto(found)
		return nil
	})
	if failed := new(Error); errors.As(err, &failed) && failed.Kind == KindUnavailable {
		return s.look(ctx, key, found)
	}
	return err
}

// awaitsSuccessor reports whether a pod's main container has terminated, by its
// status, and will be restarted.
func awaitsSuccessor(pod *corev1.Pod) bool {
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

type read func(context.Context, types.NamespacedName, client.Object) error

type readPod func(context.Context, types.NamespacedName, *corev1.Pod) error

func (s *Server) callerFrom(ctx context.Context, key types.NamespacedName, read readPod, roles []names.ReplicaType) (*caller, error) {
	var pod corev1.Pod
	err := read(ctx, key, &pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure(KindNotFound, "%s %q not found", roles[0], key).because(err)
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	}
	for _, role := range roles {
		if roleOf(&pod) == role {
			job, err := s.jobOf(ctx, &pod)
			return &caller{pod: &pod, job: job}, err
		}
	}
	return nil, failure(KindNotFound, "pod %q is no %s of a job", key, roles[0])
}

// jobOf returns the coordinator-led job that controls a pod.
func (s *Server) jobOf(ctx context.Context, pod *corev1.Pod) (*v2alpha1.DIJob, error) {
	owner := jobOwner(pod)
	if owner == nil {
		return nil, failure(KindNotFound, "pod %s/%s belongs to no job", pod.Namespace, pod.Name)
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
	var job v2alpha1.DIJob
	err := s.find(ctx, key, &job)
	if err == nil && job.UID != owner.UID {
		// The cache may still know the job's predecessor of the same name.
		job = v2alpha1.DIJob{}
		err = s.look(ctx, key, &job)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, failure(KindNotFound, "job %q of pod %q is gone", key, pod.Name).because(err)
	case err != nil:
		return nil, fmt.Errorf("reading job %s: %w", key, err)
	case job.UID != owner.UID:
		return nil, failure(KindNotFound, "job %q of pod %q is gone: another bears its name", key, pod.Name)
	case job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed:
		return nil, failure(KindNotFound, "job %q is not coordinator-led", key)
	}
	return &job, nil
}

// writable tells why a job's replicas cannot be changed.
func writable(job *v2alpha1.DIJob) error {
	switch {
	case job.DeletionTimestamp != nil:
		return failure(KindNotFound, "job %s/%s is being deleted", job.Namespace, job.Name)
	case ptr.Deref(job.Spec.Suspend, false):
		return failure(KindUnavailable, "job %s/%s is suspended: ask again when it is resumed", job.Namespace, job.Name)
	case names.OtherManager(&job.Spec) != "":
		return failure(KindConflict, "job %s/%s is run by %s and not by DI Orchestrator (spec.managedBy)",
			job.Namespace, job.Name, names.OtherManager(&job.Spec))
	case isFinished(job):
		return failure(KindConflict, "job %s/%s has finished: %s", job.Namespace, job.Name, end(job))
	}
	return nil
}

func isFinished(job *v2alpha1.DIJob) bool {
	return end(job) != ""
}

// end returns how a job has ended; empty while it has not. The operator goes by
// the conditions, and earlier releases and people by the phase: where they
// differ the job has ended by the one that says so.
func end(job *v2alpha1.DIJob) v2alpha1.Phase {
	for _, phase := range []v2alpha1.Phase{v2alpha1.JobFailed, v2alpha1.JobSucceeded} {
		if job.Status.Phase == phase || conditions.IsTrue(&job.Status, string(phase)) {
			return phase
		}
	}
	return ""
}

// roleOf returns the role of a pod of a coordinator-led job, empty for others.
func roleOf(pod *corev1.Pod) names.ReplicaType {
	if jobOwner(pod) == nil {
		return ""
	}
	return names.RoleOf(pod)
}
