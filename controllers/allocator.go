// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/allocator"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	// DefaultAllocatorCycle is how often all preemptible jobs are placed anew
	// where nothing else is said.
	DefaultAllocatorCycle = time.Minute
	// leastAllocatorPause is how long a round is away from the last one at least,
	// however much changes.
	leastAllocatorPause = time.Second
	// unreadyGrace is how long a node may be not ready before its jobs are placed
	// elsewhere: as long as Kubernetes leaves pods on such a node.
	unreadyGrace = 5 * time.Minute
)

// Allocator places all preemptible jobs, in rounds: it writes their
// status.allocation and the condition that says why, and nothing else.
type Allocator struct {
	// client reads from caches and writes to the API server.
	client   client.Client
	recorder events.EventRecorder
	policy   allocator.Policy
	cycle    time.Duration
	now      func() time.Time

	// last is when the last round was; written is what was written of each job,
	// until the cache knows it. There is one worker.
	last    time.Time
	written map[types.UID]*v2alpha1.DIJob
}

// Reconcile makes a round, unless the last one was just now.
func (a *Allocator) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if left := a.last.Add(leastAllocatorPause).Sub(a.now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	a.last = a.now()
	jobs, err := a.jobs(ctx)
	if err != nil || len(jobs) == 0 {
		return ctrl.Result{}, err
	}
	round, err := a.survey(ctx, jobs)
	if err != nil {
		return ctrl.Result{}, err
	}
	placements := a.policy.Optimize(round.wanted, round.snapshot.Nodes, round.previous)
	for name, message := range round.invalid {
		placements[name] = allocator.Placement{Reason: v2alpha1.ConditionInvalidSpec, Message: message}
	}
	var failed []error
	for _, job := range jobs {
		if placement, decided := placements[client.ObjectKeyFromObject(job)]; decided {
			failed = append(failed, a.write(ctx, job, placement))
		}
	}
	return ctrl.Result{RequeueAfter: a.cycle}, errors.Join(failed...)
}

// jobs returns the jobs to place, each as it was last written.
func (a *Allocator) jobs(ctx context.Context) ([]*v2alpha1.DIJob, error) {
	var list v2alpha1.DIJobList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing jobs: %w", err)
	}
	var jobs []*v2alpha1.DIJob
	written := make(map[types.UID]*v2alpha1.DIJob, len(a.written))
	for i := range list.Items {
		job := &list.Items[i]
		if ours := a.written[job.UID]; ours != nil && isOlder(job, ours) {
			written[job.UID] = ours
			job = ours
		}
		if lifecycle.WantsPlace(job) {
			jobs = append(jobs, job)
		}
	}
	a.written = written
	return jobs, nil
}

// isOlder tells whether a job is of an earlier version than another.
func isOlder(job, other *v2alpha1.DIJob) bool {
	order, err := resourceversion.CompareResourceVersion(job.ResourceVersion, other.ResourceVersion)
	return err == nil && order < 0
}

// round is what a round rests on.
type round struct {
	snapshot *allocator.Snapshot
	wanted   []*allocator.Job
	previous map[types.NamespacedName][]string
	// invalid says which jobs cannot be read, and why.
	invalid map[types.NamespacedName]string
}

// survey takes stock of nodes, pods and jobs.
func (a *Allocator) survey(ctx context.Context, jobs []*v2alpha1.DIJob) (*round, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	r := &round{
		snapshot: allocator.NewSnapshot(nodes),
		previous: make(map[types.NamespacedName][]string, len(jobs)),
		invalid:  map[types.NamespacedName]string{},
	}
	pods, err := a.occupy(ctx, r.snapshot, jobs)
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		name := client.ObjectKeyFromObject(job)
		wanted, err := jobToPlace(job, r.snapshot)
		if err != nil {
			r.invalid[name] = err.Error()
			continue
		}
		r.wanted = append(r.wanted, wanted)
		r.previous[name] = placeOf(job, pods[job.UID], r.snapshot)
	}
	return r, nil
}

