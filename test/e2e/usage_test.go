// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/internal/names"
)

// usageNamespace is the namespace of the job that requests more than it uses.
const usageNamespace = "usage"

// A collector of this job uses a few thousandths of a core.
var _ = Describe("A job that requests far too much", Ordered, Serial, Label(autoscale), func() {
	const name = "modest"
	read := func(ctx SpecContext, g Gomega) *corev1.Pod {
		GinkgoHelper()
		pod, err := core.CoreV1().Pods(usageNamespace).Get(ctx, names.WorkerPod(name, "collector", 0), metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return pod
	}

	BeforeAll(func(ctx SpecContext) {
		if _, err := core.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1"); err != nil {
			Fail("the cluster serves no metrics of pods: run `cluster metrics`, as make e2e does, or install metrics-server: " + err.Error())
		}
		makeNamespace(ctx, usageNamespace)
		job := preemptibleJob(usageNamespace, name, GinkgoT().TempDir())
		unstructured.RemoveNestedField(job.Object, "spec", "preemptible")
		Expect(unstructured.SetNestedMap(job.Object, map[string]any{"optimizer": map[string]any{}}, "spec", "autoscale")).To(Succeed())
		for _, task := range []string{"collector", "learner"} {
			spec := podSpecs(job)[task]
			addArgs(spec, "--stream=1", "--min-unit=2s")
			containers, found, err := unstructured.NestedSlice(spec, "containers")
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(BeTrue())
			container, isMap := containers[0].(map[string]any)
			Expect(isMap).To(BeTrue())
			container["resources"] = map[string]any{"requests": map[string]any{"cpu": "400m", "memory": "64Mi"}}
			Expect(unstructured.SetNestedSlice(spec, containers, "containers")).To(Succeed())
		}
		submit(ctx, job)
		DeferCleanup(func(ctx SpecContext) {
			kubectlOutput(ctx, "delete", dijobs, name, "--namespace="+usageNamespace, waiting())
		})
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, usageNamespace, []string{"get", "pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"},
				[]string{"get", "scaleplans", "-o=yaml"}, []string{"get", "events"}, []string{"top", "pods"})
		}
	})

	It("gives CPU back in place, by what the metrics API measures", func(ctx SpecContext) {
		var before *corev1.Pod
		Eventually(func(g Gomega) {
			before = read(ctx, g)
			g.Expect(before.Status.Phase).To(Equal(corev1.PodRunning))
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		Expect(before.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()).To(BeEquivalentTo(400))

		// The usage of the whole job is observed for ten minutes before anything shrinks.
		Eventually(func(g Gomega) {
			after := read(ctx, g)
			g.Expect(after.UID).To(Equal(before.UID))
			g.Expect(after.Status.ContainerStatuses[0].RestartCount).To(BeZero())
			g.Expect(after.Status.ContainerStatuses[0].Resources.Requests.Cpu().MilliValue()).To(BeNumerically("<=", 280))
		}).WithTimeout(20 * time.Minute).WithPolling(5 * time.Second).Should(Succeed())
	})

	It("describes the plan and why", func(ctx SpecContext) {
		shown := kubectlOutput(ctx, "describe", dijobs, name, "--namespace="+usageNamespace)
		Expect(shown).To(ContainSubstring("OverRequested: requests are more than"))
	})
})
