// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
)

// groupIndex is the index of jobs by the group in their spec.
const groupIndex = "spec.group"

func groupOf(object client.Object) []string {
	job, isJob := object.(*v2alpha1.DIJob)
	if !isJob || job.Spec.Group == "" {
		return nil
	}
	return []string{job.Spec.Group}
}

// observeRightsizing adds what limits and informs a change of a job's resources. Most jobs
// need none of it.
func (r *Reconciler) observeRightsizing(ctx context.Context, observed *lifecycle.Observed) error {
	observed.MaxMemory, observed.ResizeTimeout = r.options.MaxMemory, r.options.ResizeTimeout
	if scaling := observed.Job.Status.Scaling; r.resize != nil && scaling != nil && len(scaling.Resources) > 0 {
		var err error
		if observed.ResizesPods, err = r.resize.IsServed(ctx); err != nil {
			return err
		}
	}
	if rightsize.NeedsNodes(observed) {
		if err := r.observeLargestNode(ctx, observed); err != nil {
			return err
		}
	}
	if rightsize.NeedsGroup(observed) {
		return r.observeGroup(ctx, observed)
	}
	return nil
}

// observeLargestNode adds the memory of the largest node. Only the allocator caches all nodes, so without
// it the memory is unknown.
func (r *Reconciler) observeLargestNode(ctx context.Context, observed *lifecycle.Observed) error {
	if r.options.NoAllocator {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for i := range nodes.Items {
		memory := nodes.Items[i].Status.Allocatable[corev1.ResourceMemory]
		if memory.Sign() > 0 && (observed.LargestNode == nil || memory.Cmp(*observed.LargestNode) > 0) {
			observed.LargestNode = &memory
		}
	}
	return nil
}

// observeGroup adds the overrides of the newest other job of the group that was out of memory.
func (r *Reconciler) observeGroup(ctx context.Context, observed *lifecycle.Observed) error {
	job := observed.Job
	var jobs v2alpha1.DIJobList
	err := r.client.List(ctx, &jobs, client.InNamespace(job.Namespace), client.MatchingFields{groupIndex: job.Spec.Group}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the jobs of group %s in %s: %w", job.Spec.Group, job.Namespace, err)
	}
	var newest *v2alpha1.DIJob
	for i := range jobs.Items {
		other := &jobs.Items[i]
		isNewer := newest == nil || newest.CreationTimestamp.Before(&other.CreationTimestamp)
		if other.UID != job.UID && other.Spec.Group == job.Spec.Group && isNewer && rightsize.HasGrownAny(other) {
			newest = other
		}
	}
	if newest != nil {
		observed.GroupJob, observed.GroupOverrides = newest.Name, newest.Status.Scaling.Resources
	}
	return nil
}

// resizePods resizes pods in place. A pod whose resize the API server refuses is annotated with the
// refusal, so that the next reconcile can act on it.
func (r *Reconciler) resizePods(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effects {
	return r.apply(ctx, observed, operation{
		verb:   verbResize,
		digest: func(pod client.Object) string { return pod.GetAnnotations()[names.AnnotationResources] },
		do: func(ctx context.Context, object client.Object) effect {
			pod, isPod := object.(*corev1.Pod)
			if !isPod {
				return effect{err: fmt.Errorf("%T is resized, want a pod", object)}
			}
			return r.resizePod(ctx, pod)
		},
	}, toObjects(decision.ResizePods))
}

func (r *Reconciler) resizePod(ctx context.Context, pod *corev1.Pod) effect {
	wanted := pod.Annotations[names.AnnotationResources]
	main := names.MainContainerOf(pod)
	body := map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": main.Name, "resources": map[string]any{"requests": main.Resources.Requests, "limits": main.Resources.Limits}}}},
	}
	target, patch, err := patchOf(pod, body)
	if err == nil {
		err = r.client.SubResource("resize").Patch(ctx, target, patch)
	}
	annotations := map[string]string{names.AnnotationResources: wanted, names.AnnotationResize: pod.Annotations[names.AnnotationResize]}
	done := effect{object: pod, reason: v2alpha1.ReasonPodResized, note: wanted}
	switch {
	case isResizeRefused(err):
		annotations = map[string]string{names.AnnotationResizeRefused: wanted}
		done.reason, done.note = v2alpha1.ReasonPodResizeRefused, refusal.Answer(err)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return effect{}
	case err != nil:
		return effect{err: fmt.Errorf("resizing pod %s/%s in place to %s: %w", pod.Namespace, pod.Name, wanted, err)}
	}
	target, patch, err = patchOf(pod, map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err == nil {
		err = r.client.Patch(ctx, target, patch, controllers.FieldOwner)
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsConflict(err):
		// Another pod has its name by now.
		return effect{}
	case err != nil:
		return effect{err: fmt.Errorf("recording the resize of pod %s/%s: %w", pod.Namespace, pod.Name, err)}
	}
	return done
}

// patchOf returns a patch of a pod and its target. A body with the UID of the pod patches no other pod of its name.
func patchOf(pod *corev1.Pod, body map[string]any) (*corev1.Pod, client.Patch, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return target, client.RawPatch(types.StrategicMergePatchType, content), nil
}

// isResizeRefused reports whether a pod cannot be resized in place to the wanted resources: they are
// invalid for a running pod, the API server does not serve it, or admission knows that the node has no room
// or lacks the feature. A quota that refuses the resize refuses a new pod, too, so that is another matter.
func isResizeRefused(err error) bool {
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		return true
	case apierrors.IsForbidden(err):
		answer := refusal.Answer(err)
		return strings.HasPrefix(answer, "node ") || strings.Contains(answer, "not available on node ")
	}
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
