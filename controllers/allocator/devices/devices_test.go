// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	gpuDriver = "gpu.example.com"
	gpuClass  = corev1.ResourceName("deviceclass.resource.kubernetes.io/gpu")
)

// sliceOf returns a slice of so many devices of a node, of the newest generation.
func sliceOf(node string, count int, changes ...func(*resourcev1.ResourceSlice)) resourcev1.ResourceSlice {
	slice := resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: gpuDriver, Pool: resourcev1.ResourcePool{Name: node, Generation: 2}, NodeName: &node,
	}}
	for i := range count {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("gpu-", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: ptr.To("gpu")}},
		})
	}
	for _, change := range changes {
		change(&slice)
	}
	return slice
}

// classOf returns the class gpu with selectors.
func classOf(expressions ...string) resourcev1.DeviceClass {
	class := resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	for _, expression := range expressions {
		class.Spec.Selectors = append(class.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}})
	}
	return class
}

// claimOf returns a claim with a device of a node, used by pods.
func claimOf(node string, device int, users ...types.UID) resourcev1.ResourceClaim {
	claim := resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}}}
	claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{Driver: gpuDriver, Pool: node, Device: fmt.Sprint("gpu-", device)}}
	for _, user := range users {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", UID: user})
	}
	return claim
}

func templateOf(name string, requests ...resourcev1.DeviceRequest) resourcev1.ResourceClaimTemplate {
	template := resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: name}}
	template.Spec.Spec.Devices.Requests = requests
	return template
}

func exactly(class string, count int64, changes ...func(*resourcev1.ExactDeviceRequest)) resourcev1.DeviceRequest {
	request := &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: count}
	for _, change := range changes {
		change(request)
	}
	return resourcev1.DeviceRequest{Exactly: request}
}

func TestDevicesOfAClassAreCountedByNode(t *testing.T) {
	t.Parallel()
	own := map[types.UID][]*corev1.Pod{"job": {{ObjectMeta: metav1.ObjectMeta{UID: "own"}}}}
	const ofDriver = `device.driver == "gpu.example.com"`
	for name, tc := range map[string]struct {
		class  resourcev1.DeviceClass
		slices []resourcev1.ResourceSlice
		claims []resourcev1.ResourceClaim
		want   map[string]int64
	}{
		"all are free": {class: classOf(ofDriver), slices: []resourcev1.ResourceSlice{sliceOf("a", 3), sliceOf("b", 1)}, want: map[string]int64{"a": 3, "b": 1}},
		"claims of others take some, and those of the jobs none": {
			class: classOf(ofDriver), slices: []resourcev1.ResourceSlice{sliceOf("a", 4)},
			claims: []resourcev1.ResourceClaim{claimOf("a", 0, "other"), claimOf("a", 1, "own"), claimOf("a", 2, "own", "other"), {}}, want: map[string]int64{"a": 2},
		},
		"an earlier generation of a pool is gone": {
			class:  classOf(ofDriver),
			slices: []resourcev1.ResourceSlice{sliceOf("a", 2), sliceOf("a", 9, func(slice *resourcev1.ResourceSlice) { slice.Spec.Pool.Generation = 1 })},
			want:   map[string]int64{"a": 2},
		},
		"another driver has others": {class: classOf(`device.driver == 'other'`), slices: []resourcev1.ResourceSlice{sliceOf("a", 2)}, want: map[string]int64{}},
		"attributes select": {
			class: classOf(ofDriver + ` && device.attributes["gpu.example.com"].type == 'gpu'`),
			slices: []resourcev1.ResourceSlice{sliceOf("a", 3, func(slice *resourcev1.ResourceSlice) {
				slice.Spec.Devices[1].Attributes["type"] = resourcev1.DeviceAttribute{StringValue: ptr.To("mig")}
				slice.Spec.Devices[2].Attributes = nil
			})},
			want: map[string]int64{"a": 1},
		},
		"a tainted device takes no pods": {
			class: classOf(ofDriver),
			slices: []resourcev1.ResourceSlice{sliceOf("a", 3, func(slice *resourcev1.ResourceSlice) {
				slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
			})},
			want: map[string]int64{"a": 2},
		},
		"devices that share capacity are not counted": {
			class: classOf(ofDriver),
			slices: []resourcev1.ResourceSlice{sliceOf("a", 2, func(slice *resourcev1.ResourceSlice) {
				slice.Spec.Devices[0].ConsumesCounters = make([]resourcev1.DeviceCounterConsumption, 1)
			})},
		},
		"devices of the network are not counted": {
			class: classOf(ofDriver), slices: []resourcev1.ResourceSlice{sliceOf("a", 2, func(slice *resourcev1.ResourceSlice) { slice.Spec.NodeName = nil })},
		},
		"other conditions are not counted":     {class: classOf(ofDriver + ` || true`), slices: []resourcev1.ResourceSlice{sliceOf("a", 2)}},
		"a class of any driver is not counted": {class: classOf(), slices: []resourcev1.ResourceSlice{sliceOf("a", 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := &Objects{
				Classes: resourcev1.DeviceClassList{Items: []resourcev1.DeviceClass{tc.class}}, Slices: resourcev1.ResourceSliceList{Items: tc.slices},
				Claims: resourcev1.ResourceClaimList{Items: tc.claims},
			}
			expect.Equal(t, "free devices", tc.want, Count(found, own).free[gpuClass])
		})
	}
}

func TestAClaimRequestsDevicesOfCountableClasses(t *testing.T) {
	t.Parallel()
	found := &Objects{
		Classes: resourcev1.DeviceClassList{Items: []resourcev1.DeviceClass{classOf(`device.driver == "gpu.example.com"`)}},
		Templates: resourcev1.ResourceClaimTemplateList{Items: []resourcev1.ResourceClaimTemplate{
			templateOf("two", exactly("gpu", 2)), templateOf("default", exactly("gpu", 0)), templateOf("huge", exactly("gpu", 1<<62), exactly("gpu", 1<<62)),
			templateOf("others", exactly("unknown", 2), exactly("gpu", 1, func(r *resourcev1.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) }),
				exactly("gpu", 0, func(r *resourcev1.ExactDeviceRequest) { r.AllocationMode = resourcev1.DeviceAllocationModeAll }),
				resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "gpu", Count: 1}}}),
		}},
	}
	counted := Count(found, nil)
	for claims, want := range map[string]int64{"": 0, "two": 2, "default": 1, "two default": 3, "huge huge": maxDevices, "others": 0, "missing": 0} {
		spec := &corev1.PodSpec{Containers: make([]corev1.Container, 1)}
		for _, name := range strings.Fields(claims) {
			spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{ResourceClaimTemplateName: &name})
		}
		extended := counted.Spec("space", spec)
		if got := extended.Containers[0].Resources.Requests[gpuClass]; got.Value() != want {
			t.Errorf("claims %q request %s, want %d", claims, got.String(), want)
		}
		if spec.Containers[0].Resources.Requests != nil {
			t.Errorf("claims %q change the spec that was read", claims)
		}
		if elsewhere := counted.Spec("elsewhere", spec); elsewhere != spec {
			t.Errorf("claims %q of another namespace request %v", claims, elsewhere.Containers[0].Resources.Requests)
		}
	}
}
