// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/gangs"
	"opendilab.org/di-orchestrator/test/testkit"
)

var _ = Describe("A gang", func() {
	It("is left to Kubernetes by an API server that serves its PodGroups", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManagerWith(ctx, shared.account, s.name)
		s.submitGang(ctx, v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}})

		By("telling of three pods before they are created")
		Eventually(s.podNames).WithContext(ctx).Should(HaveLen(3))
		group := s.group(ctx, ownGroups)
		Expect(nested(group, "spec", "schedulingPolicy", "gang", "minCount")).To(BeEquivalentTo(3))
		Expect(metav1.IsControlledBy(group, s.job(ctx))).To(BeTrue())
		for _, pod := range s.pods(ctx) {
			Expect(pod.Spec.SchedulingGroup).To(HaveValue(Equal(corev1.PodSchedulingGroup{PodGroupName: ptr.To(group.GetName())})))
			Expect(pod.Spec.SchedulerName).To(Equal("default-scheduler"))
		}

		By("saying in the scheduler's words why it waits")
		s.unschedulable(ctx, "0/2 nodes are available: 2 Insufficient cpu. preemption: none")
		s.tellGroup(ctx, group, map[string]any{"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "pod group is unschedulable"})
		Eventually(s.gangState).WithContext(ctx).Should(Equal("False Unschedulable: no node is available: Insufficient cpu"))
		Eventually(s.reasons).WithContext(ctx).Should(ContainElement("GangUnschedulable"))

		By("saying that all have a node")
		s.bind(ctx)
		Eventually(s.gangState).WithContext(ctx).Should(HavePrefix("True GangPlaced: "))

		By("deleting the object with the end of the job")
		s.run(ctx)
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		Eventually(s.phase).WithContext(ctx).Should(Equal(v2alpha1.JobSucceeded))
		s.letGroupGo(ctx, group)
		Expect(s.gangState(ctx)).To(HavePrefix("True GangPlaced: "))
	})

	It("waits until the scheduler that the job names is installed, and is left to Volcano", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.leaveGangs()
		s.submitGang(ctx, v2alpha1.Scheduling{SchedulerName: "volcano", Queue: "research", Gang: &v2alpha1.Gang{}})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobPending))
		Expect(s.gangState(ctx)).To(Equal(
			`False NoGangScheduler: the job names scheduler "volcano", and the API server serves no podgroups.scheduling.volcano.sh: install Volcano`))

		By("installing it")
		installGroups(ctx, "volcano.yaml")
		s.advance(gangs.RetryInterval)
		Expect(s.settle(ctx)).To(Succeed())
		group := s.group(ctx, volcanoGroups)
		Expect(group.Object["spec"]).To(Equal(map[string]any{
			"minMember": int64(3), "minResources": map[string]any{"cpu": "1500m"}, "queue": "research",
		}))
		Expect(s.podNames(ctx)).To(HaveLen(3))
		for _, pod := range s.pods(ctx) {
			Expect(pod.Annotations).To(And(
				HaveKeyWithValue("scheduling.k8s.io/group-name", "di-job"), HaveKeyWithValue("scheduling.volcano.sh/group-name", "di-job")))
		}

		By("saying in Volcano's words why it waits")
		told := group.DeepCopy()
		Expect(unstructured.SetNestedSlice(told.Object, []any{map[string]any{
			"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "3/3 tasks in gang unschedulable: pod group is not ready, 3 minAvailable, 3 Pending",
		}}, "status", "conditions")).To(Succeed())
		Expect(shared.api.Update(ctx, told)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.gangState(ctx)).To(HavePrefix("False NotEnoughResources: "))

		By("following a resize, without a pod more than is wanted")
		before := s.identities(ctx)
		s.resizeCollectors(ctx, 3)
		Expect(nested(s.group(ctx, volcanoGroups), "spec", "minMember")).To(BeEquivalentTo(4))
		Expect(nested(s.group(ctx, volcanoGroups), "spec", "minResources", "cpu")).To(Equal("2"))
		for name, uid := range before {
			Expect(s.identities(ctx)).To(HaveKeyWithValue(name, uid))
		}

		By("deleting the object when the job is suspended")
		s.bind(ctx)
		job := s.job(ctx)
		job.Spec.Suspend = ptr.To(true)
		Expect(shared.api.Update(ctx, job)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(apierrors.IsNotFound(shared.api.Get(ctx, client.ObjectKeyFromObject(group), group))).To(BeTrue())
		Expect(s.gangState(ctx)).To(HavePrefix("False Suspended: "))
	})

	It("is left to scheduler-plugins, whose words stand in the pods", func(ctx SpecContext) {
		installGroups(ctx, "coscheduling.yaml")
		s := newSpace(ctx)
		s.leaveGangs()
		s.operator.gangs.Setting = gang.Coscheduling
		s.submitGang(ctx, v2alpha1.Scheduling{Gang: &v2alpha1.Gang{MinAvailable: ptr.To(int32(2))}})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.group(ctx, coschedulingGroups).Object["spec"]).To(Equal(map[string]any{
			"minMember": int64(2), "minResources": map[string]any{"cpu": "1"},
		}))
		Expect(s.podNames(ctx)).To(HaveLen(3))
		for _, pod := range s.pods(ctx) {
			Expect(pod.Labels).To(HaveKeyWithValue("scheduling.x-k8s.io/pod-group", "di-job"))
			Expect(pod.Spec.SchedulerName).To(Equal("scheduler-plugins-scheduler"))
		}
		s.unschedulable(ctx, "0/2 nodes are available: 2 Insufficient cpu.")
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.gangState(ctx)).To(Equal("False Unschedulable: no node is available: Insufficient cpu"))
	})

	It("is recreated if Kubernetes does not let its size change, while no pod has a node", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.leaveGangs()
		s.operator.gangs.Setting = gang.Kubernetes
		s.submitGang(ctx, v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}})
		Expect(s.settle(ctx)).To(Succeed())
		first := s.group(ctx, ownGroups)
		s.resizeCollectors(ctx, 3)
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.gangState(ctx)).To(HavePrefix("False GangReplaced: "))
		s.letGroupGo(ctx, first)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(nested(s.group(ctx, ownGroups), "spec", "schedulingPolicy", "gang", "minCount")).To(BeEquivalentTo(4))
		Expect(s.podNames(ctx)).To(HaveLen(4))

		By("keeping it once a pod has a node")
		s.bind(ctx)
		before := s.identities(ctx)
		s.resizeCollectors(ctx, 1)
		delete(before, "job-collector-1")
		delete(before, "job-collector-2")
		Expect(s.remaining(ctx)).To(Equal(before))
		Expect(nested(s.group(ctx, ownGroups), "spec", "schedulingPolicy", "gang", "minCount")).To(BeEquivalentTo(4))
	})

	It("creates no pod where its name is taken", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.leaveGangs()
		s.operator.gangs.Setting = gang.Kubernetes
		other := discover.NewGroup(ownGroups)
		other.SetNamespace(s.name)
		other.SetName("di-job")
		Expect(unstructured.SetNestedField(other.Object, int64(1), "spec", "schedulingPolicy", "gang", "minCount")).To(Succeed())
		Expect(shared.api.Create(ctx, other)).To(Succeed())
		s.submitGang(ctx, v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.services(ctx)).To(BeEmpty())
		Expect(s.job(ctx).Status.Conditions).To(ContainElement(And(
			HaveField("Type", v2alpha1.ConditionNameConflict),
			HaveField("Message", HavePrefix("creating PodGroup.scheduling.k8s.io ")),
		)))
	})
})

