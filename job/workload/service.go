// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RestoredService returns a copy of an observed service with what others changed put back: the wanted labels,
// selector and port, and that it is headless. It returns nil if nothing was changed. Must are the labels that
// the selector must have at least. Those of earlier releases have fewer labels than the wanted one.
func RestoredService(existing, wanted *corev1.Service, must map[string]string) *corev1.Service {
	selects := contains(existing.Spec.Selector, must) && contains(wanted.Spec.Selector, existing.Spec.Selector)
	hasPort := slices.ContainsFunc(existing.Spec.Ports, func(port corev1.ServicePort) bool { return IsSamePort(port, wanted.Spec.Ports[0]) })
	isHeadless := existing.Spec.Type != corev1.ServiceTypeExternalName
	publishes := existing.Spec.PublishNotReadyAddresses == wanted.Spec.PublishNotReadyAddresses
	if selects && hasPort && isHeadless && publishes && contains(existing.Labels, must) {
		return nil
	}
	restored := existing.DeepCopy()
	if !contains(restored.Labels, must) {
		if restored.Labels == nil {
			restored.Labels = map[string]string{}
		}
		maps.Copy(restored.Labels, wanted.Labels)
	}
	spec := &restored.Spec
	if !selects {
		spec.Selector = maps.Clone(wanted.Spec.Selector)
	}
	if !hasPort {
		spec.Ports = slices.Clone(wanted.Spec.Ports)
	}
	if !isHeadless {
		spec.Type, spec.ClusterIP, spec.ExternalName = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone, ""
	}
	spec.PublishNotReadyAddresses = wanted.Spec.PublishNotReadyAddresses
	return restored
}

// IsSamePort reports whether a stored port leads clients to the wanted one. A port leads to that of its own number by
// default.
func IsSamePort(stored, wanted corev1.ServicePort) bool {
	target := func(port corev1.ServicePort) intstr.IntOrString {
		if port.TargetPort == (intstr.IntOrString{}) {
			return intstr.FromInt32(port.Port)
		}
		return port.TargetPort
	}
	return stored.Name == wanted.Name && stored.Port == wanted.Port && target(stored) == target(wanted)
}

// contains reports whether labels have all of some.
func contains(all, some map[string]string) bool {
	return labels.SelectorFromSet(some).Matches(labels.Set(all))
}
