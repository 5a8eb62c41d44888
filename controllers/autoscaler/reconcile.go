// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

const (
	// FieldOwner is the field manager of the counts that the autoscaler writes.
	FieldOwner = client.FieldOwner(names.AutoscalerName)
	// interval is the time between two decisions about a job.
	interval = 30 * time.Second
	// refreshInterval is the minimum time between two writes of a status that only has other figures.
	refreshInterval = time.Minute
)

// Reconciler decides about one job in each reconcile.
type Reconciler struct {
	// client reads from caches and writes to the API server. live reads the API server.
	client     client.Client
	live       client.Reader
	recorder   events.EventRecorder
	prometheus Querier
	maxPods    int32
	clock      clock.PassiveClock
	metrics    *autoscalerMetrics
	memories   memories
	querying   querying
	// written are the jobs as the autoscaler wrote them, until the cache has those versions.
	written assume.Cache
}

// spanOfJob is the name of the spans of reconciles.
const spanOfJob = "autoscale"

// Reconcile measures a job, decides about its size, and records the decision.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job, err := controllers.Find(ctx, r.client, request.NamespacedName, &v2alpha1.DIJob{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if job == nil {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	job = assume.Latest(&r.written, job)
	rule := ruleOf(job)
	if rule == nil || isIdle(job) {
		r.memories.forget(request.NamespacedName)
		return ctrl.Result{}, r.rest(ctx, job, rule)
	}
	known := r.memories.of(request.NamespacedName, job)
	measured, err := r.observe(ctx, job, rule, *known)
	if err != nil {
		// What cannot be read is read again at the next decision.
		known.nextAt, known.generation = measured.now.Add(interval), job.Generation
		return ctrl.Result{}, err
	}
	next, decided := decide(*known, measured)
	*known = next
	if decided.isPostponed {
		return ctrl.Result{RequeueAfter: r.untilNext(known)}, nil
	}
	err = r.act(ctx, job, known, &decided)
	if apierrors.IsConflict(err) {
		// The job has changed since it was read. The next reconcile decides about what it is now.
		known.nextAt = time.Time{}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{RequeueAfter: r.untilNext(known)}, client.IgnoreNotFound(err)
}

// forget drops what the process knows of a job.
func (r *Reconciler) forget(job types.NamespacedName) {
	r.memories.forget(job)
	r.written.Forget(job)
}

func (r *Reconciler) untilNext(known *memory) time.Duration {
	return max(known.nextAt.Sub(r.clock.Now()), time.Second)
}

// rest clears the condition of a job without a rule. That of a job that does not run stays.
func (r *Reconciler) rest(ctx context.Context, job *v2alpha1.DIJob, rule *v2alpha1.RatioRule) error {
	if rule != nil || !conditions.IsTrue(&job.Status, v2alpha1.ConditionAutoscaling) || state.IsFinished(&job.Status) {
		return nil
	}
	wanted := job.DeepCopy()
	conditions.Clear(&wanted.Status, v2alpha1.ConditionAutoscaling, r.clock.Now())
	return client.IgnoreNotFound(r.writeStatus(ctx, job, wanted))
}

// act resizes the job and records the decision. A resize that was written and not recorded is seen in the spec.
func (r *Reconciler) act(ctx context.Context, job *v2alpha1.DIJob, known *memory, decided *decision) error {
	if decided.isResize {
		resized, err := r.resize(ctx, job, decided)
		switch {
		case isRefused(err):
			decided.isResize, decided.status, decided.next = false, nil, known.state
			decided.value, decided.reason, decided.message = corev1.ConditionFalse, v2alpha1.ReasonResizeRefused, recorder.Note(err.Error())
		case err != nil:
			return err
		default:
			known.generation = resized.Generation
			job = resized
		}
	}
	known.state = decided.next
	return r.record(ctx, job, known, decided)
}

// isRefused reports whether the API server or a webhook refuses a resize, so that the same one would be refused again.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// resize writes the counts of the pools. The patch has the resource version, so that another's change is never
// overwritten.
func (r *Reconciler) resize(ctx context.Context, job *v2alpha1.DIJob, decided *decision) (*v2alpha1.DIJob, error) {
	wanted := job.DeepCopy()
	var changes []string
	for i := range decided.roles.pools {
		pool, count := &decided.roles.pools[i], decided.pools[i]
		if count == pool.requested {
			continue
		}
		changes = append(changes, fmt.Sprintf("%s %d -> %d", pool.Task, pool.requested, count))
		if pool.members != nil {
			if err := r.resizeMembers(ctx, job, pool, count); err != nil {
				return nil, err
			}
			continue
		}
		if pool.isElastic {
			wanted.Spec.Elastic.Replicas = &count
		}
		wanted.Spec.Tasks[pool.index].Replicas = &count
	}
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
		if err := r.client.Patch(ctx, wanted, patch, FieldOwner); err != nil {
			return nil, fmt.Errorf("resizing job %s/%s: %w", job.Namespace, job.Name, err)
		}
		r.written.Assume(client.ObjectKeyFromObject(job), wanted, r.clock.Now())
	}
	what := strings.Join(changes, ", ")
	r.recorder.Eventf(job, nil, corev1.EventTypeNormal, v2alpha1.ReasonAutoscaled, "Resize", "%s", recorder.Note(what+": "+decided.status.Message))
	r.metrics.resizes.WithLabelValues(decided.status.Reason).Inc()
	log.FromContext(ctx).WithValues(names.LogWhole(job)...).Info("Resized a job", "change", what, "reason", decided.status.Reason, "message", decided.status.Message)
	return wanted, nil
}

// record writes the decision to the status, unless only its figures differ from those of a recent write.
func (r *Reconciler) record(ctx context.Context, job *v2alpha1.DIJob, known *memory, decided *decision) error {
	now := r.clock.Now()
	r.metrics.decisions.WithLabelValues(decided.reason).Inc()
	recorded := conditions.Find(&job.Status, v2alpha1.ConditionAutoscaling)
	isTransition := recorded == nil || recorded.Status != decided.value || recorded.Reason != decided.reason
	if !isTransition && !decided.isResize && !decided.isNew && now.Sub(known.writtenAt) < refreshInterval {
		return nil
	}
	wanted := job.DeepCopy()
	conditions.Set(&wanted.Status, v2alpha1.ConditionAutoscaling, decided.value, decided.reason, decided.message, now)
	if decided.status != nil {
		if wanted.Status.Autoscaling == nil {
			wanted.Status.Autoscaling = &v2alpha1.AutoscalingStatus{}
		}
		wanted.Status.Autoscaling.Ratio = decided.status
	}
	if reflect.DeepEqual(job.Status, wanted.Status) {
		return nil
	}
	if err := r.writeStatus(ctx, job, wanted); err != nil {
		return err
	}
	known.writtenAt = now
	isLimit := decided.reason == ratio.LimitRange || decided.reason == ratio.LimitStaleness
	isRefusal := decided.value == corev1.ConditionFalse && decided.reason != v2alpha1.ReasonWaitingForReports
	if isTransition && (isLimit || isRefusal) {
		r.recorder.Eventf(job, nil, corev1.EventTypeWarning, decided.reason, "Autoscale", "%s", recorder.Note(decided.message))
	}
	return nil
}

// writeStatus patches the status of a job that has not changed since it was read.
func (r *Reconciler) writeStatus(ctx context.Context, job, wanted *v2alpha1.DIJob) error {
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, wanted, patch); err != nil {
		return fmt.Errorf("recording the autoscaling of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	r.written.Assume(client.ObjectKeyFromObject(job), wanted, r.clock.Now())
	return nil
}
