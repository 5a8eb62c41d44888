// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// report writes a pod's status as the kubelet or the scheduler does. START stands for a container's start
// one minute ago, END for its termination just now.
func (s *space) report(ctx context.Context, name, status string) {
	GinkgoHelper()
	pod := specs.Get[corev1.Pod](ctx, shared.api, s.name, name)
	at := func(ago time.Duration) string { return `"` + time.Now().UTC().Add(-ago).Format(time.RFC3339) + `"` }
	status = strings.NewReplacer("START", at(time.Minute), "END", at(0)).Replace(status)
	pod.Status = corev1.PodStatus{}
	Expect(yaml.UnmarshalStrict([]byte(status), &pod.Status)).To(Succeed())
	Expect(shared.api.Status().Update(ctx, pod)).To(Succeed())
}

const (
	unschedulableStatus = `
phase: Pending
conditions:
- type: PodScheduled
  status: "False"
  reason: Unschedulable
  message: "0/4 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: 1 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod."
`
	imagePullStatus = `
phase: Pending
conditions: [{type: PodReadyToStartContainers, status: "True"}, {type: PodScheduled, status: "True"}, {type: Ready, status: "False", reason: ContainersNotReady}]
containerStatuses:
- {name: di-container, image: image, imageID: "", ready: false, restartCount: 0, started: false, state: {waiting: {reason: ErrImagePull, message: "failed to pull and unpack image \"docker.io/library/image:latest\": pull access denied"}}}
`
	imageBackOffStatus = `
phase: Pending
conditions: [{type: PodReadyToStartContainers, status: "True"}, {type: PodScheduled, status: "True"}, {type: Ready, status: "False", reason: ContainersNotReady}]
containerStatuses:
- {name: di-container, image: image, imageID: "", ready: false, restartCount: 0, started: false, state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image \"image\""}}}
`
	crashStatus = `
phase: Running
conditions: [{type: Ready, status: "False", reason: ContainersNotReady}]
containerStatuses:
- name: di-container
  image: image
  imageID: ""
  ready: false
  restartCount: 3
  state: {waiting: {reason: CrashLoopBackOff, message: "back-off 40s restarting failed container=di-container pod=job-collector"}}
  lastState: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: START, finishedAt: END}}
`
	runsAgainStatus = `
phase: Running
conditions: [{type: Ready, status: "True"}]
containerStatuses:
- name: di-container
  image: image
  imageID: ""
  ready: true
  restartCount: 4
  state: {running: {startedAt: END}}
  lastState: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: START, finishedAt: END}}
`
)

// condition returns a matcher of jobs with a condition.
func condition(kind string, status corev1.ConditionStatus, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", kind), HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message),
	)))
}

var _ = Describe("A job whose pods are stalled", func() {
	const stalled = v2alpha1.ConditionReplicasStalled

	It("says that they cannot be scheduled, until they are", func(ctx SpecContext) {
		s := newSpace(ctx)
		recorder := events.NewFakeRecorder(100)
		s.operator.recorder = recorder
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		for _, name := range s.podNames(ctx) {
			s.report(ctx, name, unschedulableStatus)
		}
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(stalled, corev1.ConditionTrue, v2alpha1.ReasonUnschedulable, HavePrefix(
			"job-collector-0 (collector): cannot be scheduled: no node is available: Insufficient nvidia.com/gpu, node(s) had untolerated taint")))
		Expect(eventsOf(recorder)).To(ContainElement(HavePrefix("Warning Unschedulable job-collector-0 (collector): ")))

		By("another node that has no room either")
		for _, name := range s.podNames(ctx) {
			s.report(ctx, name, strings.ReplaceAll(strings.ReplaceAll(unschedulableStatus, "0/4", "0/5"), "3 Insufficient", "4 Insufficient"))
		}
		s.expectNoWrite(ctx)

		By("running them")
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(stalled, corev1.ConditionFalse, "", BeEmpty()))
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
		Expect(eventsOf(recorder)).NotTo(ContainElement(ContainSubstring("Unschedulable")), "an event each time")
	})
})

