// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// jobChanges passes changes of a job's spec and status, its deletion, what holds it then, and the loss of the finalizer
// of the history. It ignores reports, and what only the allocator and the autoscaler read.
func jobChanges() predicate.Predicate {
	relevant := func(object client.Object) v2alpha1.DIJobStatus {
		job, ok := object.(*v2alpha1.DIJob)
		if !ok {
			return v2alpha1.DIJobStatus{}
		}
		status := job.Status
		status.Profilings, status.Rates, status.AllocationUsage, status.Autoscaling = nil, nil, nil, nil
		return status
	}
	return predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		return update.ObjectOld.GetGeneration() != update.ObjectNew.GetGeneration() ||
			update.ObjectNew.GetDeletionTimestamp() != nil && !slices.Equal(update.ObjectOld.GetFinalizers(), update.ObjectNew.GetFinalizers()) ||
			controllerutil.ContainsFinalizer(update.ObjectOld, names.FinalizerHistory) && !controllerutil.ContainsFinalizer(update.ObjectNew, names.FinalizerHistory) ||
			!equality.Semantic.DeepEqual(relevant(update.ObjectOld), relevant(update.ObjectNew))
	}}
}

// podChanges passes the changes of a pod that a decision may depend on.
func podChanges(clock clock.PassiveClock) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		before, okBefore := update.ObjectOld.(*corev1.Pod)
		after, okAfter := update.ObjectNew.(*corev1.Pod)
		return okBefore && okAfter &&
			(!reflect.DeepEqual(outlineOf(before), outlineOf(after)) || identityDiffers(before, after) || podstate.ProblemsDiffer(before, after, clock.Now()))
	}}
}

// identityDiffers reports whether two states of an object differ in its owners, or in the labels and annotations by
// which it is found.
func identityDiffers(before, after client.Object) bool {
	return differ(before.GetLabels(), after.GetLabels(), names.IsSelecting) ||
		differ(before.GetAnnotations(), after.GetAnnotations(), names.IsIdentifying) ||
		!slices.EqualFunc(before.GetOwnerReferences(), after.GetOwnerReferences(), isSameReference)
}

// keys reports whether a key is one of some.
type keys func(string) bool

// differ reports whether two maps differ in some keys.
func differ(before, after map[string]string, isOf keys) bool {
	changes := func(from, to map[string]string) bool {
		for key, value := range from {
			if other, has := to[key]; isOf(key) && (!has || other != value) {
				return true
			}
		}
		return false
	}
	return changes(before, after) || changes(after, before)
}

// serviceChanges passes creations and deletions of services, and the changes that the operator puts back.
func serviceChanges() predicate.Predicate {
	return predicate.Or(existence(), predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		before, okBefore := update.ObjectOld.(*corev1.Service)
		after, okAfter := update.ObjectNew.(*corev1.Service)
		return okBefore && okAfter && (identityDiffers(before, after) || !reflect.DeepEqual(before.Spec, after.Spec))
	}})
}

// outline contains the fields of a pod that decisions depend on, apart from its problems.
type outline struct {
	uid       types.UID
	deleted   bool
	phase     corev1.PodPhase
	reason    string
	ready     bool
	disrupted bool
	queue     queueOutline
	// placed reports whether a pod of a gang has a node.
	placed bool
	resize resizeOutline
	// containers are the terminated containers, by name.
	containers map[string]containerOutline
}

// resizeOutline contains the fields of a resize in place that a decision depends on.
type resizeOutline struct {
	resources, refused string
	isDone             bool
	pending            string
}

func resizeOf(pod *corev1.Pod) resizeOutline {
	result := resizeOutline{resources: pod.Annotations[names.AnnotationResources], refused: pod.Annotations[names.AnnotationResizeRefused]}
	if pod.Annotations[names.AnnotationResize] == "" {
		return result
	}
	result.isDone = podstate.IsResized(pod)
	if pending := conditions.OfPod(pod, corev1.PodResizePending); pending != nil && pending.Status == corev1.ConditionTrue {
		result.pending = pending.Reason
	}
	return result
}

// queueOutline contains the fields of Kueue's pod metadata that a decision depends on.
type queueOutline struct {
	isWaiting, isEvicted, isHeld, isAbandoned bool
}

// containerOutline is how a container terminated, and whether it is in CrashLoopBackOff.
type containerOutline struct {
	looping    bool
	terminated *corev1.ContainerStateTerminated
}

func outlineOf(pod *corev1.Pod) outline {
	result := outline{
		uid: pod.UID, deleted: !pod.DeletionTimestamp.IsZero(), phase: pod.Status.Phase, reason: pod.Status.Reason,
		ready: podstate.ReportsReady(pod), placed: pod.Spec.NodeName != "" && gang.IsMember(pod),
		containers: map[string]containerOutline{},
	}
	result.resize = resizeOf(pod)
	result.disrupted = conditions.IsTrueOfPod(pod, corev1.DisruptionTarget)
	result.queue.isWaiting, result.queue.isHeld = queueing.IsWaiting(pod), queueing.HasOnlyFinalizer(pod)
	result.queue.isAbandoned = queueing.IsAbandoned(pod)
	_, result.queue.isEvicted = queueing.Eviction(pod)
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		looping := status.State.Waiting != nil && status.State.Waiting.Reason == podstate.CrashLoopBackOff
		if looping || status.State.Terminated != nil {
			result.containers[status.Name] = containerOutline{looping: looping, terminated: status.State.Terminated}
		}
	}
	return result
}

// existence passes creations and deletions.
func existence() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		return update.ObjectOld.GetDeletionTimestamp().IsZero() != update.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
}

// budgetChanges passes creations, deletions and changes of the spec. Kubernetes writes the status of a budget
// whenever a pod changes.
func budgetChanges() predicate.Predicate {
	return predicate.Or[client.Object](existence(), predicate.GenerationChangedPredicate{})
}

// jobsOfConfig returns the jobs that use an AggregatorConfig.
func (r *Reconciler) jobsOfConfig(ctx context.Context, object client.Object) []reconcile.Request {
	var jobs v2alpha1.DIJobList
	if err := r.client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the jobs of an AggregatorConfig", "aggregatorConfig", client.ObjectKeyFromObject(object))
		return nil
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if state.IsCoordinatorLed(job) && r.configKey(job) == client.ObjectKeyFromObject(object) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}