// The PodGroups of the other schedulers. Their definitions are in testdata.
var (
	volcanoGroups      = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}
	coschedulingGroups = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}
)

// installGroups installs a scheduler's definition until the spec ends.
func installGroups(ctx context.Context, file string) {
	GinkgoHelper()
	options := envtest.CRDInstallOptions{Paths: []string{filepath.Join(testkit.GangDefinitions(), file)}, MaxTime: patience, ErrorIfPathMissing: true}
	_, err := envtest.InstallCRDs(shared.config, options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(envtest.UninstallCRDs(shared.config, options)).To(Succeed()) })
}

// leaveGangs makes the operator use gang schedulers, which it discovers live.
func (s *space) leaveGangs() {
	GinkgoHelper()
	api, err := discovery.NewDiscoveryClientForConfig(shared.config)
	Expect(err).NotTo(HaveOccurred())
	s.operator.gangs = &discover.Gangs{
		Setting: gang.Auto, Serves: discover.ServesKind(api), Follow: func(schema.GroupVersionKind) error { return nil }, Groups: shared.api, Clock: s.operator.clock,
	}
}

// resizeCollectors sets the count of collectors and reconciles until the operator writes nothing.
func (s *space) resizeCollectors(ctx context.Context, count int32) {
	GinkgoHelper()
	job := s.job(ctx)
	job.Spec.Tasks[1].Replicas = &count
	Expect(shared.api.Update(ctx, job)).To(Succeed())
	Expect(s.settle(ctx)).To(Succeed())
}

