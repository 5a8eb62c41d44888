// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// kubelet runs every pod at its own address from which this machine can call. Without it pods would
// not run because only an API server runs, without controllers.
type kubelet struct {
	api   client.WithWatch
	given int
}

// run runs pods until the context ends.
func (k *kubelet) run(ctx context.Context) {
	watching := specs.Must(k.api.Watch(ctx, &corev1.PodList{}))
	defer watching.Stop()
	for event := range watching.ResultChan() {
		pod, isPod := event.Object.(*corev1.Pod)
		if isPod && event.Type != watch.Deleted && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
			err := k.runPod(ctx, pod)
			Expect(err == nil || gone(err) || ctx.Err() != nil).To(BeTrue(), "running pod %s: %v", pod.Name, err)
		}
	}
}

// runPod runs a pod. If the pod has changed since, another event follows.
func (k *kubelet) runPod(ctx context.Context, pod *corev1.Pod) error {
	k.given++
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = fmt.Sprintf("127.5.%d.%d", k.given/200, k.given%200+1)
	if pod.Namespace == system {
		// EndpointSlices do not accept loopback addresses. No client calls these pods.
		pod.Status.PodIP = fmt.Sprintf("10.5.%d.%d", k.given/200, k.given%200+1)
	}
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	pods.Ready(pod)
	return k.api.Status().Update(ctx, pod)
}

// newNode creates a ready node with 16 processors and 2 GPUs.
func newNode(ctx context.Context, api client.Client, name string) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	Expect(api.Create(ctx, node)).To(Succeed())
	// The API server taints new nodes.
	node.Spec.Taints = nil
	Expect(api.Update(ctx, node)).To(Succeed())
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods: resource.MustParse("100"), "nvidia.com/gpu": resource.MustParse("2"),
	}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	Expect(api.Status().Update(ctx, node)).To(Succeed())
}
