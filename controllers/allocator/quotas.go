// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

const (
	// refusalGrace is how long pods of a placement may be refused before the job gets a smaller one. Meanwhile the
	// pods of a former placement go.
	refusalGrace = 30 * time.Second
	// refusedFor is how long a job gets at most the replicas that the API server has admitted: each attempt restarts it.
	// stoppedFor is the same for a job that has stopped for it.
	refusedFor, stoppedFor = 30 * time.Minute, 5 * time.Minute
)

// admission is what bounds the pods of namespaces: ResourceQuotas and LimitRanges, by namespace and in the order of
// their names.
type admission struct {
	quotas map[string][]*corev1.ResourceQuota
	ranges map[string][]*corev1.LimitRange
}

// admission reads the quotas and limit ranges.
func (a *Reconciler) admission(ctx context.Context) (*admission, error) {
	var quotas corev1.ResourceQuotaList
	if err := a.client.List(ctx, &quotas, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing resource quotas: %w", err)
	}
	var ranges corev1.LimitRangeList
	if err := a.client.List(ctx, &ranges, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing limit ranges: %w", err)
	}
	found := &admission{quotas: map[string][]*corev1.ResourceQuota{}, ranges: map[string][]*corev1.LimitRange{}}
	for i := range quotas.Items {
		quota := &quotas.Items[i]
		found.quotas[quota.Namespace] = append(found.quotas[quota.Namespace], quota)
	}
	for i := range ranges.Items {
		limits := &ranges.Items[i]
		found.ranges[limits.Namespace] = append(found.ranges[limits.Namespace], limits)
	}
	for _, of := range found.quotas {
		slices.SortFunc(of, func(x, y *corev1.ResourceQuota) int { return strings.Compare(x.Name, y.Name) })
	}
	for _, of := range found.ranges {
		slices.SortFunc(of, func(x, y *corev1.LimitRange) int { return strings.Compare(x.Name, y.Name) })
	}
	return found, nil
}

// usesOf returns what a replica of a spec uses of each quota of a namespace. Existing pods of the spec may use more.
func (a *admission) usesOf(namespace string, spec *corev1.PodSpec, existing []*corev1.Pod) []allocation.Amounts {
	quotas := a.quotas[namespace]
	if len(quotas) == 0 {
		return nil
	}
	most := allocation.UsesOf(spec)
	for _, pod := range existing {
		for name, amount := range allocation.UsesOf(&pod.Spec) {
			most[name] = max(most[name], amount)
		}
	}
	uses := make([]allocation.Amounts, len(quotas))
	for i, quota := range quotas {
		if allocation.Tracks(&quota.Spec, spec) {
			uses[i] = most
		}
	}
	return uses
}

// bounds returns what the quotas leave to the jobs of a round.
func (r *round) bounds(jobs []*v2alpha1.DIJob) map[string][]*allocation.Quota {
	own := map[string][]allocation.Amounts{}
	for _, job := range jobs {
		quotas, wanted := r.admission.quotas[job.Namespace], r.wanted[client.ObjectKeyFromObject(job)]
		if len(quotas) == 0 || wanted == nil {
			continue
		}
		if own[job.Namespace] == nil {
			own[job.Namespace] = make([]allocation.Amounts, len(quotas))
			for i := range quotas {
				own[job.Namespace][i] = allocation.Amounts{}
			}
		}
		for i := range quotas {
			own[job.Namespace][i].Add(r.ownOf(job, wanted, i), 1)
		}
	}
	bounds := map[string][]*allocation.Quota{}
	for namespace, quotas := range r.admission.quotas {
		for i, quota := range quotas {
			var used allocation.Amounts
			if own[namespace] != nil {
				used = own[namespace][i]
			}
			bounds[namespace] = append(bounds[namespace], allocation.NewQuota(quota, used))
		}
	}
	return bounds
}

// ownOf returns what a job has of a quota: its pods, or its placement if that is more. The used amounts of a quota
// lag behind pods that are replaced, which must not take the placement from their job.
func (r *round) ownOf(job *v2alpha1.DIJob, wanted *allocation.Job, quota int) allocation.Amounts {
	exists, placed := allocation.Amounts{}, allocation.Amounts{}
	elastic, _ := wanted.ElasticOf(len(job.Status.Allocation))
	for task := range wanted.Tasks {
		uses := wanted.Tasks[task].Uses[quota]
		if uses == nil {
			continue
		}
		for _, pod := range podsOf(&job.Spec.Tasks[task], r.pods[job.UID]) {
			if !podstate.Finished(pod) {
				exists.Add(allocation.UsesOf(&pod.Spec), 1)
			}
		}
		switch {
		case !isPlaced(job):
		case task == wanted.Elastic:
			placed.Add(uses, int64(max(elastic, 0)))
		default:
			placed.Add(uses, int64(wanted.Tasks[task].Replicas))
		}
	}
	for name, amount := range exists {
		placed[name] = max(placed[name], amount)
	}
	return placed
}