// ownGroups is Kubernetes' own PodGroup, in the version of the API server of the tests.
var ownGroups = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1alpha2", Kind: "PodGroup"}

// submitGang submits a worker-led job of a learner and two collectors.
func (s *space) submitGang(ctx context.Context, scheduling v2alpha1.Scheduling) {
	template := v2alpha1.RawObject{JSON: apiextensionsv1.JSON{
		Raw: []byte(`{"spec":{"containers":[{"name":"di-container","image":"image","resources":{"requests":{"cpu":"500m"}}}]}}`),
	}}
	s.submit(ctx, v2alpha1.DIJobSpec{
		BackoffLimit: ptr.To(int32(1)), Scheduling: &scheduling,
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: template},
			{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: template},
		},
	})
}

func (s *space) group(ctx context.Context, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	GinkgoHelper()
	group := discover.NewGroup(gvk)
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "di-job"}, group)).To(Succeed())
	return group
}

func nested(object *unstructured.Unstructured, path ...string) any {
	GinkgoHelper()
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	Expect(err).NotTo(HaveOccurred())
	return value
}

// unschedulable sets the scheduler's message in all pods that no node fits.
func (s *space) unschedulable(ctx context.Context, message string) {
	GinkgoHelper()
	for _, pod := range s.pods(ctx) {
		unschedulable(message)(&pod)
		Expect(shared.api.Status().Update(ctx, &pod)).To(Succeed())
	}
}

// tellGroup sets a condition of a PodGroup as a scheduler does.
func (s *space) tellGroup(ctx context.Context, group *unstructured.Unstructured, condition map[string]any) {
	GinkgoHelper()
	told := group.DeepCopy()
	condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
	Expect(unstructured.SetNestedSlice(told.Object, []any{condition}, "status", "conditions")).To(Succeed())
	Expect(shared.api.Status().Patch(ctx, told, client.MergeFrom(group))).To(Succeed())
}

// bind assigns a node to each pod, as schedulers do.
func (s *space) bind(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range s.pods(ctx) {
		if pod.Spec.NodeName == "" {
			binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
			Expect(shared.api.SubResource("binding").Create(ctx, &pod, binding)).To(Succeed())
		}
	}
}

// remaining returns the UIDs of the pods that are not terminating, by name.
func (s *space) remaining(ctx context.Context) map[string]types.UID {
	found := map[string]types.UID{}
	for _, pod := range s.pods(ctx) {
		if pod.DeletionTimestamp == nil {
			found[pod.Name] = pod.UID
		}
	}
	return found
}

// gangState returns the job's condition GangScheduled; "" for none.
func (s *space) gangState(ctx context.Context) string {
	for _, condition := range s.job(ctx).Status.Conditions {
		if condition.Type == v2alpha1.ConditionGangScheduled {
			return string(condition.Status) + " " + condition.Reason + ": " + condition.Message
		}
	}
	return ""
}

// letGroupGo waits until a PodGroup is deleted and removes its finalizer, as its protection controller
// does.
func (s *space) letGroupGo(ctx context.Context, group *unstructured.Unstructured) {
	GinkgoHelper()
	key := client.ObjectKeyFromObject(group)
	Eventually(func(g Gomega) {
		g.Expect(shared.api.Get(ctx, key, group)).To(Succeed())
		g.Expect(group.GetDeletionTimestamp()).NotTo(BeNil())
		group.SetFinalizers(nil)
		g.Expect(shared.api.Update(ctx, group)).To(Succeed())
	}).Should(Succeed())
}
