// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
)

// Options configure a Store. All fields but Watches are required.
type Options struct {
	// Cluster is the access to the cluster.
	Cluster Cluster
	// Watches follows the watches of the cache; nil for none.
	Watches *Watches
	// Rates limits the writes of each job. Budget limits their bytes.
	Rates  *limit.Rates
	Budget *limit.Budget
	// Clock provides the time.
	Clock clock.PassiveClock
	// Log logs the details that clients do not see.
	Log logr.Logger
	// AggregatorConfig names the cluster's AggregatorConfig.
	AggregatorConfig types.NamespacedName
}

// Store reads and edits jobs and their Memberships.
type Store struct {
	Cluster
	options Options
	retries retries
	ages    recordAges
}

// New returns a store.
func New(options Options) *Store {
	return &Store{
		Cluster: options.Cluster, options: options, retries: newRetries(options.Clock, options.Watches), ages: newRecordAges(options.Clock),
	}
}

// PodsOf returns the pods that a job controls, by name.
func (s *Store) PodsOf(ctx context.Context, job *v2alpha1.DIJob) (map[string]*corev1.Pod, error) {
	list, err := s.Pods(ctx, OwnerIndex, OwnerKey(job.Namespace, job.UID))
	if err != nil {
		return nil, fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	pods := make(map[string]*corev1.Pod, len(list))
	for _, pod := range list {
		pods[pod.Name] = pod
	}
	return pods, nil
}

// MembershipOf returns a job's Membership from the cache; nil if there is none.
func (s *Store) MembershipOf(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	var membership v2alpha1.Membership
	err := s.Get(ctx, client.ObjectKeyFromObject(job), &membership)
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

// liveMembership reads a job's Membership live. It returns ErrNotYet until the operator has created it. A
// Membership that is terminating, or belongs to an earlier job of the same name, does not count.
func (s *Store) liveMembership(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	key := client.ObjectKeyFromObject(job)
	var list v2alpha1.Membership
	err := s.Live(ctx, key, &list)
	if err == nil && list.Spec.JobUID == job.UID && list.DeletionTimestamp == nil {
		return &list, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	var current v2alpha1.DIJob
	if err := s.Live(ctx, key, &current); err != nil {
		return nil, err
	}
	if current.UID != job.UID {
		return nil, failure.New(failure.NotFound, "job %q is gone: another bears its name", key)
	}
	if err := CheckWritable(&current); err != nil {
		return nil, err
	}
	return nil, ErrNotYet
}

// CheckWritable refuses jobs whose replicas cannot be changed.
func CheckWritable(job *v2alpha1.DIJob) error {
	switch {
	case job.DeletionTimestamp != nil:
		return failure.New(failure.NotFound, "job %s/%s is being deleted", job.Namespace, job.Name)
	case ptr.Deref(job.Spec.Suspend, false):
		return failure.New(failure.Unavailable, "job %s/%s is suspended: ask again when it is resumed", job.Namespace, job.Name)
	case names.OtherManager(&job.Spec) != "":
		return failure.New(failure.Conflict, "job %s/%s is run by %s and not by DI Orchestrator (spec.managedBy)",
			job.Namespace, job.Name, names.OtherManager(&job.Spec))
	case IsFinished(job):
		return failure.New(failure.Conflict, "job %s/%s has finished: %s", job.Namespace, job.Name, result(job))
	}
	return nil
}

// IsFinished reports whether a job has succeeded or failed.
func IsFinished(job *v2alpha1.DIJob) bool {
	return result(job) != ""
}

// result returns the result of a finished job; empty until the job has finished. The operator relies on
// the conditions, earlier releases and users rely on the phase. Either is sufficient.
func result(job *v2alpha1.DIJob) v2alpha1.Phase {
	for _, phase := range []v2alpha1.Phase{v2alpha1.JobFailed, v2alpha1.JobSucceeded} {
		if job.Status.Phase == phase || conditions.IsTrue(&job.Status, string(phase)) {
			return phase
		}
	}
	return ""
}

// ReadFailure returns the failure of reading a worker-led job.
func ReadFailure(key types.NamespacedName, err error) error {
	if apierrors.IsNotFound(err) {
		return failure.New(failure.NotFound, "job %q not found", key).Because(err)
	}
	return fmt.Errorf("reading or writing job %s: %w", key, err)
}

// TaskOf returns the task of a type; nil if the job has none.
func TaskOf(job *v2alpha1.DIJob, taskType v2alpha1.TaskType) *v2alpha1.Task {
	for i := range job.Spec.Tasks {
		if job.Spec.Tasks[i].Type == taskType {
			return &job.Spec.Tasks[i]
		}
	}
	return nil
}