var _ = Describe("The operator in its manager, with stalled pods", func() {
	It("follows them by its watches", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManager(ctx)
		s.submitWorkers(ctx, 0)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		s.report(ctx, "job-learner-0", unschedulableStatus)
		Eventually(s.job).WithContext(ctx).WithTimeout(patience).Should(
			condition(v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, v2alpha1.ReasonUnschedulable, HavePrefix("job-learner-0 ")))
		s.report(ctx, "job-learner-0", imageBackOffStatus)
		Eventually(s.job).WithContext(ctx).WithTimeout(patience).Should(
			condition(v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, v2alpha1.ReasonImagePull, HavePrefix("job-learner-0 ")))
		s.report(ctx, "job-learner-0", `{phase: Running, conditions: [{type: Ready, status: "True"}]}`)
		Eventually(s.job).WithContext(ctx).WithTimeout(patience).Should(
			condition(v2alpha1.ConditionReplicasStalled, corev1.ConditionFalse, "", BeEmpty()))
		Eventually(s.reasons).WithContext(ctx).WithTimeout(patience).Should(ContainElements(v2alpha1.ReasonUnschedulable, v2alpha1.ReasonImagePull))
	})
})

// expectNoWrite expects that the operator writes nothing.
func (s *space) expectNoWrite(ctx context.Context) {
	GinkgoHelper()
	before := s.writes
	Expect(s.reconcile(ctx)).To(Succeed())
	Expect(s.writes).To(Equal(before), "writes of the operator")
}

// eventsOf returns the Events since the last call.
func eventsOf(recorder *events.FakeRecorder) []string {
	var told []string
	for {
		select {
		case event := <-recorder.Events:
			told = append(told, event)
		default:
			return told
		}
	}
}

