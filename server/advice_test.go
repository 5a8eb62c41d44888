// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("the advice of the ratio rule", func() {
	var namespace, base string

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		base = newServer(api.cached)
	})

	decide := func(ctx SpecContext, job *v2alpha1.DIJob, at time.Time, value corev1.ConditionStatus, message string) {
		GinkgoHelper()
		decided := metav1.NewMicroTime(at)
		job.Status.Autoscaling = &v2alpha1.AutoscalingStatus{Ratio: &v2alpha1.RatioStatus{
			DecidedAt: &decided, Replicas: map[string]int32{"collector": 12}, Reason: "Grown", Message: "from 10 to 12 producers",
		}}
		conditions.Set(&job.Status, v2alpha1.ConditionAutoscaling, value, "Reason", message, at)
		Expect(api.live.Status().Update(ctx, job)).To(Succeed())
		cacheKnows(ctx, job)
	}

	It("is what a coordinator reads in place of a resize by the operator", func(ctx SpecContext) {
		spec := coordinatorLed()
		spec.Autoscale = &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{Driver: v2alpha1.RatioByCoordinator}}
		job := newJob(ctx, namespace, trainer, spec)
		newMembership(ctx, job)
		newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
		path := base + "/v1alpha1/advice?namespace=" + namespace + "&coordinator=" + names.CoordinatorPod(trainer)
		code, answer := call(ctx, http.MethodGet, path, "")
		Expect(isLater(code, answer)).To(BeTrue(), answer)
		Expect(answer).To(ContainSubstring("has not decided"))

		now := time.Now()
		decide(ctx, job, now, corev1.ConditionTrue, "advice")
		for _, version := range []string{"/v1alpha1", "/v1alpha2"} {
			code, answer = call(ctx, http.MethodGet, base+version+path[len(base)+len("/v1alpha1"):], "")
			Expect(strconv.Itoa(code) + answer).To(And(HavePrefix(`200{"success":true,"code":0,"message":"successfully get advice","data":{"replicas":{"collector":12},"decided_at":"`),
				HaveSuffix(`","reason":"Grown","message":"from 10 to 12 producers"}}`)))
		}

		By("withholding an advice that no longer holds")
		decide(ctx, job, now, corev1.ConditionFalse, "no current reports")
		code, answer = call(ctx, http.MethodGet, path, "")
		Expect(isLater(code, answer)).To(BeTrue(), answer)
		Expect(answer).To(ContainSubstring("no current reports"))
		decide(ctx, job, now.Add(-time.Hour), corev1.ConditionTrue, "advice")
		code, answer = call(ctx, http.MethodGet, path, "")
		Expect(isLater(code, answer)).To(BeTrue(), answer)

		Expect(status(call(ctx, http.MethodGet, base+"/v1alpha1/advice?namespace="+namespace, ""))).To(Equal(http.StatusBadRequest))
		Expect(status(call(ctx, http.MethodGet, base+"/v1alpha1/advice?namespace="+namespace+"&coordinator=other-coordinator", ""))).To(Equal(http.StatusNotFound))
	})

	It("is refused where the operator resizes the job", func(ctx SpecContext) {
		newTrainer(ctx, namespace)
		code, answer := call(ctx, http.MethodGet, base+"/v1alpha1/advice?namespace="+namespace+"&coordinator="+names.CoordinatorPod(trainer), "")
		Expect(code).To(Equal(http.StatusConflict))
		Expect(answer).To(ContainSubstring("driver: Coordinator"))
	})
})
