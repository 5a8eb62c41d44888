// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

var _ = Describe("A coordinator-led job", func() {
	It("runs, grows as asked, succeeds and is cleaned up", func(ctx SpecContext) {
		s := newLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobStarting))
		Expect(s.podNames(ctx)).To(ConsistOf("job-coordinator"))
		s.run(ctx)
		s.askForReplicas(ctx)
		s.start(ctx)
		Expect(s.job(ctx).Status.ReadyReplicas).To(BeEquivalentTo(5))
		Expect(s.podNames(ctx)).To(ConsistOf(append(s.replicaPods(ctx), "job-coordinator")))
		Expect(s.services(ctx)).To(ConsistOf(s.podNames(ctx)))

		s.end(ctx, "job-coordinator", 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		Expect(s.podNames(ctx)).To(HaveLen(1))
		Expect(s.services(ctx)).To(BeEmpty())
	})

	It("gets a new unit for one that lost a pod", func(ctx SpecContext) {
		s := newLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		s.askForReplicas(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		before := s.replicaPods(ctx)
		ddp := &corev1.Pod{}
		ddp.Namespace, ddp.Name = s.name, before[3]
		Expect(shared.api.Delete(ctx, ddp, client.GracePeriodSeconds(0))).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		after := s.replicaPods(ctx)
		Expect(after[:2]).To(Equal(before[:2]))
		Expect(after[2:]).NotTo(ContainElements(before[2:]))
		Expect(s.podNames(ctx)).To(ConsistOf(append(after, "job-coordinator")))
		Expect(s.services(ctx)).To(ConsistOf(s.podNames(ctx)))
	})

	It("loses no replica that only its cache has not seen", func(ctx SpecContext) {
		s := newLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		s.askForReplicas(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		before := s.membership(ctx)
		s.operator = s.newOperator(staleList(onlyCoordinator))
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.membership(ctx).Status).To(Equal(before.Status))
		Expect(s.podNames(ctx)).To(HaveLen(5))
	})

	It("loses no replica that only its cached Membership lacks", func(ctx SpecContext) {
		s := newLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		stale := s.membership(ctx)
		s.askForReplicas(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		current := s.operator.live
		s.operator = s.newOperator(interceptor.Funcs{
			Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if list, ok := object.(*v2alpha1.Membership); ok {
					stale.DeepCopyInto(list)
					return nil
				}
				return next.Get(ctx, key, object, options...)
			},
		})
		s.operator.live = current
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(5))
	})
})

var _ = Describe("The list of a coordinator-led job", func() {
	It("holds no quantity that takes hours to compute with", func(ctx SpecContext) {
		s := newLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		s.askForReplicas(ctx)
		for _, resource := range []string{"cpus", "gpus", "memory"} {
			ask := func(quantity string) error {
				patch := fmt.Sprintf(`[{"op":"add","path":"/spec/members/0/resources","value":{%q:%s}}]`, resource, quantity)
				return shared.api.Patch(ctx, s.membership(ctx), client.RawPatch(types.JSONPatchType, []byte(patch)), client.DryRunAll)
			}
			for _, usual := range []string{`2`, `"2"`, `"500m"`, `"1.5Gi"`, `"0.5"`, `"1e3"`, `"12E"`, `"1E18"`, `"9223372036854775807"`, `"-1"`} {
				Expect(ask(usual)).To(Succeed(), usual)
			}
			for _, absurd := range []string{`"1e-2000000000"`, `"1e19"`, `"1E+999999999"`, `"1e1.5"`, `"` + strings.Repeat("1", 41) + `"`} {
				Expect(ask(absurd)).To(Satisfy(apierrors.IsInvalid), absurd)
			}
		}
	})
})
