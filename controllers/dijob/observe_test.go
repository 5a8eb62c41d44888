// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

var _ = Describe("A coordinator-led job that loses many pods at once", func() {
	It("looks them all up by one list", func(ctx SpecContext) {
		const replicas = 20
		s := newLed(ctx, "")
		s.start(ctx)
		list := s.membership(ctx)
		for i := range replicas {
			slot := fmt.Sprintf("slot-%d", i)
			list.Spec.Members = append(list.Spec.Members, v2alpha1.Member{
				Slot: slot, Task: v2alpha1.TaskTypeCollector, PodName: names.ReplicaPod("job", names.ReplicaTypeCollector, names.Suffix(slot)),
			})
		}
		Expect(shared.api.Update(ctx, list)).To(Succeed())
		s.start(ctx)
		lost := s.pods(ctx)
		for i := range lost {
			if lost[i].Name != "job-coordinator" {
				Expect(shared.api.Delete(ctx, &lost[i], client.GracePeriodSeconds(0))).To(Succeed())
			}
		}
		looked := 0
		s.operator.live = interceptor.NewClient(shared.operator, interceptor.Funcs{
			Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, isPod := object.(*corev1.Pod); isPod {
					looked++
				}
				return next.Get(ctx, key, object, options...)
			},
		})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.pods(ctx)).To(HaveLen(replicas + 1))
		Expect(looked).To(BeZero(), "pods that were looked up alone")
	})
})
