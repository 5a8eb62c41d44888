// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// WithLimitRanges returns a spec of pods as the API server admits it in a namespace with LimitRanges: with their
// default requests and limits. why says which of their bounds the pods violate; "" if they violate none.
func WithLimitRanges(spec *corev1.PodSpec, ranges []*corev1.LimitRange) (admitted *corev1.PodSpec, why string) {
	if len(ranges) == 0 {
		return spec, ""
	}
	admitted = spec.DeepCopy()
	for _, each := range ranges {
		for i := range each.Spec.Limits {
			if item := &each.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
				setDefaults(admitted.InitContainers, item)
				setDefaults(admitted.Containers, item)
			}
		}
	}
	for _, each := range ranges {
		for i := range each.Spec.Limits {
			if broken := violation(admitted, &each.Spec.Limits[i]); broken != "" {
				return admitted, fmt.Sprintf("limit range %s: %s", each.Name, broken)
			}
		}
	}
	return admitted, ""
}

func setDefaults(containers []corev1.Container, item *corev1.LimitRangeItem) {
	for i := range containers {
		resources := &containers[i].Resources
		resources.Requests = completed(resources.Requests, item.DefaultRequest)
		resources.Limits = completed(resources.Limits, item.Default)
	}
}

// completed returns a list with the defaults that it lacks.
func completed(list, defaults corev1.ResourceList) corev1.ResourceList {
	if len(defaults) == 0 {
		return list
	}
	all := maps.Clone(defaults)
	maps.Copy(all, list)
	return all
}

// violation returns which bound of an item pods violate; "" for none.
func violation(spec *corev1.PodSpec, item *corev1.LimitRangeItem) string {
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
			if broken := outside(item, container.Resources.Requests, container.Resources.Limits); broken != "" {
				return fmt.Sprintf("container %s %s", container.Name, broken)
			}
		}
	case corev1.LimitTypePod:
		pod := &corev1.Pod{Spec: *spec}
		options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
		if broken := outside(item, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)); broken != "" {
			return "the pod " + broken
		}
	case corev1.LimitTypePersistentVolumeClaim:
	}
	return ""
}

// outside returns how requests and limits are outside the bounds of an item; "" if they are not.
func outside(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) string {
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		least := item.Min[name]
		request, hasRequest := requests[name]
		limit, hasLimit := limits[name]
		if !hasRequest || request.Cmp(least) < 0 || hasLimit && limit.Cmp(least) < 0 {
			return fmt.Sprintf("must request at least %s of %s", least.String(), name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		most := item.Max[name]
		request, hasRequest := requests[name]
		limit, hasLimit := limits[name]
		if !hasLimit || limit.Cmp(most) > 0 || hasRequest && request.Cmp(most) > 0 {
			return fmt.Sprintf("must be limited to at most %s of %s", most.String(), name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(item.MaxLimitRequestRatio)) {
		ratio := item.MaxLimitRequestRatio[name]
		request, limit := requests[name], limits[name]
		if request.IsZero() || limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64()*(1+1e-9) {
			return fmt.Sprintf("must have a limit of %s of at most %s times its request", name, ratio.String())
		}
	}
	return ""
}