// hard identifies the quotas and limit ranges of a namespace without what is used.
func (a *admission) hard(namespace string) string {
	var all strings.Builder
	for _, quota := range a.quotas[namespace] {
		fmt.Fprintf(&all, "%s %d;", quota.UID, quota.Generation)
		for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
			hard := quota.Spec.Hard[name]
			fmt.Fprintf(&all, "%s=%s;", name, hard.String())
		}
	}
	for _, limits := range a.ranges[namespace] {
		fmt.Fprintf(&all, "%s %s;", limits.UID, limits.ResourceVersion)
	}
	return all.String()
}

// refusals are the jobs whose pods the API server refused for a quota, although they were placed: another owner was
// faster, or the quota is one that the allocator cannot count. They are in memory, like exclusions.
type refusals map[types.UID]*refused

type refused struct {
	bound allocation.Bound
	until time.Time
	// hard are the quotas of the time. Others may admit more.
	hard string
}

// update returns what the API server admits of a job; nil if it refuses nothing.
func (r refusals) update(job *v2alpha1.DIJob, wanted *allocation.Job, pods []*corev1.Pod, hard string, now time.Time) *allocation.Bound {
	if known := r[job.UID]; known != nil && (known.hard != hard || !now.Before(known.until)) {
		delete(r, job.UID)
	}
	if since, why := refusedSince(job); why != "" && isPlaced(job) && now.Sub(since) > refusalGrace && placedFor(job, now) > refusalGrace {
		exist := 0
		for _, pod := range pods {
			if podstate.Active(pod) {
				exist++
			}
		}
		if exist < len(job.Status.Allocation) {
			until := now.Add(refusedFor)
			if elastic, fits := wanted.ElasticOf(exist); !fits || elastic < wanted.Min {
				until = now.Add(stoppedFor)
			}
			r[job.UID] = &refused{allocation.Bound{Replicas: int32(exist), Why: why}, until, hard}
		}
	}
	if known := r[job.UID]; known != nil {
		return &known.bound
	}
	return nil
}

// forget drops the refusals of jobs that are not in the round.
func (r refusals) forget(jobs []*v2alpha1.DIJob) {
	current := make(map[types.UID]bool, len(jobs))
	for _, job := range jobs {
		current[job.UID] = true
	}
	maps.DeleteFunc(r, func(uid types.UID, _ *refused) bool { return !current[uid] })
}

// refusedSince returns since when pods of a job are refused for a quota, and the answer of the API server; "" if none is.
func refusedSince(job *v2alpha1.DIJob) (time.Time, string) {
	stalled := conditions.Find(&job.Status, v2alpha1.ConditionReplicaFailure)
	if stalled == nil || stalled.Status != corev1.ConditionTrue || stalled.Reason != v2alpha1.ReasonQuotaExceeded {
		return time.Time{}, ""
	}
	since := job.CreationTimestamp.Time
	if stalled.LastTransitionTime != nil {
		since = stalled.LastTransitionTime.Time
	}
	return since, stalled.Message
}

// admit bounds a job of the round by what the API server admits.
func (r *round) admit(known refusals, job *v2alpha1.DIJob) {
	wanted := r.wanted[client.ObjectKeyFromObject(job)]
	if wanted == nil {
		return
	}
	if bound := known.update(job, wanted, r.pods[job.UID], r.admission.hard(job.Namespace), r.now); bound != nil && wanted.Bound == nil {
		wanted.Bound = bound
	}
}

// admitted returns the spec of a task's pods as the API server admits it. If it admits none, that bounds the job.
func (r *round) admitted(wanted *allocation.Job, task *v2alpha1.Task, spec *corev1.PodSpec) *corev1.PodSpec {
	admitted, why := allocation.WithLimitRanges(spec, r.admission.ranges[wanted.Name.Namespace])
	if why != "" && wanted.Bound == nil {
		wanted.Bound = &allocation.Bound{Why: fmt.Sprintf("task %s: %s", names.TaskName(task), why)}
	}
	return admitted
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
