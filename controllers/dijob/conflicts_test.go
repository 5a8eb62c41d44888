// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("A job that is recreated under its name", func() {
	// again submits a job of many pods, deletes it and submits it a second time while the pods of the
	// first job still exist. It counts the requests of the operator.
	again := func(ctx context.Context, pods int32) (s *space, requests *atomic.Int32) {
		s, requests = newSpace(ctx), &atomic.Int32{}
		s.submitMany(ctx, pods)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(shared.api.Delete(ctx, s.job(ctx))).To(Succeed())
		Expect(s.reconcile(ctx)).To(Succeed())
		s.operator = s.newOperator(intercept(func(_ string, _ client.Object, write func() error) error {
			requests.Add(1)
			return write()
		}))
		s.operator.live = interceptor.NewClient(shared.operator, interceptor.Funcs{
			Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				requests.Add(1)
				return next.Get(ctx, key, object, options...)
			},
		})
		s.clock()
		s.submitMany(ctx, pods)
		return s, requests
	}

	It("waits for the names of the first one's pods with few requests", func(ctx SpecContext) {
		const pods = 20
		s, requests := again(ctx, pods)
		old := s.pods(ctx)
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.conditions(ctx)).NotTo(HaveKey(v2alpha1.ConditionNameConflict))
		Expect(s.job(ctx)).To(condition(string(v2alpha1.JobPending), corev1.ConditionTrue, "JobPending", ContainSubstring("an earlier job of its name")))
		for i := range old {
			Expect(shared.api.Delete(ctx, &old[i], client.GracePeriodSeconds(0))).To(Succeed())
			Expect(s.reconcile(ctx)).To(Succeed())
		}
		service := specs.Get[corev1.Service](ctx, shared.api, s.name, "di-job")
		Expect(shared.api.Delete(ctx, service)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(pods))
		Expect(slices.ContainsFunc(s.pods(ctx), func(pod corev1.Pod) bool { return !isOfJob(&pod, s.job(ctx)) })).To(BeFalse())
		Expect(requests.Load()).To(BeNumerically("<", pods+20))
	})

	It("says after a minute which of them do not go, of many three", func(ctx SpecContext) {
		s, requests := again(ctx, 6)
		old := s.pods(ctx)
		for i := range old {
			old[i].Finalizers = []string{"user/holds"}
			Expect(shared.api.Update(ctx, &old[i])).To(Succeed())
			Expect(shared.api.Delete(ctx, &old[i])).To(Succeed())
		}
		Expect(shared.api.Delete(ctx, specs.Get[corev1.Service](ctx, shared.api, s.name, "di-job"))).To(Succeed())
		Expect(s.reconcile(ctx)).To(Succeed())
		s.advance(2 * time.Minute)
		for range 3 {
			Expect(s.reconcile(ctx)).To(Succeed())
		}
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionTrue, v2alpha1.ConditionNameConflict, And(
			ContainSubstring("pod job-collector-0 must be deleted and still exists"), HaveSuffix("; and so are others"),
			Satisfy(func(message string) bool { return strings.Count(message, ";") == 3 }),
		)))
		Expect(requests.Load()).To(BeNumerically("<", 6))
	})
})
