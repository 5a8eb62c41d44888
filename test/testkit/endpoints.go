// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endpointsManager is the managed-by label of the control plane's EndpointSlices.
const endpointsManager = "endpointslice-controller.k8s.io"

// SyncEndpoints writes the EndpointSlices of all Services of a namespace, as the control plane does
// in a complete cluster.
func SyncEndpoints(ctx context.Context, api client.Client, namespace string) error {
	var services corev1.ServiceList
	var pods corev1.PodList
	var found discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&services, &pods, &found} {
		if err := api.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("listing Services and pods: %w", err)
		}
	}
	wanted := map[string]*discoveryv1.EndpointSlice{}
	for i := range services.Items {
		addSlices(wanted, &services.Items[i], pods.Items)
	}
	for i := range found.Items {
		one := &found.Items[i]
		if one.Labels[discoveryv1.LabelManagedBy] != endpointsManager {
			continue
		}
		now := wanted[one.Name]
		if now == nil {
			if err := client.IgnoreNotFound(api.Delete(ctx, one)); err != nil {
				return fmt.Errorf("deleting EndpointSlice %s: %w", one.Name, err)
			}
			continue
		}
		delete(wanted, one.Name)
		one.Ports, one.Endpoints = now.Ports, now.Endpoints
		if err := api.Update(ctx, one); err != nil {
			return fmt.Errorf("updating EndpointSlice %s: %w", one.Name, err)
		}
	}
	for _, one := range wanted {
		if err := api.Create(ctx, one); err != nil {
			return fmt.Errorf("creating EndpointSlice %s: %w", one.Name, err)
		}
	}
	return nil
}

// PodsBehind returns the pods to which nodes send calls of a Service's port, and reports whether they
// are ready. Without a ready one, nodes use those that serve and terminate. Of two endpoints of one
// pod, that wins which does not terminate, as in kube-proxy.
func PodsBehind(known []discoveryv1.EndpointSlice, service, port string) (pods []string, ready bool) {
	found := map[string]discoveryv1.EndpointConditions{}
	for i := range known {
		slice := &known[i]
		if slice.Labels[discoveryv1.LabelServiceName] != service ||
			!slices.ContainsFunc(slice.Ports, func(one discoveryv1.EndpointPort) bool { return ptr.Deref(one.Name, "") == port }) {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if _, has := found[endpoint.TargetRef.Name]; !has || !ptr.Deref(endpoint.Conditions.Terminating, false) {
				found[endpoint.TargetRef.Name] = endpoint.Conditions
			}
		}
	}
	var ending []string
	for pod, conditions := range found {
		switch {
		case ptr.Deref(conditions.Ready, true):
			pods = append(pods, pod)
		case ptr.Deref(conditions.Serving, true) && ptr.Deref(conditions.Terminating, false):
			ending = append(ending, pod)
		}
	}
	if len(pods) > 0 {
		return pods, true
	}
	return ending, false
}

// addSlices adds the slices of a Service: one for all pods that have the same ports.
func addSlices(all map[string]*discoveryv1.EndpointSlice, service *corev1.Service, pods []corev1.Pod) {
	if len(service.Spec.Selector) == 0 {
		return
	}
	for i := range pods {
		pod := &pods[i]
		if pod.Status.PodIP == "" || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			continue
		}
		name, ports := service.Name, []discoveryv1.EndpointPort{}
		for _, port := range service.Spec.Ports {
			if number, has := listensFor(pod, &port); has {
				ports = append(ports, discoveryv1.EndpointPort{Name: ptr.To(port.Name), Port: ptr.To(number), Protocol: ptr.To(port.Protocol)})
				name = fmt.Sprintf("%s-%d", name, number)
			}
		}
		slice := all[name]
		if slice == nil {
			slice = &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: name, Labels: map[string]string{
					discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: endpointsManager,
				}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: ports,
			}
			all[name] = slice
		}
		slice.Endpoints = append(slice.Endpoints, endpointOf(pod))
	}
}

func endpointOf(pod *corev1.Pod) discoveryv1.Endpoint {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
	ends := pod.DeletionTimestamp != nil
	return discoveryv1.Endpoint{
		Addresses:  []string{pod.Status.PodIP},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready && !ends), Serving: ptr.To(ready), Terminating: ptr.To(ends)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
}

// listensFor returns the port on which a pod serves a port of its Service, if it does.
func listensFor(pod *corev1.Pod, port *corev1.ServicePort) (int32, bool) {
	if port.TargetPort.Type == intstr.Int {
		return port.TargetPort.IntVal, true
	}
	for i := range pod.Spec.Containers {
		for _, own := range pod.Spec.Containers[i].Ports {
			if own.Name == port.TargetPort.StrVal {
				return own.ContainerPort, true
			}
		}
	}
	return 0, false
}