// nodes returns the nodes that are there, or were a moment ago.
func (a *Allocator) nodes(ctx context.Context) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		if node := &list.Items[i]; !isLost(node, a.now()) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// isLost tells whether a node is not ready for so long that its pods are given up.
func isLost(node *corev1.Node, now time.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue &&
			now.Sub(condition.LastTransitionTime.Time) > unreadyGrace
	})
}

// occupy takes from the snapshot what runs, but for the pods of the jobs that
// are to be placed: what these have follows from where they are placed. Those
// are returned, by their job.
func (a *Allocator) occupy(ctx context.Context, snapshot *allocator.Snapshot, jobs []*v2alpha1.DIJob) (map[types.UID][]*corev1.Pod, error) {
	var list corev1.PodList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	placed := make(map[string]*v2alpha1.DIJob, len(jobs))
	for _, job := range jobs {
		placed[string(job.UID)] = job
	}
	pods := make(map[types.UID][]*corev1.Pod, len(jobs))
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		var job *v2alpha1.DIJob
		if owner := controllerUID(pod); len(owner) > 0 {
			job = placed[owner[0]]
		}
		switch {
		case job != nil && pod.DeletionTimestamp.IsZero():
			pods[job.UID] = append(pods[job.UID], pod)
		case pod.Spec.NodeName != "":
			snapshot.Occupy(pod)
		}
	}
	return pods, nil
}

// placeOf returns where a job is placed: where it was, and one that never was
// where its pods run. A job that has a pod waiting for a node that takes none is
// placed anew.
func placeOf(job *v2alpha1.DIJob, pods []*corev1.Pod, snapshot *allocator.Snapshot) []string {
	if len(job.Status.Allocation) == 0 {
		return lifecycle.NodesByRank(pods)
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && snapshot.IsClosed(lifecycle.PlacedOn(pod)) {
			return nil
		}
	}
	return job.Status.Allocation
}

// jobToPlace returns what a policy is told of a job.
func jobToPlace(job *v2alpha1.DIJob, snapshot *allocator.Snapshot) (*allocator.Job, error) {
	wanted := &allocator.Job{Name: client.ObjectKeyFromObject(job), Created: job.CreationTimestamp.Time}
	if job.Spec.Priority == v2alpha1.PriorityHigh {
		wanted.Priority = 1
	}
	wanted.Elastic, wanted.Min, wanted.Wanted = lifecycle.Range(job)
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		template, err := workload.Template(fmt.Sprintf("spec.tasks[%d].template", i), task.Template)
		if err != nil {
			return nil, err
		}
		wanted.Tasks = append(wanted.Tasks, allocator.Task{
			Name: task.Name, Replicas: lifecycle.Count(job, i), Pod: snapshot.RequirementsOf(&template.Spec),
		})
	}
	return wanted, nil
}

// write patches a job's allocation and condition where they are to become
// others. The patch holds the resource version, so that what was decided on an
// old job is refused; the next round decides anew.
func (a *Allocator) write(ctx context.Context, job *v2alpha1.DIJob, placement allocator.Placement) error {
	wanted := job.DeepCopy()
	value, kind := corev1.ConditionTrue, corev1.EventTypeNormal
	if len(placement.Nodes) == 0 {
		value, kind = corev1.ConditionFalse, corev1.EventTypeWarning
	}
	wanted.Status.Allocation = placement.Nodes
	told := lifecycle.Tell(&wanted.Status, v2alpha1.ConditionAllocated, value, placement.Reason, placement.Message, a.now())
	if !told && slices.Equal(job.Status.Allocation, placement.Nodes) {
		return nil
	}
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	err := a.client.Status().Patch(ctx, wanted, patch)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("writing the allocation of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	a.written[job.UID] = wanted
	a.recorder.Eventf(job, nil, kind, placement.Reason, "Allocate", "%s", note(placement.Message))
	return nil
}
