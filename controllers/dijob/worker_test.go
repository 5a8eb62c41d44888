// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"bytes"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("A worker-led job", func() {
	It("runs and succeeds", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobStarting))
		Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0", "job-collector-0", "job-collector-1"))
		Expect(s.services(ctx)).To(ConsistOf("di-job"))
		Expect(s.pods(ctx)[0].Labels).To(And(
			HaveKeyWithValue("team", "blue"), HaveKeyWithValue("diengine/operator", "di-operator"), HaveKeyWithValue("diengine/job", "job"),
		))

		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		status := s.job(ctx).Status
		Expect(status.Phase).To(Equal(v2alpha1.JobRunning))
		Expect(status.ReadyReplicas).To(BeEquivalentTo(3))
		Expect(status.TaskStatus).To(HaveKeyWithValue("collector", v2alpha1.TaskStatus{corev1.PodRunning: 2}))

		s.endAll(ctx)
		status = s.job(ctx).Status
		Expect(status.Phase).To(Equal(v2alpha1.JobSucceeded))
		Expect(status.CompletedRanks).To(Equal("0-2"))
		Expect(status.CompletionTimestamp).NotTo(BeNil())
		Expect(status.ObservedGeneration).To(Equal(s.job(ctx).Generation))
		Expect(s.services(ctx)).To(BeEmpty())
		Expect(s.podNames(ctx)).To(HaveLen(3))
	})

	It("has pods with the fields of their template that are newer than the operator", func(ctx SpecContext) {
		s := newSpace(ctx)
		sent := make(chan map[string]any, 10)
		s.operator = s.newOperator(onCreate(func(object client.Object) error {
			if whole, ok := object.(*unstructured.Unstructured); ok {
				spec, _ := whole.Object["spec"].(map[string]any)
				sent <- runtime.DeepCopyJSON(spec)
			}
			return nil
		}))
		template := podTemplate()
		template.Raw = bytes.Replace(template.Raw, []byte(`"spec":{`), []byte(`"spec":{"newerThanTheOperator":{"a":[1]},`), 1)
		s.submit(ctx, v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: template}, {Type: v2alpha1.TaskTypeCollector, Template: podTemplate()},
		}})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0", "job-collector-0"))
		Expect(sent).To(HaveLen(1))
		Expect(<-sent).To(And(
			HaveKeyWithValue("newerThanTheOperator", map[string]any{"a": []any{int64(1)}}), HaveKeyWithValue("hostname", "job-learner-0")))

		By("running and ending as any other")
		s.run(ctx)
		s.endAll(ctx)
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
	})

	It("puts the addresses of a small job into its pods, without a ConfigMap", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.configMaps(ctx)).To(BeEmpty())
		s.expectPeerList(ctx, "job-collector-1", "job-learner-0", "job-collector-0", "job-collector-1")

		By("growing, which restarts no pod")
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		s.resizeCollectors(ctx, 3)
		Expect(s.podNames(ctx)).To(HaveLen(4))
		Expect(s.configMaps(ctx)).To(BeEmpty())
		s.expectPeerList(ctx, "job-collector-2", "job-learner-0", "job-collector-0", "job-collector-1", "job-collector-2")
		Expect(s.job(ctx).Status.Restarts).To(BeZero())
	})

	It("tells its pods of each other by one ConfigMap for those that were made alike", func(ctx SpecContext) {
		s := newSharedSpace(ctx)
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		first := s.configMaps(ctx)
		Expect(first).To(HaveLen(1))
		stored := specs.Get[corev1.ConfigMap](ctx, shared.api, s.name, first[0])
		Expect(*stored.Immutable).To(BeTrue())
		Expect(metav1.IsControlledBy(stored, s.job(ctx))).To(BeTrue())
		for _, pod := range s.pods(ctx) {
			Expect(workload.NodesOf(&pod)).To(Equal(first[0]))
		}
		s.expectPeerList(ctx, "job-collector-1", "job-learner-0", "job-collector-0", "job-collector-1")

		By("recreating it if it is deleted before the pods have started")
		Expect(shared.api.Delete(ctx, stored)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.configMaps(ctx)).To(Equal(first))

		By("growing, which restarts no pod and creates another one for the new pod")
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		s.resizeCollectors(ctx, 3)
		Expect(s.podNames(ctx)).To(HaveLen(4))
		Expect(s.configMaps(ctx)).To(And(HaveLen(2), ContainElement(first[0])))
		s.expectPeerList(ctx, "job-collector-2", "job-learner-0", "job-collector-0", "job-collector-1", "job-collector-2")

		By("shrinking, which leaves none without a pod")
		s.run(ctx)
		s.resizeCollectors(ctx, 2)
		Expect(s.configMaps(ctx)).To(Equal(first))

		By("ending")
		s.endAll(ctx)
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		Expect(s.configMaps(ctx)).To(BeEmpty())
	})

	It("creates no pod while the name of its ConfigMap is taken, and says so", func(ctx SpecContext) {
		s := newSharedSpace(ctx)
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.configMaps(ctx)[0]}}
		Expect(shared.api.Delete(ctx, taken)).To(Succeed())
		for _, pod := range s.pods(ctx) {
			Expect(shared.api.Delete(ctx, &pod, client.GracePeriodSeconds(0))).To(Succeed())
		}
		taken.ResourceVersion, taken.UID = "", ""
		Expect(shared.api.Create(ctx, taken)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.job(ctx).Status.Conditions).To(ContainElement(And(
			HaveField("Type", v2alpha1.ConditionNameConflict), HaveField("Status", corev1.ConditionTrue),
			HaveField("Message", ContainSubstring(taken.Name)),
		)))

		By("retrying rarely despite many events")
		var asked atomic.Int32
		s.operator = s.newOperator(onCreate(func(client.Object) error {
			asked.Add(1)
			return nil
		}))
		s.clock()
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(asked.Load()).To(BeNumerically("<=", 21))
		Expect(s.podNames(ctx)).To(BeEmpty())

		By("going on once the name is free")
		Expect(shared.api.Delete(ctx, taken)).To(Succeed())
		result := specs.Must(s.pass(ctx))
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)))
		s.advance(30 * time.Second)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(3))
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionFalse, "", BeEmpty()))
	})

	It("replaces a ConfigMap that holds something else than its name tells", func(ctx SpecContext) {
		s := newSharedSpace(ctx)
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		forged := specs.Get[corev1.ConfigMap](ctx, shared.api, s.name, s.configMaps(ctx)[0])
		Expect(shared.api.Delete(ctx, forged)).To(Succeed())
		forged.ResourceVersion, forged.UID = "", ""
		forged.Data["DI_NODES"] = "another.example"
		Expect(shared.api.Create(ctx, forged)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(3))
		s.expectPeerList(ctx, "job-collector-1", "job-learner-0", "job-collector-0", "job-collector-1")
	})

	It("says that a name it needs is taken, and leaves who has it alone", func(ctx SpecContext) {
		s := newSpace(ctx)
		foreign := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job-learner-0"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "own", Image: "image"}}},
		}
		Expect(shared.api.Create(ctx, foreign)).To(Succeed())
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Conditions).To(ContainElement(And(
			HaveField("Type", v2alpha1.ConditionNameConflict), HaveField("Status", corev1.ConditionTrue),
			HaveField("Message", ContainSubstring("job-learner-0")),
		)))
		Expect(shared.api.Delete(ctx, foreign, client.GracePeriodSeconds(0))).To(Succeed())
		s.advance(lifecycle.ConflictDelay)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Conditions).To(ContainElement(And(
			HaveField("Type", v2alpha1.ConditionNameConflict), HaveField("Status", corev1.ConditionFalse),
		)))
	})

	It("overwrites nothing that others wrote into its status", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		job := s.job(ctx)
		job.Status.Profilings = ptr.To(jobs.Raw(`{"loss":1}`))
		Expect(shared.api.Status().Update(ctx, job)).To(Succeed())

		resized := false
		s.operator = s.newOperator(intercept(func(verb string, _ client.Object, write func() error) error {
			if verb == patchesStatus && !resized {
				resized = true
				job := s.job(ctx)
				job.Status.Replicas = 4
				Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
			}
			return write()
		}))
		s.run(ctx)
		Expect(apierrors.IsConflict(s.settle(ctx))).To(BeTrue())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(4))
		Expect(s.job(ctx).Status.Profilings.Raw).To(MatchJSON(`{"loss":1}`))
	})

	It("is left to the garbage collector once it is deleted", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(shared.api.Delete(ctx, s.job(ctx), client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		for _, pod := range s.pods(ctx) {
			Expect(shared.api.Delete(ctx, &pod, client.GracePeriodSeconds(0))).To(Succeed())
		}
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(BeEmpty())
	})
})
