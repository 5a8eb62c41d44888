// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

var _ = Describe("A replica that needs twice its memory", Label(autoscale), func() {
	const namespace, name, optimized = "memory", "hungry", "optimized"

	// template uses an amount of memory within a limit of 64Mi.
	template := func(mebibytes int) v2alpha1.RawObject {
		return v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"spec":{"terminationGracePeriodSeconds":1,`+
			`"containers":[{"name":"di-container","image":"cartpole:dev","imagePullPolicy":"IfNotPresent","args":["memory","%d"],`+
			`"resources":{"requests":{"cpu":"20m","memory":"32Mi"},"limits":{"memory":"64Mi"}}}]}}`, mebibytes)}}
	}

	It("gets it, in two more attempts at most, without a counted failure", func(ctx SpecContext) {
		makeNamespace(ctx, namespace)
		DeferCleanup(func(ctx SpecContext) {
			if CurrentSpecReport().Failed() {
				explain(ctx, namespace, []string{"get", "pods", "-o=yaml"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "events"})
			}
		})
		submit(ctx, &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v2alpha1.DIJobSpec{
			BackoffLimit:   ptr.To(int32(0)),
			CleanPodPolicy: v2alpha1.CleanPodPolicyNone,
			Autoscale:      &v2alpha1.Autoscale{Memory: &v2alpha1.MemoryRule{}},
			FailurePolicy:  &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: v2alpha1.FailurePolicyRestartReplica}}},
			Tasks: []v2alpha1.Task{
				{Name: "modest", Type: v2alpha1.TaskTypeNone, Replicas: ptr.To(int32(1)), Template: template(8)},
				{Name: "hungry", Type: v2alpha1.TaskTypeNone, Replicas: ptr.To(int32(1)), Template: template(100)},
			},
		}})
		Eventually(func(g Gomega) {
			g.Expect(getJob(ctx, g, namespace, name).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		status := getJob(ctx, Default, namespace, name).Status
		Expect(status.Restarts + status.Reschedules + int32(len(status.ReplicaRestarts))).To(BeZero())
		Expect(status.Scaling.Resources).To(HaveLen(1))
		Expect(status.Scaling.Resources[0].Reason).To(Equal(v2alpha1.OverrideOutOfMemory))
		Expect(status.Scaling.Resources[0].Attempts).To(BeNumerically("<=", 2))
		pod, err := core.CoreV1().Pods(namespace).Get(ctx, names.WorkerPod(name, "hungry", 0), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.Containers[0].Resources.Limits.Memory().Value()).To(BeNumerically(">=", int64(128<<20)))
	})

	It("gets it from the optimizer of the job, once for each kill", func(ctx SpecContext) {
		makeNamespace(ctx, namespace)
		DeferCleanup(func(ctx SpecContext) {
			if CurrentSpecReport().Failed() {
				explain(ctx, namespace, []string{"get", "pods", "-o=yaml"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "scaleplans", "-o=yaml"}, []string{"get", "events"})
			}
		})
		submit(ctx, &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: optimized}, Spec: v2alpha1.DIJobSpec{
			BackoffLimit:   ptr.To(int32(3)),
			CleanPodPolicy: v2alpha1.CleanPodPolicyNone,
			Autoscale:      &v2alpha1.Autoscale{Optimizer: &v2alpha1.OptimizerRule{}},
			Tasks:          []v2alpha1.Task{{Name: "hungry", Type: v2alpha1.TaskTypeNone, Replicas: ptr.To(int32(1)), Template: template(100)}},
		}})
		Eventually(func(g Gomega) {
			g.Expect(getJob(ctx, g, namespace, optimized).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		var plans v2alpha1.ScalePlanList
		Expect(api.List(ctx, &plans, client.InNamespace(namespace))).To(Succeed())
		Expect(plans.Items).NotTo(BeEmpty())
		for _, plan := range plans.Items {
			Expect(plan.Spec.Reason).To(HavePrefix("OutOfMemory: 1 replica was killed out of memory"))
		}
		Expect(getJob(ctx, Default, namespace, optimized).Status.Restarts).To(BeNumerically(">=", len(plans.Items)))
		pod, err := core.CoreV1().Pods(namespace).Get(ctx, names.WorkerPod(optimized, "hungry", 0), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.Containers[0].Resources.Limits.Memory().Value()).To(BeNumerically(">=", int64(128<<20)))
	})
})
