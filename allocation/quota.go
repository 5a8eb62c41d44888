// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Amounts are amounts by resource: CPU in thousandths of a core, everything else in its own unit. Resources have the
// names that a ResourceQuota gives them, such as requests.cpu.
type Amounts map[corev1.ResourceName]int64

// maxAmount bounds what one pod uses, so that sums of many pods do not overflow. No node has as much.
const maxAmount = 1 << 45

// Add adds amounts a number of times.
func (a Amounts) Add(other Amounts, times int64) {
	for name, amount := range other {
		a[name] += amount * times
	}
}

// Quota is what a ResourceQuota leaves to the jobs of a round in its namespace.
type Quota struct {
	// Name is the name of the ResourceQuota.
	Name string
	// Left is what all these jobs may have together.
	Left Amounts
	// spec says which pods count.
	spec *corev1.ResourceQuotaSpec
}

// NewQuota returns what a ResourceQuota leaves beside what it counts as used. own is the part of the used amounts
// that the jobs of the round have themselves, so that no pod counts twice.
func NewQuota(quota *corev1.ResourceQuota, own Amounts) *Quota {
	q := &Quota{Name: quota.Name, Left: make(Amounts, len(quota.Spec.Hard)), spec: &quota.Spec}
	for name, hard := range quota.Spec.Hard {
		if !countsPods(name) {
			continue
		}
		used := quota.Status.Used[name]
		q.Left[name] = max(amountOfQuota(name, &hard)-max(amountOfQuota(name, &used)-own[name], 0), 0)
	}
	return q
}

const (
	requestsPrefix = "requests."
	limitsPrefix   = "limits."
	countPods      = "count/pods"
)

// countsPods reports whether a resource of a quota is one that pods use. requests.storage is that of volume claims.
func countsPods(name corev1.ResourceName) bool {
	switch plain := string(name); {
	case name == corev1.ResourcePods, name == countPods, isCompute(name), isHugePages(name):
		return true
	case name == corev1.ResourceRequestsStorage, strings.Contains(plain, ".storageclass.storage.k8s.io/"):
		return false
	default:
		return strings.HasPrefix(plain, requestsPrefix) || strings.HasPrefix(plain, limitsPrefix)
	}
}

func isCompute(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// amountOfQuota returns the amount of a resource that has the name that a quota gives it.
func amountOfQuota(name corev1.ResourceName, quantity *resource.Quantity) int64 {
	if isCPU(name) {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

// isCPU reports whether a resource of a quota is CPU, whose amounts are in thousandths.
func isCPU(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceRequestsCPU || name == corev1.ResourceLimitsCPU
}

// UsesOf returns what a pod uses of quotas.
func UsesOf(spec *corev1.PodSpec) Amounts {
	pod := &corev1.Pod{Spec: *spec}
	uses := Amounts{corev1.ResourcePods: 1, countPods: 1}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		uses[requestsPrefix+name] = min(amountOf(name, &quantity), maxAmount)
		if isCompute(name) || isHugePages(name) {
			uses[name] = uses[requestsPrefix+name]
		}
	}
	for name, quantity := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if isCompute(name) {
			uses[limitsPrefix+name] = min(amountOf(name, &quantity), maxAmount)
		}
	}
	return uses
}

// Tracks reports whether a quota counts the pods of a spec.
func (q *Quota) Tracks(spec *corev1.PodSpec) bool { return Tracks(q.spec, spec) }

// Tracks reports whether a ResourceQuota counts the pods of a spec: all its scopes hold.
func Tracks(quota *corev1.ResourceQuotaSpec, spec *corev1.PodSpec) bool {
	for _, scope := range quota.Scopes {
		if !isInScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, spec) {
			return false
		}
	}
	if quota.ScopeSelector == nil {
		return true
	}
	return !slices.ContainsFunc(quota.ScopeSelector.MatchExpressions, func(scope corev1.ScopedResourceSelectorRequirement) bool {
		return !isInScope(scope, spec)
	})
}

// isInScope reports whether pods of a spec are in a scope. A scope that is not known is one of other objects.
func isInScope(scope corev1.ScopedResourceSelectorRequirement, spec *corev1.PodSpec) bool {
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(spec)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(spec)
	case corev1.ResourceQuotaScopePriorityClass:
		return matchesClass(scope, spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return reachesOtherNamespaces(spec.Affinity)
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
	}
	return false
}

func matchesClass(scope corev1.ScopedResourceSelectorRequirement, class string) bool {
	switch scope.Operator {
	case corev1.ScopeSelectorOpIn:
		return slices.Contains(scope.Values, class)
	case corev1.ScopeSelectorOpNotIn:
		return !slices.Contains(scope.Values, class)
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	case corev1.ScopeSelectorOpExists:
	}
	return class != ""
}

// isBestEffort reports whether no container of a spec has requests or limits of CPU or memory.
func isBestEffort(spec *corev1.PodSpec) bool {
	has := func(list corev1.ResourceList) bool { return !list.Cpu().IsZero() || !list.Memory().IsZero() }
	return !slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return has(c.Resources.Requests) || has(c.Resources.Limits)
	}) && (spec.Resources == nil || !has(spec.Resources.Requests) && !has(spec.Resources.Limits))
}

// reachesOtherNamespaces reports whether a term of pod affinity names namespaces.
func reachesOtherNamespaces(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if with := affinity.PodAffinity; with != nil {
		terms = append(terms, with.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, with.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if without := affinity.PodAntiAffinity; without != nil {
		terms = append(terms, without.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, without.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for i := range weighted {
		terms = append(terms, weighted[i].PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool {
		return len(term.Namespaces) > 0 || term.NamespaceSelector != nil
	})
}
