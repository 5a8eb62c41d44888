// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/assume"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
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
	now        func() time.Time
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
	of := r.memories.of(request.NamespacedName, job)
	d, err := r.decide(ctx, job, rule, of)
	if err != nil || d == nil {
		return ctrl.Result{RequeueAfter: r.untilNext(of)}, err
	}
	err = r.act(ctx, job, of, d)
	if apierrors.IsConflict(err) {
		// The job has changed since it was read. The next reconcile decides about what it is now.
		of.nextAt = time.Time{}
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{RequeueAfter: r.untilNext(of)}, client.IgnoreNotFound(err)
}

// forget drops what the process knows of a job.
func (r *Reconciler) forget(job types.NamespacedName) {
	r.memories.forget(job)
	r.written.Forget(job)
}

func (r *Reconciler) untilNext(of *memory) time.Duration {
	return max(of.nextAt.Sub(r.now()), time.Second)
}

// rest clears the condition of a job without a rule. That of a job that does not run stays.
func (r *Reconciler) rest(ctx context.Context, job *v2alpha1.DIJob, rule *v2alpha1.RatioRule) error {
	if rule != nil || !conditions.IsTrue(&job.Status, v2alpha1.ConditionAutoscaling) || state.IsFinished(&job.Status) {
		return nil
	}
	wanted := job.DeepCopy()
	conditions.Clear(&wanted.Status, v2alpha1.ConditionAutoscaling, r.now())
	return client.IgnoreNotFound(r.writeStatus(ctx, job, wanted))
}

// decision is what the autoscaler does about a job.
type decision struct {
	roles *roles
	// status is the new status; nil to keep the old one. isResize is set if pools are the new counts.
	status   *v2alpha1.RatioStatus
	isResize bool
	pools    []int32
	// isNew is set if an advice differs from the recorded one.
	isNew bool
	// value, reason and message are those of condition Autoscaling.
	value           corev1.ConditionStatus
	reason, message string
	// next is the state of the rule after the decision.
	next ratio.State
}

