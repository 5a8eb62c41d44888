// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("An AggregatorConfig of another namespace", func() {
	It("makes aggregators only where it is shared with the job's", func(ctx SpecContext) {
		s, owner := newSpace(ctx), newSpace(ctx)
		config := &v2alpha1.AggregatorConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: owner.name, Name: "mine"},
			Spec:       v2alpha1.AggregatorConfigSpec{Aggregator: v2alpha1.AggregatorSpec{Template: podTemplate()}},
		}
		Expect(shared.api.Create(ctx, config)).To(Succeed())
		s.submit(ctx, v2alpha1.DIJobSpec{
			Lifecycle:        v2alpha1.LifecycleCoordinatorLed,
			AggregatorConfig: &v2alpha1.AggregatorConfigReference{Namespace: owner.name, Name: "mine"},
			Tasks: []v2alpha1.Task{
				{Type: v2alpha1.TaskTypeCoordinator, Template: podTemplate()}, {Type: v2alpha1.TaskTypeCollector, Template: podTemplate()},
				{Type: v2alpha1.TaskTypeLearner, Template: podTemplate()},
			},
		})
		Expect(s.settle(ctx)).To(Succeed())
		s.askForReplicas(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		job := specs.Get[v2alpha1.DIJob](ctx, shared.api, s.name, "job")
		Expect(job.Status.Conditions).To(ContainElement(And(
			HaveField("Type", v2alpha1.ConditionAggregatorConfigMissing), HaveField("Status", corev1.ConditionTrue),
			HaveField("Message", ContainSubstring("that is not shared: annotate "+owner.name+"/mine with diengine/shared-with="+s.name)))))
		Expect(s.images(ctx, "aggregator")).To(BeEmpty())

		config.Annotations = map[string]string{"diengine/shared-with": s.name}
		Expect(shared.api.Update(ctx, config)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.images(ctx, "aggregator")).To(HaveLen(1))
	})
})
