// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// requesting returns a template with resources.
func requesting(resources string) v2alpha1.RawObject {
	return jobs.Raw(`{"spec":{"containers":[{"name":"di-container","image":"image","resources":` + resources + `}]}}`)
}

const oneGi = `{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"memory":"2Gi"}}`

var _ = Describe("The resources of replicas", func() {
	var s *space
	nodeName := ""
	submit := func(ctx context.Context, resources string, changes ...func(*v2alpha1.DIJobSpec)) {
		GinkgoHelper()
		s = newSpace(ctx)
		// The API server resizes a pod only within what its node has.
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
		Expect(shared.api.Create(ctx, node)).To(Succeed())
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi")}
		node.Status.Capacity = node.Status.Allocatable
		Expect(shared.api.Status().Update(ctx, node)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(shared.api.Delete(ctx, node)).To(Succeed()) })
		nodeName = node.Name
		transport := specs.Must(rest.HTTPClientFor(shared.account))
		s.operator.resize = specs.Must(discover.NewResize(shared.account, transport))
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
			spec.Tasks[0].Template, spec.Tasks[1].Template = requesting(resources), requesting(resources)
			spec.Autoscale = &v2alpha1.Autoscale{Memory: &v2alpha1.MemoryRule{}, Pending: &v2alpha1.PendingRule{}}
			spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: v2alpha1.FailurePolicyRestartReplica}}}
			for _, change := range changes {
				change(spec)
			}
		})
	}
	pod := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		return specs.Get[corev1.Pod](ctx, shared.api, s.name, name)
	}
	// bind gives every pod a node that runs it.
	bind := func(ctx context.Context) {
		GinkgoHelper()
		for _, each := range s.pods(ctx) {
			if each.Spec.NodeName == "" {
				Expect(shared.api.SubResource("binding").Create(ctx, &each, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})).To(Succeed())
			}
			bound := pod(ctx, each.Name)
			bound.Status.Phase = corev1.PodRunning
			pods.Ready(bound)
			bound.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "di-container", Ready: true, Resources: bound.Spec.Containers[0].Resources.DeepCopy(),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}
			Expect(shared.api.Status().Update(ctx, bound)).To(Succeed())
		}
		Expect(s.settle(ctx)).To(Succeed())
	}
	// replace ends the containers of terminating pods, as a kubelet does, and lets the operator react.
	replace := func(ctx context.Context) {
		GinkgoHelper()
		Expect(s.settle(ctx)).To(Succeed())
		for _, each := range s.pods(ctx) {
			if each.DeletionTimestamp != nil {
				Expect(shared.api.Delete(ctx, &each, client.GracePeriodSeconds(0))).To(Succeed())
			}
		}
		Expect(s.settle(ctx)).To(Succeed())
	}
	start := func(ctx context.Context) {
		GinkgoHelper()
		Expect(s.settle(ctx)).To(Succeed())
		bind(ctx)
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
	}
	// plan records resources, as the execution of a plan does.
	plan := func(ctx context.Context, cpu, memory string) {
		GinkgoHelper()
		job := s.job(ctx)
		override := v2alpha1.ResourceOverride{Task: "collector", Reason: v2alpha1.OverrideScalePlan}
		if cpu != "" {
			override.Resources.CPU = ptr.To(resource.MustParse(cpu))
		}
		if memory != "" {
			override.Resources.Memory = ptr.To(resource.MustParse(memory))
		}
		job.Status.Scaling.Resources = workload.SetOverride(job.Status.Scaling.Resources, override)
		Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
	}
	memoryOf := func(pod *corev1.Pod) string {
		resources := pod.Spec.Containers[0].Resources
		return resources.Requests.Memory().String() + "/" + resources.Limits.Memory().String()
	}

	It("grow after an out-of-memory kill, and the next job of the group starts with them", func(ctx SpecContext) {
		submit(ctx, oneGi, func(spec *v2alpha1.DIJobSpec) { spec.Group = "cartpole" })
		start(ctx)
		s.report(ctx, "job-collector-1", oomStatus)
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Scaling.Resources).To(HaveLen(1))
		Expect(pod(ctx, "job-collector-1").Status.Phase).To(Equal(corev1.PodFailed))
		replace(ctx)
		Expect(memoryOf(pod(ctx, "job-collector-1"))).To(Equal("2Gi/4Gi"))
		Expect(memoryOf(pod(ctx, "job-collector-0"))).To(Equal("1Gi/2Gi"))
		job := s.job(ctx)
		Expect(job.Status.Restarts + job.Status.Reschedules + int32(len(job.Status.ReplicaRestarts))).To(BeZero())
		Expect(conditions.Find(&job.Status, v2alpha1.ConditionResourcesAdjusted).Message).To(ContainSubstring("gets memory 2Gi instead of 1Gi"))

		next := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "next"}, Spec: *job.Spec.DeepCopy()}
		Expect(shared.api.Create(ctx, next)).To(Succeed())
		for range 4 {
			_, err := s.operator.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(next)})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(memoryOf(pod(ctx, "next-collector-1"))).To(Equal("2Gi/4Gi"))
		Expect(memoryOf(pod(ctx, "next-collector-0"))).To(Equal("1Gi/2Gi"))
	})

	It("change in place where the API server allows it", func(ctx SpecContext) {
		submit(ctx, oneGi)
		start(ctx)
		before := pod(ctx, "job-collector-0")
		plan(ctx, "500m", "3Gi")
		Expect(s.settle(ctx)).To(Succeed())
		resized := pod(ctx, "job-collector-0")
		Expect(resized.UID).To(Equal(before.UID))
		Expect(memoryOf(resized)).To(Equal("3Gi/6Gi"))
		Expect(resized.Spec.Containers[0].Resources.Requests.Cpu().String()).To(Equal("500m"))
		Expect(resized.Annotations).To(HaveKeyWithValue(names.AnnotationResources, "cpu=500m,memory=3Gi"))
		Expect(resized.Annotations).To(HaveKey(names.AnnotationResize))
		bind(ctx)
		s.advance(time.Hour)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(pod(ctx, "job-collector-0").UID).To(Equal(before.UID))
		Expect(memoryOf(pod(ctx, "job-learner-0"))).To(Equal("1Gi/2Gi"))
	})

	It("replace pods one by one that the API server refuses to resize", func(ctx SpecContext) {
		// A request gives a pod without any another QoS class.
		submit(ctx, "{}")
		start(ctx)
		before := map[string]string{}
		for _, each := range s.pods(ctx) {
			before[each.Name] = string(each.UID)
		}
		plan(ctx, "", "1Gi")
		for range 2 {
			replace(ctx)
			waiting := 0
			for _, each := range s.pods(ctx) {
				if each.Spec.NodeName == "" {
					waiting++
				}
			}
			Expect(waiting).To(Equal(1))
			bind(ctx)
		}
		for _, name := range []string{"job-collector-0", "job-collector-1"} {
			Expect(string(pod(ctx, name).UID)).NotTo(Equal(before[name]))
			Expect(pod(ctx, name).Spec.Containers[0].Resources.Requests.Memory().String()).To(Equal("1Gi"))
		}
		Expect(string(pod(ctx, "job-learner-0").UID)).To(Equal(before["job-learner-0"]))
	})

	It("replace a pod that its node cannot resize", func(ctx SpecContext) {
		submit(ctx, oneGi, func(spec *v2alpha1.DIJobSpec) { spec.Tasks[1].Replicas = ptr.To[int32](1) })
		start(ctx)
		before := pod(ctx, "job-collector-0")
		plan(ctx, "8", "")
		Expect(s.settle(ctx)).To(Succeed())
		pending := pod(ctx, "job-collector-0")
		Expect(pending.UID).To(Equal(before.UID))
		pending.Status.Conditions = append(pending.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "Node didn't have enough capacity: cpu",
		})
		Expect(shared.api.Status().Update(ctx, pending)).To(Succeed())
		replace(ctx)
		next := pod(ctx, "job-collector-0")
		Expect(next.UID).NotTo(Equal(before.UID))
		Expect(next.Spec.Containers[0].Resources.Requests.Cpu().String()).To(Equal("8"))
		Expect(next.Annotations).NotTo(HaveKey(names.AnnotationResize))
	})

	It("replace a pod whose node is too small", func(ctx SpecContext) {
		submit(ctx, oneGi, func(spec *v2alpha1.DIJobSpec) { spec.Tasks[1].Replicas = ptr.To[int32](1) })
		start(ctx)
		before := pod(ctx, "job-collector-0")
		plan(ctx, "64", "")
		replace(ctx)
		Expect(pod(ctx, "job-collector-0").UID).NotTo(Equal(before.UID))
	})

	It("shrink while the scheduler finds no node", func(ctx SpecContext) {
		submit(ctx, oneGi)
		s.clock()
		Expect(s.settle(ctx)).To(Succeed())
		s.report(ctx, "job-learner-0", `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, lastTransitionTime: START, message: "0/3 nodes are available: 3 Insufficient cpu."}]}`)
		s.advance(time.Hour)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(memoryOf(pod(ctx, "job-learner-0"))).To(Equal("512Mi/1Gi"))
		Expect(pod(ctx, "job-learner-0").Spec.Containers[0].Resources.Requests.Cpu().String()).To(Equal("500m"))
	})
})
