// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator/usage"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
)

// writers is the maximum number of concurrent writes.
const writers = 16

// write is a change of a job's allocation, usage and condition.
type write struct {
	job, wanted *v2alpha1.DIJob
	placement   *allocation.Placement
	// isRefresh is set for a job whose placement stays. isChanged reports whether condition Allocated changes.
	isRefresh, isChanged bool
	// move ends the move of the capacity. It is nil for a job that keeps its placement.
	move func(written bool)
	// isDone reports whether the write succeeded. Otherwise err says why it failed, or the next round decides
	// again.
	isDone bool
	err    error
}

// carryOut writes the placements. The written placements never exceed the capacity of nodes, not even
// after a failed write: a job gets a placement once others have released it. If jobs wait for each other,
// a placed one releases its placement and is placed in the next round.
func (a *Reconciler) carryOut(ctx context.Context, jobs []*v2alpha1.DIJob, r *round) error {
	jobs = usage.ByWriting(jobs)
	ledger := allocation.NewLedger(slices.Collect(maps.Values(r.input.Wanted)), r.input.Snapshot.Nodes, r.input.Placed)
	until := a.clock.Now().Add(a.writing)
	for {
		writes, waiting := a.fitting(jobs, r, ledger)
		err := a.writeAll(ctx, r, writes, until)
		switch {
		case err != nil || r.isPostponed || len(waiting) == 0:
			return err
		case len(waiting) == len(jobs):
			return a.writeAll(ctx, r, a.release(r, waiting), until)
		}
		jobs = waiting
	}
}

func isPlaced(job *v2alpha1.DIJob) bool { return len(job.Status.Allocation) > 0 }

// release returns the write that releases the placement of one of the jobs that wait for each other. There is
// none if no such job is placed, and all know that they wait.
func (a *Reconciler) release(r *round, waiting []*v2alpha1.DIJob) []*write {
	next := waiting[max(slices.IndexFunc(waiting, isPlaced), 0)]
	released := a.writeOf(r, next, &allocation.Placement{
		Reason: allocation.ReasonInsufficientCapacity, Message: "releases its placement for other jobs whose placement changes, and is placed next",
		Usage: r.placements[client.ObjectKeyFromObject(next)].Usage,
	})
	if released == nil {
		return nil
	}
	return []*write{released}
}

// fitting returns the writes that fit beside the written placements, in any order and whichever of them
// fail. It returns the jobs that wait for them. Refreshes are last.
func (a *Reconciler) fitting(jobs []*v2alpha1.DIJob, r *round, ledger *allocation.Ledger) (writes []*write, waiting []*v2alpha1.DIJob) {
	var refreshes []*write
	for _, job := range jobs {
		name := client.ObjectKeyFromObject(job)
		placement, decided := r.placements[name]
		if !decided {
			continue
		}
		var move func(bool)
		if r.input.Wanted[name] != nil && !slices.Equal(job.Status.Allocation, placement.Nodes) {
			var moves bool
			if move, moves = ledger.Move(r.input.Wanted[name], placement.Nodes); !moves {
				waiting = append(waiting, job)
				continue
			}
		}
		switch next := a.writeOf(r, job, &placement); {
		case next == nil:
		case next.isRefresh:
			refreshes = append(refreshes, next)
		default:
			next.move = move
			writes = append(writes, next)
		}
	}
	return append(writes, refreshes...), waiting
}

// writeOf returns what a placement changes of a job, nil for nothing.
func (a *Reconciler) writeOf(r *round, job *v2alpha1.DIJob, placement *allocation.Placement) *write {
	_, measured := r.restarts[job.UID]
	moves := !slices.Equal(job.Status.Allocation, placement.Nodes)
	isRefresh := !moves && !isTransition(job, placement)
	if isRefresh && (r.refreshes == 0 || r.found.Now.Sub(usage.WrittenAt(job)) < usage.RefreshAfter(job, placement, measured)) {
		return nil
	}
	wanted := job.DeepCopy()
	wanted.Status.Allocation = placement.Nodes
	wanted.Status.AllocationUsage = usage.After(job, placement, usage.Change{Policy: a.policyName, Restarts: r.restartsBy(job, placement), IsMeasured: measured}, r.found.Now)
	changed := conditions.Set(&wanted.Status, v2alpha1.ConditionAllocated, conditionStatus(placement), placement.Reason, placement.Message, r.found.Now)
	if !changed && !moves && equality.Semantic.DeepEqual(job.Status.AllocationUsage, wanted.Status.AllocationUsage) {
		return nil
	}
	if isRefresh {
		r.refreshes--
	}
	return &write{job: job, wanted: wanted, placement: placement, isRefresh: isRefresh, isChanged: changed}
}

