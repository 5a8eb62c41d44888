// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Nodes match the ports of a Service and of its endpoints by name. The Service of an earlier
// release has one port without a name, and ours has several with names. Nodes learn of Services and
// of endpoints at different times. A bridge is an EndpointSlice that lists one pod of an earlier
// di-server under the old and the new name of the port. With a bridge, no order of these updates
// leaves a node with a port without endpoints.
//
// A bridge does not follow its pod, so it says of the pod that it serves and terminates. Nodes use
// such an endpoint only while a port has no ready one. A bridge with a ready endpoint would hide
// from nodes that its pod terminates: they prefer it to the endpoint of the control plane.

// bridgeManager is the manager of bridges. The control plane leaves slices of other managers
// unchanged.
const bridgeManager = "takeover.diengine.opendilab.org"

const (
	// ourLabel is on our pods and on none of an earlier release.
	ourLabel = "app.kubernetes.io/name"
	ourName  = "di-orchestrator"
	// componentLabel distinguishes our pods.
	componentLabel, serverComponent = "app.kubernetes.io/component", "server"
	// planeLabel is on pods of every release, and earlier Services select by it.
	planeLabel = "control-plane"
)

// serverLabels returns the labels of our di-server's pods.
func serverLabels() labels.Set {
	return labels.Set{ourLabel: ourName, componentLabel: serverComponent, planeLabel: names.ServerService}
}

// earlierServices returns the Services that select an earlier di-server first and ours later.
func earlierServices() []string {
	return []string{names.ServerService, names.EarlierNodePort}
}

// portName returns the name of a port in our Service di-server, and "" if earlier releases do not
// have the port.
func portName(number int32) string {
	switch number {
	case names.ServerPortV1:
		return "v1"
	case names.ServerPortV2:
		return "v2"
	default:
		return ""
	}
}

// renamed returns the ports of a Service whose names differ from those in our Service.
func renamed(service *corev1.Service) []int32 {
	var found []int32
	for _, port := range service.Spec.Ports {
		if name := portName(port.Port); name != "" && name != port.Name {
			found = append(found, port.Port)
		}
	}
	return found
}

// bridges returns the slices that list a pod under all names that a port of its Service may have.
// The pod owns them, so they are deleted with it.
func bridges(service *corev1.Service, number int32, pod *corev1.Pod) []*discoveryv1.EndpointSlice {
	i := slices.IndexFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.Port == number })
	if i < 0 || !podstate.Ready(pod) || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		return nil
	}
	ports := bridgedPorts(&service.Spec.Ports[i], pod)
	var made []*discoveryv1.EndpointSlice
	for _, ip := range pod.Status.PodIPs {
		family := discoveryv1.AddressTypeIPv4
		if utilnet.IsIPv6String(ip.IP) {
			family = discoveryv1.AddressTypeIPv6
		}
		if !slices.Contains(service.Spec.IPFamilies, corev1.IPFamily(family)) {
			continue
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: service.Namespace,
				Name:      fmt.Sprintf("%s-%d-%s-%s", service.Name, number, ipLabel(family), pod.UID),
				Labels:    map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: bridgeManager},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod.Name, UID: pod.UID,
				}},
			},
			AddressType: family,
			Ports:       ports,
			Endpoints: []discoveryv1.Endpoint{{
				Addresses:  []string{ip.IP},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)},
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			}},
		}
		if pod.Spec.NodeName != "" {
			slice.Endpoints[0].NodeName = ptr.To(pod.Spec.NodeName)
		}
		made = append(made, slice)
	}
	return made
}

func ipLabel(family discoveryv1.AddressType) string {
	if family == discoveryv1.AddressTypeIPv6 {
		return "v6"
	}
	return "v4"
}

// bridgedPorts returns a port of a Service under its current name, under its name in our Service,
// and without a name.
func bridgedPorts(port *corev1.ServicePort, pod *corev1.Pod) []discoveryv1.EndpointPort {
	target := targetPort(port, pod)
	var ports []discoveryv1.EndpointPort
	for _, name := range slices.Compact(slices.Sorted(slices.Values([]string{"", port.Name, portName(port.Port)}))) {
		ports = append(ports, discoveryv1.EndpointPort{Name: ptr.To(name), Port: ptr.To(target), Protocol: ptr.To(port.Protocol)})
	}
	return ports
}

// targetPort returns the port of a pod to which a port of its Service leads.
func targetPort(port *corev1.ServicePort, pod *corev1.Pod) int32 {
	if port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal != 0 {
		return port.TargetPort.IntVal
	}
	for i := range pod.Spec.Containers {
		for _, own := range pod.Spec.Containers[i].Ports {
			if own.Name == port.TargetPort.StrVal && own.Protocol == port.Protocol {
				return own.ContainerPort
			}
		}
	}
	return port.Port
}

// isBridge reports whether a slice is a bridge.
func isBridge(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == bridgeManager
}

// lists reports whether a slice belongs to a Service and lists a pod, even one that is terminating.
func lists(slice *discoveryv1.EndpointSlice, service, pod string) bool {
	return slice.Labels[discoveryv1.LabelServiceName] == service && slices.ContainsFunc(slice.Endpoints, func(endpoint discoveryv1.Endpoint) bool {
		return endpoint.TargetRef != nil && endpoint.TargetRef.Kind == "Pod" && endpoint.TargetRef.Name == pod
	})
}

// leads reports whether nodes send calls of a port to a pod.
func leads(slice *discoveryv1.EndpointSlice, service, port, pod string) bool {
	return lists(slice, service, pod) && !isBridge(slice) &&
		slices.ContainsFunc(slice.Ports, func(one discoveryv1.EndpointPort) bool { return ptr.Deref(one.Name, "") == port }) &&
		slices.ContainsFunc(slice.Endpoints, func(endpoint discoveryv1.Endpoint) bool {
			return endpoint.TargetRef != nil && endpoint.TargetRef.Name == pod && ptr.Deref(endpoint.Conditions.Ready, true)
		})
}

// isNarrow reports whether a Service selects our pods only.
func isNarrow(service *corev1.Service) bool { return service.Spec.Selector[ourLabel] == ourName }

// selectsOurs reports whether a Service selects pods of our di-server.
func selectsOurs(service *corev1.Service) bool {
	return len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(serverLabels())
}
