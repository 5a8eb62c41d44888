// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// newQueue creates a namespace with a job of three replicas in a queue of Kueue's. A stand-in for Kueue's
// webhook changes the creation of pods on the way to the API server. The specs act as Kueue's controller
// with admit and evict. Gates, finalizers and deletion are those of the real API server.
func newQueue(ctx context.Context) *space {
	s := newSpace(ctx)
	s.operator = s.newOperator(onCreate(func(object client.Object) error {
		if pod, isPod := object.(*corev1.Pod); isPod && queueing.FromPod(pod).Queue != "" {
			pod.Labels[queueing.LabelManaged] = "true"
			pod.Finalizers = append(pod.Finalizers, queueing.Finalizer)
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: queueing.Gate})
		}
		return nil
	}))
	s.operator.options.Kueue = func(context.Context) (bool, error) { return true, nil }
	s.submitWorkers(ctx, 0)
	job := s.job(ctx)
	before := job.DeepCopy()
	job.Labels = map[string]string{queueing.LabelQueue: "team", queueing.LabelPriorityClass: "urgent"}
	Expect(shared.api.Patch(ctx, job, client.MergeFrom(before))).To(Succeed())
	return s
}

// admit removes the gates, as Kueue does, and then binds the pods to a node, as the scheduler does.
func (s *space) admit(ctx context.Context) {
	for _, pod := range s.pods(ctx) {
		before := pod.DeepCopy()
		pod.Spec.SchedulingGates = nil
		Expect(shared.api.Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
		Expect(shared.api.SubResource("binding").Create(ctx, &pod, binding)).To(Succeed())
	}
}

// evict evicts the group, as Kueue does.
func (s *space) evict(ctx context.Context) {
	for _, pod := range s.pods(ctx) {
		before := pod.DeepCopy()
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: "TerminationTarget", Status: corev1.ConditionTrue, Reason: "WorkloadEvicted", Message: "Preempted to accommodate a workload",
			LastTransitionTime: metav1.Now(),
		})
		Expect(shared.api.Status().Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
		Expect(shared.api.Delete(ctx, &pod)).To(Succeed())
	}
}

// endDeleted terminates the containers of terminating pods, as a kubelet does.
func (s *space) endDeleted(ctx context.Context) {
	for _, pod := range s.pods(ctx) {
		if pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
			continue
		}
		pod.Status.Phase = corev1.PodFailed
		Expect(shared.api.Status().Update(ctx, &pod)).To(Succeed())
		Expect(shared.api.Delete(ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})).To(Succeed())
	}
}

// theGroup expects all pods in one group of the given size, and returns its name.
func (s *space) theGroup(ctx context.Context, size int) string {
	GinkgoHelper()
	pods := s.pods(ctx)
	Expect(pods).To(HaveLen(size))
	group := queueing.FromPod(&pods[0])
	for i := range pods {
		Expect(queueing.FromPod(&pods[i])).To(Equal(group))
	}
	Expect(group).To(Equal(queueing.PodMeta{Queue: "team", PriorityClass: "urgent", Group: group.Group, Size: size}))
	return group.Group
}

// admission returns the condition for Kueue's admission, or an empty one.
func (s *space) admission(ctx context.Context) v2alpha1.DIJobCondition {
	status := s.job(ctx).Status
	return ptr.Deref(conditions.Find(&status, v2alpha1.ConditionAdmitted), v2alpha1.DIJobCondition{})
}

func (s *space) isAdmitted(ctx context.Context) (corev1.ConditionStatus, string) {
	found := s.admission(ctx)
	return found.Status, found.Reason
}

// workload creates a Workload that waits, of a pod if that queues by itself.
func (s *space) workload(ctx context.Context, name, pod, words string) {
	GinkgoHelper()
	Expect(shared.api.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": queueing.GroupName + "/v1beta2", "kind": queueing.WorkloadKind,
		"metadata": map[string]any{"namespace": s.name, "name": name, "labels": map[string]any{queueing.LabelJobUID: pod}},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": words},
		}},
	}})).To(Succeed())
}

