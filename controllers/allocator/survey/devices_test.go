// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/controllers/allocator/devices"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gpuDriver = "gpu.example.com"

// gpusOf returns a class of GPUs, two of them on each node, and a template of a claim of one.
func gpusOf(nodes ...string) *devices.Objects {
	class := resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}
	template := resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "one"}}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
		Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: 1},
	}}
	found := &devices.Objects{}
	found.Classes.Items, found.Templates.Items = []resourcev1.DeviceClass{class}, []resourcev1.ResourceClaimTemplate{template}
	for _, node := range nodes {
		found.Slices.Items = append(found.Slices.Items, resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: gpuDriver, NodeName: ptr.To(node), Pool: resourcev1.ResourcePool{Name: node},
			Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}},
		}})
	}
	return found
}

// takenGPU returns a claim of another program that has a GPU of a node.
func takenGPU(node string, index int) resourcev1.ResourceClaim {
	return resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Driver: gpuDriver, Pool: node, Device: fmt.Sprint("gpu-", index)}},
		}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{UID: "other"}},
	}}
}

// TestAJobWithClaimsIsPlacedWhereDevicesAreFree: both nodes have CPU for it.
func TestAJobWithClaimsIsPlacedWhereDevicesAreFree(t *testing.T) {
	t.Parallel()
	job := placedJob()
	job.Spec.Tasks[0].Replicas = ptr.To(int32(2))
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","resources":{"requests":{"cpu":"1"}}}],
		"resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"one"}]}}`)
	if !devices.AreRequestedBy(job) || devices.AreRequestedBy(placedJob()) {
		t.Error("which job has claims is wrong")
	}
	objects := gpusOf("a", "b")
	objects.Claims.Items = []resourcev1.ResourceClaim{takenGPU("a", 0)}
	nodesNow := func() []string {
		found := clusterOf(job, nil, readyNode("a", "0"), readyNode("b", "0"))
		found.Devices = devices.Count(objects, nil)
		return place(t, found, &Memory{}).Nodes
	}
	expect.Equal(t, "nodes", []string{"b", "b"}, nodesNow())
	objects.Claims.Items = append(objects.Claims.Items, takenGPU("a", 1), takenGPU("b", 1))
	if got := nodesNow(); len(got) != 0 {
		t.Errorf("the job is placed on %v, where too few devices are free", got)
	}
}

func TestTheDevicesOfAJobThatIsNotPlacedNowStayItsOwn(t *testing.T) {
	t.Parallel()
	counted := devices.Count(gpusOf("a"), nil)
	pod := podOf(0, "a", runs)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{ResourceClaimTemplateName: ptr.To("one")}}
	class := corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + "gpu")
	if got := counted.Pod(pod).Spec.Containers[0].Resources.Requests[class]; got.Value() != 1 {
		t.Errorf("the pod takes %s devices", got.String())
	}
}
