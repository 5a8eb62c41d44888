// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// submitPlan creates a ScalePlan of the job.
func (s *space) submitPlan(ctx context.Context, name string, spec v2alpha1.ScalePlanSpec) {
	spec.Job = "job"
	Expect(shared.api.Create(ctx, &v2alpha1.ScalePlan{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name}, Spec: spec})).To(Succeed())
}

func (s *space) planNamed(ctx context.Context, name string) *v2alpha1.ScalePlan {
	return specs.Get[v2alpha1.ScalePlan](ctx, shared.api, s.name, name)
}

// expectPlan runs pods until a plan has a phase.
func (s *space) expectPlan(ctx context.Context, name string, phase v2alpha1.PlanPhase) {
	Eventually(func(g Gomega, ctx context.Context) {
		s.runNew(ctx)
		plan := s.planNamed(ctx, name)
		g.Expect(plan.Status.Phase).To(Equal(phase), plan.Status.Message)
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
}

// runNew makes pending pods running and removes terminating ones, as a kubelet does. The operator may delete a pod
// meanwhile.
func (s *space) runNew(ctx context.Context) {
	for _, pod := range s.pods(ctx) {
		if pod.DeletionTimestamp != nil {
			Expect(client.IgnoreNotFound(shared.api.Delete(ctx, &pod, client.GracePeriodSeconds(0)))).To(Succeed())
		}
	}
	s.run(ctx)
}

var _ = Describe("A ScalePlan", func() {
	It("is refused, executed, superseded and forgotten", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManagerWith(ctx, shared.account, s.name)
		s.submitWorkers(ctx, 1)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))

		By("refusing a plan that names no pod of the job at admission")
		refused := &v2alpha1.ScalePlan{
			ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: s.name},
			Spec:       v2alpha1.ScalePlanSpec{Job: "job", Remove: []string{"job-collector-9"}},
		}
		Expect(shared.api.Create(ctx, refused)).To(MatchError(ContainSubstring(`"job-collector-9": must be a pod of the job`)))

		By("growing a task and giving another one more memory")
		s.submitPlan(ctx, "a-grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{
			{Name: "collector", Replicas: ptr.To[int32](4)},
			{Name: "learner", Resources: v2alpha1.ReplicaResources{Memory: ptr.To(resource.MustParse("64Mi"))}},
		}})
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(ContainElement("job-collector-3"))
		job := s.job(ctx)
		Expect(*job.Spec.Tasks[1].Replicas).To(BeEquivalentTo(4))
		Expect(*job.Spec.Elastic.Replicas).To(BeEquivalentTo(4))
		Expect(job.Status.Scaling.Resources).To(HaveLen(1))
		Expect(s.planNamed(ctx, "a-grow").OwnerReferences).To(ConsistOf(HaveField("UID", job.UID)))
		Eventually(s.notes).WithContext(ctx).WithTimeout(patience).Should(ContainElement("2 -> 4 replicas of task collector, by scaleplan/a-grow"))

		By("removing a pod in the middle by a newer plan")
		s.submitPlan(ctx, "b-remove", v2alpha1.ScalePlanSpec{Remove: []string{"job-collector-1"}})
		s.expectPlan(ctx, "b-remove", v2alpha1.PlanSucceeded)
		Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0", "job-collector-0", "job-collector-2", "job-collector-3"))

		By("forgetting all but the last of many plans")
		for i := range 40 {
			s.submitPlan(ctx, fmt.Sprintf("d-many-%03d", i), v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(1 + i%4))}}})
		}
		s.expectPlan(ctx, "d-many-039", v2alpha1.PlanSucceeded)
		Eventually(func(g Gomega, ctx context.Context) {
			var plans v2alpha1.ScalePlanList
			g.Expect(shared.api.List(ctx, &plans, client.InNamespace(s.name))).To(Succeed())
			g.Expect(plans.Items).To(HaveLen(scaling.History))
			for i := range plans.Items {
				g.Expect(scaling.IsFinished(plans.Items[i].Status.Phase)).To(BeTrue())
			}
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
		Eventually(s.reasons).WithContext(ctx).WithTimeout(patience).Should(ContainElements(
			"PlanAccepted", "PlanExecuting", "PlanSucceeded", "PlanSuperseded"))
	})

	It("leaves a bounded history after hundreds of them, which costs no request afterwards", func(ctx SpecContext) {
		const plans = 300
		s := newSpace(ctx)
		asked := s.startCounted(ctx, func(*rest.Config) {})
		s.submitWorkers(ctx, 1)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))
		for i := range plans {
			s.submitPlan(ctx, fmt.Sprintf("many-%03d", i), v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(1 + i%4))}}})
		}
		s.expectPlan(ctx, fmt.Sprintf("many-%03d", plans-1), v2alpha1.PlanSucceeded)
		var left v2alpha1.ScalePlanList
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(shared.api.List(ctx, &left, client.InNamespace(s.name))).To(Succeed())
			g.Expect(left.Items).To(HaveLen(scaling.History))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(asked.but()["PATCH scaleplans/status"]).To(BeNumerically("<=", 5*plans))
		Expect(asked.but()["DELETE scaleplans"]).To(BeNumerically("<=", 2*plans))

		By("reconciling the job")
		Eventually(func(g Gomega, ctx context.Context) {
			job := s.job(ctx)
			g.Expect(job.Status.ReadyReplicas).To(BeEquivalentTo(len(s.pods(ctx))))
			g.Expect(job.Status.ObservedGeneration).To(Equal(job.Generation))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		before := asked.total()
		for i := range 10 {
			job := s.job(ctx)
			metav1.SetMetaDataAnnotation(&job.ObjectMeta, "seen", strconv.Itoa(i))
			Expect(shared.api.Update(ctx, job)).To(Succeed())
		}
		Consistently(asked.total).WithTimeout(2 * lifecycle.CountsInterval).Should(Equal(before))
	})

	It("changes the members of a coordinator-led job", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManagerWith(ctx, shared.account, s.name)
		s.submitLed(ctx, "")
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(ConsistOf("job-coordinator"))
		s.run(ctx)
		s.askForReplicas(ctx)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(5))
		s.run(ctx)

		By("refusing a name that no member has before anything changes")
		s.submitPlan(ctx, "a-refused", v2alpha1.ScalePlanSpec{Remove: []string{"job-collector-abcde"}})
		s.expectPlan(ctx, "a-refused", v2alpha1.PlanRefused)

		By("adding a collector")
		s.submitPlan(ctx, "b-grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To[int32](3)}}})
		s.expectPlan(ctx, "b-grow", v2alpha1.PlanSucceeded)
		Expect(s.podNames(ctx)).To(ConsistOf(append(s.replicaPods(ctx), "job-coordinator")))
		Expect(s.membership(ctx).Spec.Members).To(HaveLen(4))
		Eventually(s.notes).WithContext(ctx).WithTimeout(patience).Should(ContainElement("2 -> 3 replicas of task collector, by scaleplan/b-grow"))

		By("removing one by its name, and giving the others more memory")
		removed := s.replicaPods(ctx)[0]
		s.submitPlan(ctx, "c-remove", v2alpha1.ScalePlanSpec{
			Remove: []string{removed},
			Tasks:  []v2alpha1.TaskScale{{Name: "collector", Resources: v2alpha1.ReplicaResources{Memory: ptr.To(resource.MustParse("64Mi"))}}},
		})
		s.expectPlan(ctx, "c-remove", v2alpha1.PlanSucceeded)
		Expect(s.podNames(ctx)).To(And(HaveLen(5), Not(ContainElement(removed))))
		Expect(s.membership(ctx).Spec.Members).To(HaveLen(3))
	})
})

// notes returns the notes of all Events in the namespace.
func (s *space) notes(ctx context.Context) []string {
	list := specs.List[eventsv1.EventList](ctx, shared.api, client.InNamespace(s.name))
	var notes []string
	for i := range list.Items {
		notes = append(notes, list.Items[i].Note)
	}
	return notes
}
