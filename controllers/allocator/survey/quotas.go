// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Admission is what bounds the pods of namespaces: ResourceQuotas and LimitRanges, by namespace and in the order of
// their names. The zero value bounds nothing.
type Admission struct {
	quotas map[string][]*corev1.ResourceQuota
	ranges map[string][]*corev1.LimitRange
}

// NewAdmission returns what quotas and limit ranges bound.
func NewAdmission(quotas []corev1.ResourceQuota, ranges []corev1.LimitRange) *Admission {
	found := &Admission{quotas: map[string][]*corev1.ResourceQuota{}, ranges: map[string][]*corev1.LimitRange{}}
	for i := range quotas {
		quota := &quotas[i]
		found.quotas[quota.Namespace] = append(found.quotas[quota.Namespace], quota)
	}
	for i := range ranges {
		limits := &ranges[i]
		found.ranges[limits.Namespace] = append(found.ranges[limits.Namespace], limits)
	}
	for _, of := range found.quotas {
		slices.SortFunc(of, func(x, y *corev1.ResourceQuota) int { return strings.Compare(x.Name, y.Name) })
	}
	for _, of := range found.ranges {
		slices.SortFunc(of, func(x, y *corev1.LimitRange) int { return strings.Compare(x.Name, y.Name) })
	}
	return found
}

// admit returns the spec of pods as the API server admits it, and why it admits none.
func (a *Admission) admit(namespace string, spec *corev1.PodSpec) (admitted *corev1.PodSpec, refusal string) {
	return allocation.WithLimitRanges(spec, a.ranges[namespace])
}

// usesOf returns what a replica of a spec uses of each quota of a namespace. Existing pods of the spec may use more.
func (a *Admission) usesOf(namespace string, spec *corev1.PodSpec, existing []*corev1.Pod) []allocation.Amounts {
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
func (r *Round) bounds(found *Cluster) map[string][]*allocation.Quota {
	own := map[string][]allocation.Amounts{}
	for _, job := range found.Jobs {
		quotas, wanted := found.Admission.quotas[job.Namespace], r.Wanted[nameOf(job)]
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
			own[job.Namespace][i].Add(ownOf(job, wanted, found.Pods[job.UID], i), 1)
		}
	}
	bounds := map[string][]*allocation.Quota{}
	for namespace, quotas := range found.Admission.quotas {
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
func ownOf(job *v2alpha1.DIJob, wanted *allocation.Job, pods []*corev1.Pod, quota int) allocation.Amounts {
	exists, placed := allocation.Amounts{}, allocation.Amounts{}
	elastic, _ := wanted.ElasticOf(len(job.Status.Allocation))
	for task := range wanted.Tasks {
		uses := wanted.Tasks[task].Uses[quota]
		if uses == nil {
			continue
		}
		for _, pod := range podsOf(&job.Spec.Tasks[task], pods) {
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
func (a *Admission) hard(namespace string) string {
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