var _ = Describe("A job whose pods are refused", func() {
	const refused = v2alpha1.ConditionReplicaFailure

	It("names the quota, and continues when it allows more", func(ctx SpecContext) {
		s := newSpace(ctx)
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "team"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}
		Expect(shared.api.Create(ctx, quota)).To(Succeed())
		s.setQuota(ctx, quota, "0")
		s.awaitRefusals(ctx, "exceeded quota")
		s.submitWorkers(ctx, 0)
		Expect(apierrors.IsForbidden(s.settle(ctx))).To(BeTrue())
		Expect(s.podNames(ctx)).To(BeEmpty())
		job := s.job(ctx)
		Expect(job).To(condition(refused, corev1.ConditionTrue, v2alpha1.ReasonQuotaExceeded, Equal(
			"pod job-learner-0 (learner) is refused: exceeded quota: team, requested: pods=1, limited: pods=0; 2 others wait")))
		Expect(s.settle(ctx)).To(Succeed())
		s.advance(5 * time.Second)
		Expect(apierrors.IsForbidden(s.settle(ctx))).To(BeTrue())
		Expect(s.job(ctx).ResourceVersion).To(Equal(job.ResourceVersion), "a job that is refused again is written again")

		s.setQuota(ctx, quota, "3")
		// The API server learns of the quota by a watch.
		Eventually(func() []string {
			s.advance(time.Minute)
			_ = s.settle(ctx)
			return s.podNames(ctx)
		}).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(refused, corev1.ConditionFalse, "", BeEmpty()))
	})

	limitRange := func(item corev1.LimitRangeItem) func(string) client.Object {
		return func(namespace string) client.Object {
			return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "team"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
		}
	}
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	for name, tc := range map[string]struct {
		by                func(namespace string) client.Object
		reason, says, set string
	}{
		"the maximum of a LimitRange": {
			limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: cpu("1"), DefaultRequest: cpu("1")}), v2alpha1.ReasonLimitRangeViolation,
			"maximum cpu usage per Container is 1, but limit is 4", "resources.limits.cpu of each container to at most 1",
		},
		"the minimum of a LimitRange": {
			limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpu("3")}), v2alpha1.ReasonLimitRangeViolation,
			"minimum cpu usage per Container is 3, but request is 2", "resources.requests.cpu of each container to at least 3",
		},
		"the ratio of a LimitRange": {
			limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: cpu("1500m")}), v2alpha1.ReasonLimitRangeViolation,
			"cpu max limit to request ratio per Container is 1500m, but provided ratio is 2", "resources.limits.cpu of each container to at most 1500m times its requests.cpu",
		},
		"the maximum of a LimitRange for pods": {
			limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}),
			v2alpha1.ReasonLimitRangeViolation, "maximum memory usage per Pod is 1Gi.  No limit is specified", "resources.limits.memory of all containers together to at most 1Gi",
		},
		"a quota of limits that the template has not": {
			func(namespace string) client.Object {
				quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "team"}}
				quota.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("8Gi"), corev1.ResourceRequestsMemory: resource.MustParse("8Gi")}
				return quota
			},
			v2alpha1.ReasonResourcesMissing, "failed quota: team: must specify limits.memory for: di-container; requests.memory for: di-container",
			"resources.limits.memory of container di-container, resources.requests.memory of container di-container",
		},
	} {
		It("names "+name+", its field and what would be right, in both lifecycles", func(ctx SpecContext) {
			const demand = `{"requests":{"cpu":"2"},"limits":{"cpu":"4"}}`
			for _, lifecycle := range []v2alpha1.Lifecycle{v2alpha1.LifecycleWorkerLed, v2alpha1.LifecycleCoordinatorLed} {
				s := newSpace(ctx)
				by := tc.by(s.name)
				Expect(shared.api.Create(ctx, by)).To(Succeed())
				if quota, isQuota := by.(*corev1.ResourceQuota); isQuota {
					quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{
						corev1.ResourceLimitsMemory: resource.MustParse("0"), corev1.ResourceRequestsMemory: resource.MustParse("0"),
					}
					Expect(shared.api.Status().Update(ctx, quota)).To(Succeed())
				}
				s.awaitRefusalsOf(ctx, tc.says[:len("maximum cpu")], corev1.ResourceRequirements{Requests: cpu("2"), Limits: cpu("4")})
				kind, pod := v2alpha1.TaskTypeLearner, "job-learner-0 (learner)"
				if lifecycle == v2alpha1.LifecycleCoordinatorLed {
					kind, pod = v2alpha1.TaskTypeCoordinator, "job-coordinator (coordinator)"
				}
				s.submit(ctx, v2alpha1.DIJobSpec{Lifecycle: lifecycle, Tasks: []v2alpha1.Task{{Type: kind, Template: requesting(demand)}}})
				_ = s.settle(ctx)
				Expect(s.job(ctx)).To(condition(refused, corev1.ConditionTrue, tc.reason, And(
					HavePrefix("pod "+pod+" is refused: "), ContainSubstring(tc.says), HaveSuffix(": set in the template "+tc.set))))
			}
		})
	}

	It("costs few refused requests despite many events of its pods", func(ctx SpecContext) {
		const pods, room = 84, 20
		s := newSpace(ctx)
		var refusals atomic.Int32
		s.operator = s.newOperator(intercept(func(_ string, _ client.Object, write func() error) error {
			err := write()
			if apierrors.IsForbidden(err) {
				refusals.Add(1)
			}
			return err
		}))
		s.clock()
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "team"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}
		Expect(shared.api.Create(ctx, quota)).To(Succeed())
		s.setQuota(ctx, quota, "0")
		s.awaitRefusals(ctx, "exceeded quota")
		s.setQuota(ctx, quota, strconv.Itoa(room))
		s.submitMany(ctx, pods)
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(len(s.podNames(ctx))).To(BeNumerically("<=", room))
		Expect(refusals.Load()).To(And(BeNumerically(">", 4), BeNumerically("<", 100)))
		Expect(s.job(ctx)).To(condition(refused, corev1.ConditionTrue, v2alpha1.ReasonQuotaExceeded, ContainSubstring("limited: pods=20")))

		s.setQuota(ctx, quota, strconv.Itoa(pods))
		s.advance(5 * time.Minute)
		Eventually(func() []string {
			_ = s.reconcile(ctx)
			s.advance(time.Second)
			return s.podNames(ctx)
		}).WithContext(ctx).WithTimeout(patience).Should(HaveLen(pods))
	})

	It("says what the namespace's Pod Security Standard asks for", func(ctx SpecContext) {
		s := newSpace(ctx)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		enforce := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
		Expect(shared.api.Patch(ctx, namespace, client.RawPatch("application/merge-patch+json", []byte(enforce)))).To(Succeed())
		s.awaitRefusals(ctx, "violates PodSecurity")
		s.submitLed(ctx, "")
		Expect(apierrors.IsForbidden(s.settle(ctx))).To(BeTrue())
		Expect(s.job(ctx)).To(condition(refused, corev1.ConditionTrue, v2alpha1.ReasonPodSecurityViolation, And(
			HavePrefix(`pod job-coordinator (coordinator) is refused: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`),
			ContainSubstring("runAsNonRoot"),
		)))
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobPending))
	})
})