var _ = Describe("A worker-led job in a queue of Kueue's", func() {
	It("waits behind its gates, runs when it is admitted, and has finished when its pods have", func(ctx SpecContext) {
		s := newQueue(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		s.theGroup(ctx, 3)
		status, reason := s.isAdmitted(ctx)
		Expect(status).To(Equal(corev1.ConditionFalse))
		Expect(reason).To(Equal(v2alpha1.ReasonWaitingInQueue))
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobStarting))
		s.advance(time.Hour)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(conditionTypes(s.job(ctx))).NotTo(ContainElement(v2alpha1.ConditionReplicasStalled))

		s.admit(ctx)
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		status, _ = s.isAdmitted(ctx)
		Expect(status).To(Equal(corev1.ConditionTrue))
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobRunning))

		s.endAll(ctx)
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		// Kueue removes the finalizers of a finished group.
		for _, pod := range s.pods(ctx) {
			Expect(pod.Finalizers).To(ContainElement(queueing.Finalizer))
		}
	})

	It("queues again when Kueue evicts it, which is no failure", func(ctx SpecContext) {
		s := newQueue(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		before := s.theGroup(ctx, 3)
		s.admit(ctx)
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())

		s.evict(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobRescheduling))
		Expect(s.theGroup(ctx, 3)).To(Equal(before), "what is left are the pods that end")
		s.endDeleted(ctx)
		Expect(s.theGroup(ctx, 3)).To(Equal(before), "Kueue's finalizer holds them")

		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.theGroup(ctx, 3)).NotTo(Equal(before))
		status := s.job(ctx).Status
		Expect(status.Phase).To(Equal(v2alpha1.JobStarting))
		Expect(status.Reschedules).To(BeEquivalentTo(1))
		Expect(status.Restarts).To(BeZero())
		admitted, _ := s.isAdmitted(ctx)
		Expect(admitted).To(Equal(corev1.ConditionFalse))
	})

	It("has a deleted replica recreated in its group", func(ctx SpecContext) {
		s := newQueue(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		before := s.theGroup(ctx, 3)
		s.admit(ctx)
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-collector-0", Namespace: s.name}}
		Expect(shared.api.Delete(ctx, lost)).To(Succeed())
		s.endDeleted(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.theGroup(ctx, 3)).To(Equal(before))
		Expect(s.created["*v1.Pod job-collector-0"]).To(Equal(2))
		Expect(s.job(ctx).Status.Reschedules).To(BeZero())
	})

	It("leaves the queue while it is suspended, also before it was admitted", func(ctx SpecContext) {
		s := newQueue(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		before := s.theGroup(ctx, 3)
		s.suspend(ctx, true)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(BeEmpty())
		s.suspend(ctx, false)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.theGroup(ctx, 3)).NotTo(Equal(before))
	})
})

func conditionTypes(job *v2alpha1.DIJob) []string {
	var types []string
	for _, condition := range job.Status.Conditions {
		types = append(types, condition.Type)
	}
	return types
}

var _ = Describe("The queues that jobs name", func() {
	It("are Kueue's once its API is served, and their Workloads say why a job waits", func(ctx SpecContext) {
		httpClient, err := rest.HTTPClientFor(shared.config)
		Expect(err).NotTo(HaveOccurred())
		mapper := specs.Must(apiutil.NewDynamicRESTMapper(shared.config, httpClient))
		clock := clocktesting.NewFakePassiveClock(time.Now())
		finder := discover.NewKueue(mapper, clock)
		Expect(finder.IsServed(ctx)).To(BeFalse())

		definitions := envtest.CRDInstallOptions{Paths: []string{testkit.QueueDefinitions()}, MaxTime: patience, ErrorIfPathMissing: true}
		_, err = envtest.InstallCRDs(shared.config, definitions)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return envtest.UninstallCRDs(shared.config, definitions) })
		Eventually(func() (bool, error) {
			clock.SetTime(clock.Now().Add(time.Hour))
			return finder.IsServed(ctx)
		}).Should(BeTrue())

		s := newQueue(ctx)
		s.operator.workloads = &discover.Workloads{Mapper: mapper, Live: s.operator.live}
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.admission(ctx).Message).To(Equal("the job waits in queue team for Kueue to admit it"))

		By("reading the Workload of a group, by its name")
		s.workload(ctx, s.theGroup(ctx, 3), "", "LocalQueue team doesn't exist")
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.admission(ctx).Message).To(Equal("the job waits in queue team for Kueue to admit it: LocalQueue team doesn't exist"))

		By("reading the Workload of a pod that queues by itself, by the UID of the pod")
		alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "alone", UID: "its-uid"}}
		Expect(s.operator.workloads.Words(ctx, alone)).To(BeEmpty())
		s.workload(ctx, "pod-alone-12345", "its-uid", "couldn't assign flavors")
		Expect(s.operator.workloads.Words(ctx, alone)).To(Equal("couldn't assign flavors"))
	})
})