// decide returns the decision about a job; nil if none is due.
func (r *Reconciler) decide(ctx context.Context, job *v2alpha1.DIJob, rule *v2alpha1.RatioRule, of *memory) (*decision, error) {
	now := r.now()
	list, err := r.membershipOf(ctx, job)
	if err != nil {
		return nil, err
	}
	ro, err := rolesOf(job, list, rule, r.maxPods)
	if err != nil {
		of.nextAt = now.Add(interval)
		return refusal(v2alpha1.ReasonInvalidRule, err.Error(), of.state), nil
	}
	of.estimator.Learn(job.Status.Rates, ro, now)
	measured := of.estimator.Measure(job.Status.Rates, ro, ro.tasks(), now)
	if !ratio.Defaults().IsDue(measured, of.nextAt, now) && of.generation == job.Generation {
		return nil, nil
	}
	of.nextAt, of.generation = now.Add(interval), job.Generation
	master, err := r.otherMaster(ctx, job, of)
	switch {
	case err != nil:
		return nil, err
	case master != "":
		return refusal(v2alpha1.ReasonOtherMaster, master, of.state), nil
	case job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed && (list == nil || list.Spec.CoordinatorInstance == ""):
		return refusal(v2alpha1.ReasonWaitingForReports, "the coordinator has not requested replicas yet", of.state), nil
	}
	if rule.Prometheus != nil {
		measured, err = r.query(ctx, job, rule.Prometheus, len(ro.pools))
	}
	if err != nil {
		return of.unmeasured(err, now), nil
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{controllers.OwnerIndex: job.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	ro.survey(&measured, controllers.PodsOf(job, pods.Items), now)
	settings := ro.settings(rule)
	isAdvice := rule.Driver == v2alpha1.RatioByCoordinator
	if isAdvice {
		of.observeResize(ro, now)
	}
	made := ratio.Decide(settings, of.state, measured, now)
	of.nextAt = made.NextAt
	if isAdvice {
		// The coordinator resizes the job, or not. Only what it does counts as a resize.
		made.Next.GrownAt, made.Next.ShrunkAt = of.state.GrownAt, of.state.ShrunkAt
	}
	d := decisionOf(ro, settings, measured, &made)
	if isAdvice {
		d.advise(job)
	}
	return d, nil
}

// observeResize records that the coordinator has resized its producers since the last decision.
func (m *memory) observeResize(roles *roles, now time.Time) {
	requested := int32(0)
	for i := range roles.pools {
		requested += roles.pools[i].requested
	}
	switch {
	case m.requested >= 0 && requested > m.requested:
		m.state.GrownAt = now
	case m.requested >= 0 && requested < m.requested:
		m.state.ShrunkAt = now
	}
	m.requested = requested
}

// advise turns a decision into one that writes the status only.
func (d *decision) advise(job *v2alpha1.DIJob) {
	d.isResize = false
	d.isNew = job.Status.Autoscaling == nil || job.Status.Autoscaling.Ratio == nil || !maps.Equal(job.Status.Autoscaling.Ratio.Replicas, d.status.Replicas)
	if d.reason == v2alpha1.ReasonFollowing {
		d.reason, d.message = v2alpha1.ReasonAdvising, "the coordinator resizes the job, by the advice in status.autoscaling.ratio.replicas"
	}
}

// refusal is a decision to leave the size alone.
func refusal(reason, message string, state ratio.State) *decision {
	return &decision{value: corev1.ConditionFalse, reason: reason, message: recorder.Note(message), next: state}
}

// decisionOf returns what the rule decided.
func decisionOf(ro *roles, settings ratio.Settings, measured ratio.Measurement, made *ratio.Decision) *decision {
	d := &decision{
		roles: ro, status: made.Status(settings, measured), isResize: made.Resize, pools: made.Pools, next: made.Next,
		value: corev1.ConditionTrue, reason: v2alpha1.ReasonFollowing, message: "the producers follow the consumer",
	}
	switch {
	case made.Reason == ratio.ReasonNoMeasurement:
		d.value, d.reason, d.message = corev1.ConditionFalse, v2alpha1.ReasonWaitingForReports,
			"no current reports of producers and consumer: capacities, batch and queue are needed"
	case made.Limit != "":
		d.reason, d.message = made.Limit, recorder.Note(made.LimitMessage)
	}
	return d
}

// act resizes the job and records the decision. A resize that was written and not recorded is seen in the spec.
func (r *Reconciler) act(ctx context.Context, job *v2alpha1.DIJob, of *memory, d *decision) error {
	if d.isResize {
		resized, err := r.resize(ctx, job, d)
		switch {
		case isRefused(err):
			d.isResize, d.status, d.next = false, nil, of.state
			d.value, d.reason, d.message = corev1.ConditionFalse, v2alpha1.ReasonResizeRefused, recorder.Note(err.Error())
		case err != nil:
			return err
		default:
			of.generation = resized.Generation
			job = resized
		}
	}
	of.state = d.next
	return r.record(ctx, job, of, d)
}

// isRefused reports whether the API server or a webhook refuses a resize, so that the same one would be refused again.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// resize writes the counts of the pools. The patch has the resource version, so that another's change is never
// overwritten.
func (r *Reconciler) resize(ctx context.Context, job *v2alpha1.DIJob, d *decision) (*v2alpha1.DIJob, error) {
	wanted := job.DeepCopy()
	var changes []string
	for i := range d.roles.pools {
		pool, count := &d.roles.pools[i], d.pools[i]
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
		r.written.Assume(client.ObjectKeyFromObject(job), wanted, r.now())
	}
	what := strings.Join(changes, ", ")
	r.recorder.Eventf(job, nil, corev1.EventTypeNormal, v2alpha1.ReasonAutoscaled, "Resize", "%s", recorder.Note(what+": "+d.status.Message))
	r.metrics.observeResize(d.status.Reason)
	log.FromContext(ctx).WithValues(names.LogWhole(job)...).Info("Resized a job", "change", what, "reason", d.status.Reason, "message", d.status.Message)
	return wanted, nil
}

// record writes the decision to the status, unless only its figures differ from those of a recent write.
func (r *Reconciler) record(ctx context.Context, job *v2alpha1.DIJob, of *memory, d *decision) error {
	now := r.now()
	r.metrics.observeDecision(d)
	recorded := conditions.Find(&job.Status, v2alpha1.ConditionAutoscaling)
	isTransition := recorded == nil || recorded.Status != d.value || recorded.Reason != d.reason
	if !isTransition && !d.isResize && !d.isNew && now.Sub(of.writtenAt) < refreshInterval {
		return nil
	}
	wanted := job.DeepCopy()
	conditions.Set(&wanted.Status, v2alpha1.ConditionAutoscaling, d.value, d.reason, d.message, now)
	if d.status != nil {
		if wanted.Status.Autoscaling == nil {
			wanted.Status.Autoscaling = &v2alpha1.AutoscalingStatus{}
		}
		wanted.Status.Autoscaling.Ratio = d.status
	}
	if reflect.DeepEqual(job.Status, wanted.Status) {
		return nil
	}
	if err := r.writeStatus(ctx, job, wanted); err != nil {
		return err
	}
	of.writtenAt = now
	if isTransition && d.value == corev1.ConditionFalse && d.reason != v2alpha1.ReasonWaitingForReports || isTransition && isLimit(d.reason) {
		r.recorder.Eventf(job, nil, corev1.EventTypeWarning, d.reason, "Autoscale", "%s", recorder.Note(d.message))
	}
	return nil
}

func isLimit(reason string) bool {
	return reason == ratio.LimitRange || reason == ratio.LimitStaleness
}

// writeStatus patches the status of a job that has not changed since it was read.
func (r *Reconciler) writeStatus(ctx context.Context, job, wanted *v2alpha1.DIJob) error {
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, wanted, patch); err != nil {
		return fmt.Errorf("recording the autoscaling of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	r.written.Assume(client.ObjectKeyFromObject(job), wanted, r.now())
	return nil
}