// setQuota sets the maximum number of pods of a namespace, in the spec and in the status that the quota
// controller would write.
func (s *space) setQuota(ctx context.Context, quota *corev1.ResourceQuota, pods string) {
	GinkgoHelper()
	limit := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
	quota.Spec.Hard = limit
	Expect(shared.api.Update(ctx, quota)).To(Succeed())
	quota.Status.Hard, quota.Status.Used = limit, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	Expect(shared.api.Status().Update(ctx, quota)).To(Succeed())
}

// awaitRefusals waits until the API server refuses pods with this text. It learns of quotas and labels by
// watches.
func (s *space) awaitRefusals(ctx context.Context, words string) {
	GinkgoHelper()
	s.awaitRefusalsOf(ctx, words, corev1.ResourceRequirements{})
}

// awaitRefusalsOf does the same for pods with resources.
func (s *space) awaitRefusalsOf(ctx context.Context, words string, resources corev1.ResourceRequirements) {
	GinkgoHelper()
	Eventually(func() error {
		return shared.api.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "image", Resources: resources}}},
		}, client.DryRunAll)
	}).WithContext(ctx).WithTimeout(patience).Should(MatchError(ContainSubstring(words)))
}

var _ = Describe("A pod that does not go from a lost node", func() {
	It("is force-deleted only if that is allowed, and recreated", func(ctx SpecContext) {
		s := newWorkers(ctx, 3)
		Expect(s.settle(ctx)).To(Succeed())
		lost := s.pods(ctx)[0]
		node := "lost-" + s.name
		Expect(shared.api.SubResource("binding").Create(ctx, &lost, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}})).To(Succeed())
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(shared.api.Delete(ctx, &lost)).To(Succeed())
		// The time counts from when the operator sees the deletion.
		Expect(s.settle(ctx)).To(Succeed())
		s.advance(time.Hour)
		Expect(s.settle(ctx)).To(Succeed())
		held := &corev1.Pod{}
		Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(&lost), held)).To(Succeed())
		Expect(held.DeletionTimestamp).NotTo(BeNil())

		By("allowing it")
		s.operator.options.ForceDeleteAfter = 10 * time.Minute
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionPodsForceDeleted, corev1.ConditionTrue, v2alpha1.ConditionPodsForceDeleted,
			ContainSubstring("pod "+lost.Name+" on node "+node+", which is gone")))
		Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(&lost), held)).To(Succeed())
		Expect(held.UID).NotTo(Equal(lost.UID))
		Expect(held.DeletionTimestamp).To(BeNil())
	})
})
