// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/allocator/survey"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Options are the settings of the allocator. The zero value selects the defaults.
type Options struct {
	// Policy decides the placements: by default fit.Fit, which lets a job grow five minutes after it
	// was placed.
	Policy allocation.Policy
	// Tenants are the tenants that share the capacity; without any, all jobs compete alike.
	Tenants []shares.Tenant
	// Topology are the labels of nodes that name their domains, from the widest level to the narrowest; none without.
	Topology []string
	// PolicyName is the name of the policy in metrics and in the status of jobs: PolicyFit by default.
	PolicyName string
	// Groups names the ConfigMap with the histories of groups of jobs. Without it they are lost when the
	// process ends.
	Groups types.NamespacedName
	// Archive keeps groups that the ConfigMap no longer has; nil for none.
	Archive Archive
	// Cycle is the time between allocation rounds without changes: DefaultCycle by default.
	Cycle time.Duration
	// Interval is the minimum time between two rounds: a second by default.
	Interval time.Duration
	// Writing is how long a round starts writes: a second by default. The next round decides the rest again, so a
	// decision about a new job does not wait until many others are written.
	Writing time.Duration
	// MaxPods is the maximum number of pods of a job: limits.PodsPerJob by default.
	MaxPods int32
	// Recorder records the Events of jobs: by default the manager's.
	Recorder events.EventRecorder
	// Registerer registers the metrics: by default that of controller-runtime.
	Registerer prometheus.Registerer
	// Traces records a span of each round; nil for none.
	Traces trace.TracerProvider
	// Clock tells the time: the real one by default.
	Clock clock.PassiveClock
	// Everything returns when the cache has the pods of all jobs; nil if it always has them.
	Everything func(context.Context) error
	// MayAct is closed when no other operator acts. Until then the allocator writes nothing. Nil if there
	// is no other operator.
	MayAct <-chan struct{}
}

// New returns the reconciler. Setup runs it in a manager. The cached client reads from caches and writes
// to the API server, live reads from the API server. The options must have a recorder.
func New(cached client.Client, live client.Reader, options Options) (*Reconciler, error) {
	if options.Registerer == nil {
		options.Registerer = metrics.Registry
	}
	if options.Policy == nil {
		options.Policy = Fit()
	}
	options.PolicyName = cmp.Or(options.PolicyName, PolicyFit)
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	roundMetrics, err := newRoundMetrics(options.Registerer, options.PolicyName, options.Tenants)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		client:     cached,
		live:       live,
		recorder:   options.Recorder,
		policy:     options.Policy,
		tenants:    shares.New(options.Tenants),
		topology:   options.Topology,
		policyName: options.PolicyName,
		cycle:      cmp.Or(options.Cycle, DefaultCycle),
		interval:   cmp.Or(options.Interval, defaultInterval),
		writing:    cmp.Or(options.Writing, defaultWriting),
		maxPods:    options.MaxPods,
		clock:      options.Clock,
		metrics:    roundMetrics,
		everything: options.Everything,
		groups:     groupStore{client: cached, live: live, key: options.Groups, archive: options.Archive, unknown: map[string]bool{}},
	}, nil
}

// Setup adds the allocator to a manager. The manager's cache must use controllers.CacheOptions.
func Setup(mgr ctrl.Manager, options Options) error {
	if options.Recorder == nil {
		options.Recorder = mgr.GetEventRecorder(names.ControllerName)
	}
	a, err := New(mgr.GetClient(), mgr.GetAPIReader(), options)
	if err != nil {
		return err
	}
	round := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{roundRequest()}
	})
	err = ctrl.NewControllerManagedBy(mgr).
		Named("allocator").
		// A request here is a round, so no log line may name it like a job.
		WithLogConstructor(func(*reconcile.Request) logr.Logger { return mgr.GetLogger().WithValues("controller", "allocator") }).
		Watches(&v2alpha1.DIJob{}, round, builder.WithPredicates(controllers.ChangesOf(jobMatters))).
		Watches(&v2alpha1.DIJob{}, handler.Funcs{UpdateFunc: delayRound}, builder.WithPredicates(controllers.ChangesOf(reportMatters))).
		Watches(&corev1.Node{}, round, builder.WithPredicates(controllers.ChangesOf(nodeMatters))).
		Watches(&corev1.Pod{}, round, builder.WithPredicates(controllers.ChangesOf(podMatters))).
		Watches(&corev1.ResourceQuota{}, round, builder.WithPredicates(controllers.ChangesOf(hardMatters))).
		Watches(&corev1.ResourceQuota{}, handler.Funcs{UpdateFunc: delayRound}, builder.WithPredicates(controllers.ChangesOf(usedMatters))).
		Watches(&corev1.LimitRange{}, round, builder.WithPredicates(controllers.ChangesOf(hardMatters))).
		Complete(controllers.GateUntil(options.MayAct, tracing.Reconciler(a, options.Traces, spanOfRound)))
	if err != nil {
		return fmt.Errorf("adding the allocator: %w", err)
	}
	return nil
}

// roundRequest is the only request of the allocator.
func roundRequest() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: "round"}}
}

// delayRound requests a round some time after a report, so that the reports of many jobs make one round. The
// queue keeps the earliest time.
func delayRound(_ context.Context, _ event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	queue.AddAfter(roundRequest(), reportDelay)
}

// jobMatters returns the fields of a job that a round depends on: whether it needs a placement, its
// desired replicas, its placement, whether the API server refuses its pods, and what its ratio rule asks for.
func jobMatters(object client.Object) any {
	job, ok := object.(*v2alpha1.DIJob)
	if !ok || !job.Spec.Preemptible {
		return nil
	}
	_, refusal := survey.RefusedSince(job)
	return []any{placements.WantsPlace(job), job.Generation, job.Status.Allocation, refusal, survey.Asked(job)}
}

// reportMatters returns what a job reports of itself.
func reportMatters(object client.Object) any {
	job, ok := object.(*v2alpha1.DIJob)
	if !ok || !placements.WantsPlace(job) {
		return nil
	}
	return string(rawReport(job))
}

// nodeMatters returns the fields of a node that a round depends on.
func nodeMatters(object client.Object) any {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	ready := corev1.ConditionUnknown
	if condition := conditions.OfNode(node, corev1.NodeReady); condition != nil {
		ready = condition.Status
	}
	return []any{node.Labels, node.Spec.Unschedulable, node.Spec.Taints, node.Status.Allocatable, ready}
}

// podMatters returns the node whose capacity a pod occupies; nil if it occupies none.
func podMatters(object client.Object) any {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || podstate.Finished(pod) {
		return nil
	}
	return pod.Spec.NodeName
}

// hardMatters returns the part of a ResourceQuota or LimitRange that a round depends on at once.
func hardMatters(object client.Object) any {
	switch object := object.(type) {
	case *corev1.ResourceQuota:
		return object.Spec
	case *corev1.LimitRange:
		return object.Spec
	}
	return nil
}

// usedMatters returns the part that changes with each pod.
func usedMatters(object client.Object) any {
	if quota, isQuota := object.(*corev1.ResourceQuota); isQuota {
		return quota.Status.Used
	}
	return nil
}