// restartsBy reports whether a placement restarts a job.
func (r *round) restartsBy(job *v2alpha1.DIJob, placement *allocation.Placement) bool {
	wanted := r.input.Wanted[client.ObjectKeyFromObject(job)]
	return wanted != nil && wanted.Restarts(job.Status.Allocation, placement.Nodes)
}

// writeAll patches jobs in order, several at a time. It starts no write after a time.
func (a *Reconciler) writeAll(ctx context.Context, r *round, writes []*write, until time.Time) error {
	var group errgroup.Group
	group.SetLimit(writers)
	for _, next := range writes {
		group.Go(func() error {
			if !a.clock.Now().After(until) {
				next.isDone, next.err = a.patch(ctx, next)
			}
			return nil
		})
	}
	_ = group.Wait()
	var failed []error
	for _, done := range writes {
		if done.move != nil {
			done.move(done.isDone)
		}
		switch {
		case done.isDone:
			a.concludeWrite(ctx, r, done)
		case done.err != nil:
			failed = append(failed, done.err)
		case !done.isRefresh:
			r.isPostponed = true
		}
	}
	return errors.Join(failed...)
}

// patch writes a job, and reports whether it did. The patch includes the resource version, so the API server
// refuses a decision on a stale job. The next round decides again.
func (a *Reconciler) patch(ctx context.Context, next *write) (bool, error) {
	patch := client.MergeFromWithOptions(next.job, client.MergeFromWithOptimisticLock{})
	err := a.client.Status().Patch(ctx, next.wanted, patch)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the allocation of job %s/%s: %w", next.job.Namespace, next.job.Name, err)
	}
	return true, nil
}

// concludeWrite records what was written.
func (a *Reconciler) concludeWrite(ctx context.Context, r *round, done *write) {
	job := done.job
	a.written[job.UID] = done.wanted
	if ended := r.restarts[job.UID]; ended.IsMeasured {
		a.metrics.restarts.WithLabelValues().Observe(max(ended.End.Sub(job.Status.AllocationUsage.PlacedAt.Time), 0).Seconds())
	}
	a.report(ctx, job, done.placement)
	if !done.isRefresh || done.isChanged && len(done.placement.Nodes) == 0 {
		a.recordPlacement(job, done.placement)
	}
}

// recordPlacement records the Event of a placement.
func (a *Reconciler) recordPlacement(job *v2alpha1.DIJob, placement *allocation.Placement) {
	kind := corev1.EventTypeNormal
	if len(placement.Nodes) == 0 {
		kind = corev1.EventTypeWarning
	}
	a.recorder.Eventf(job, nil, kind, placement.Reason, "Allocate", "%s", recorder.Note(placement.Message))
	if placement.GivesBack != "" {
		a.recorder.Eventf(job, nil, corev1.EventTypeNormal, v2alpha1.ReasonGaveBack, "Allocate", "%s", recorder.Note(placement.GivesBack))
	}
}

func conditionStatus(placement *allocation.Placement) corev1.ConditionStatus {
	if len(placement.Nodes) == 0 {
		return corev1.ConditionFalse
	}
	return corev1.ConditionTrue
}

// isTransition reports whether a placement changes condition Allocated at once. Its message, and the reason
// that the policy gives, change often and wait for the next refresh.
func isTransition(job *v2alpha1.DIJob, placement *allocation.Placement) bool {
	allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated)
	if allocated == nil || allocated.Status != conditionStatus(placement) {
		return true
	}
	return allocated.Reason != placement.Reason && (!isOfPolicy(allocated.Reason) || !isOfPolicy(placement.Reason))
}

// isOfPolicy reports whether a policy decided on a reason of condition Allocated.
func isOfPolicy(reason string) bool {
	return !slices.Contains([]string{
		v2alpha1.ConditionSuspended, v2alpha1.ConditionInvalidSpec, v2alpha1.ReasonNoAllocator, v2alpha1.ConditionAllocated,
	}, reason)
}

// report counts and logs a written placement.
func (a *Reconciler) report(ctx context.Context, job *v2alpha1.DIJob, placement *allocation.Placement) {
	log := log.FromContext(ctx).WithValues(names.LogWhole(job)...)
	if slices.Equal(job.Status.Allocation, placement.Nodes) {
		log.V(1).Info("Updated condition Allocated", "reason", placement.Reason, "message", placement.Message)
		return
	}
	decision := decisionOf(job.Status.Allocation, placement.Nodes)
	a.metrics.observeDecision(decision)
	log.Info("Changed the placement of a job", "decision", decision, "reason", placement.Reason,
		"replicas", len(placement.Nodes), "replicasBefore", len(job.Status.Allocation))
}
