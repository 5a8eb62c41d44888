// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// submitWith submits a worker-led job of a learner and two collectors after a change.
func (s *space) submitWith(ctx context.Context, change func(*v2alpha1.DIJobSpec)) {
	spec := v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeLearner, Template: podTemplate()},
		{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: podTemplate()},
	}}
	change(&spec)
	s.submit(ctx, spec)
}

// start runs the space's job.
func (s *space) start(ctx context.Context) {
	GinkgoHelper()
	Expect(s.settle(ctx)).To(Succeed())
	s.run(ctx)
	Expect(s.settle(ctx)).To(Succeed())
	Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
}

// clock gives the operator a clock that the spec moves.
func (s *space) clock() *time.Time {
	at := time.Now()
	s.at = &at
	return s.at
}

// record gives the operator a recorder that keeps its events.
func (s *space) record() *events.FakeRecorder {
	recorder := events.NewFakeRecorder(1000)
	s.operator.recorder = recorder
	return recorder
}

// endOf returns when the last container of a pod terminated.
func (s *space) endOf(ctx context.Context, name string) time.Time {
	GinkgoHelper()
	pod, end := &corev1.Pod{}, time.Time{}
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: name}, pod)).To(Succeed())
	for _, container := range pod.Status.ContainerStatuses {
		if ended := container.State.Terminated; ended != nil && ended.FinishedAt.After(end) {
			end = ended.FinishedAt.Time
		}
	}
	Expect(end).NotTo(BeZero())
	return end
}

// nextAt returns the time of the operator's next reconcile without an event, by the clock that the spec
// moves.
func (s *space) nextAt(ctx context.Context) time.Time {
	GinkgoHelper()
	return s.at.Add(s.next(ctx))
}

// next returns the delay until the operator's next reconcile without an event.
func (s *space) next(ctx context.Context) time.Duration {
	GinkgoHelper()
	result := specs.Must(s.operator.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.name, Name: "job"}}))
	return result.RequeueAfter
}

// hold keeps a deleted pod terminating, as a node does until its containers terminate. The returned
// function releases the pod.
func (s *space) hold(ctx context.Context, name string) (release func()) {
	key := client.ObjectKey{Namespace: s.name, Name: name}
	set := func(finalizers ...string) {
		pod := &corev1.Pod{}
		Expect(shared.api.Get(ctx, key, pod)).To(Succeed())
		pod.Finalizers = finalizers
		Expect(shared.api.Update(ctx, pod)).To(Succeed())
	}
	set("example.com/hold")
	return func() { set() }
}

const (
	outOfCPUStatus = `{phase: Failed, reason: OutOfcpu, message: "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 4000"}`
	evictedStatus  = `{phase: Failed, reason: Evicted, message: "The node was low on resource: memory."}`
	oomStatus      = `{phase: Failed, containerStatuses: [{name: di-container, image: image, imageID: "", state: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: START, finishedAt: END}}}]}`
)

// exited returns the status of a pod whose main container has terminated with a code.
func exited(code int) string {
	return fmt.Sprintf(`{phase: Failed, containerStatuses: [{name: di-container, image: image, imageID: "", state: {terminated: {exitCode: %d, reason: Error, startedAt: START, finishedAt: END}}}]}`, code)
}

// disrupted returns the status of a failed pod with condition DisruptionTarget.
func disrupted(reason string) string {
	return fmt.Sprintf(`{phase: Failed, conditions: [{type: DisruptionTarget, status: "True", reason: %s}], containerStatuses: [{name: di-container, image: image, imageID: "", state: {terminated: {exitCode: 137, reason: Error}}}]}`, reason)
}

var _ = Describe("A worker-led job whose pods fail", func() {
	It("is restarted as often as its backoff limit says", func(ctx SpecContext) {
		s := newSpace(ctx)
		at, recorder := s.clock(), s.record()
		s.submitWorkers(ctx, 2)
		for failures := range int32(3) {
			*at = at.Add(time.Hour)
			s.start(ctx)
			Expect(s.job(ctx).Status.Restarts).To(Equal(failures))
			s.end(ctx, "job-collector-0", 1)
			s.end(ctx, "job-learner-0", 2)
			Expect(s.settle(ctx)).To(Succeed())
		}
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobFailed))
		Expect(s.job(ctx).Status.Restarts).To(BeEquivalentTo(2))
		recorded := eventsOf(recorder)
		Expect(recorded).To(ContainElements(
			"Warning JobRestarting pod job-learner-0 has failed (exit code 2), restart 1 of 2 is in progress",
			"Warning JobRestarting pod job-learner-0 has failed (exit code 2), restart 2 of 2 is in progress",
			"Warning JobFailed pod job-learner-0 has failed (exit code 2) after 2 restarts, the limit is 2",
		))
	})

	It("counts a round of failures once, also those that come while it is handled", func(ctx SpecContext) {
		s := newWorkers(ctx, 3)
		s.start(ctx)
		release := s.hold(ctx, "job-learner-0")
		s.end(ctx, "job-collector-0", 1)
		Expect(s.reconcile(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Restarts).To(BeEquivalentTo(1))
		By("failing after the round was recorded, and before anything was deleted")
		s.end(ctx, "job-collector-1", 1)
		Expect(s.settle(ctx)).To(Succeed())
		By("failing while being deleted")
		s.end(ctx, "job-learner-0", 1)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRestarting))
		Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0"))
		release()
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Restarts).To(BeEquivalentTo(1))
		Expect(s.podNames(ctx)).To(HaveLen(3))
	})

	DescribeTable("does not count a disruption, and recreates only the disrupted pod",
		func(ctx SpecContext, status, reason string) {
			s := newSpace(ctx)
			recorder := s.record()
			s.submitWorkers(ctx, 0)
			s.start(ctx)
			before := s.identities(ctx)
			s.report(ctx, "job-collector-0", status)
			Expect(s.settle(ctx)).To(Succeed())
			after := s.identities(ctx)
			Expect(after["job-collector-0"]).NotTo(BeElementOf(before["job-collector-0"], types.UID("")))
			delete(before, "job-collector-0")
			for name, uid := range before {
				Expect(after).To(HaveKeyWithValue(name, uid))
			}
			job := s.job(ctx)
			Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			Expect(job.Status.Restarts).To(BeZero())
			Expect(job.Status.LastFailure).To(BeNil())
			Expect(job).To(condition(v2alpha1.ConditionReplicasDisrupted, corev1.ConditionTrue, reason,
				And(HavePrefix("pod job-collector-0 "), HaveSuffix("recreating it without counting a failure, next retry in 10s"))))
			Expect(eventsOf(recorder)).To(ContainElement(HavePrefix("Warning " + reason + " pod job-collector-0 ")))
		},
		Entry("when its node has no CPU left for it", outOfCPUStatus, "Rejected"),
		Entry("when its node is low on memory", evictedStatus, "Evicted"),
		Entry("when it is preempted", disrupted("PreemptionByScheduler"), "Preempted"),
	)

	DescribeTable("counts what a pod did itself, and what none will ever run",
		func(ctx SpecContext, status, reason, message string) {
			s := newWorkers(ctx, 1)
			s.start(ctx)
			s.report(ctx, "job-collector-0", status)
			Expect(s.settle(ctx)).To(Succeed())
			job := s.job(ctx)
			Expect(job.Status.Restarts).To(BeEquivalentTo(1))
			Expect(job.Status.LastFailure).To(And(
				HaveField("Pod", "job-collector-0"), HaveField("Reason", reason), HaveField("Message", message), HaveField("Time", Not(BeNil())),
			))
		},
		Entry("an exit code", exited(1), "Error", ""),
		Entry("an init container", `{phase: Failed, initContainerStatuses: [{name: fetch, image: image, imageID: "", state: {terminated: {exitCode: 3, reason: Error, message: no such dataset}}}], containerStatuses: [{name: di-container, image: image, imageID: "", state: {waiting: {reason: PodInitializing}}}]}`,
			"Error", "init container fetch: exit code 3: no such dataset"),
	)
})

var _ = Describe("A replica that is disrupted repeatedly", func() {
	const interrupted = v2alpha1.ConditionReplicasDisrupted

	It("is recreated with a growing backoff, until it is ready for a while", func(ctx SpecContext) {
		s := newSpace(ctx)
		at, recorder := s.clock(), s.record()
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		begun, made := *at, 0
		var longest time.Duration
		for at.Sub(begun) < 20*time.Minute {
			s.report(ctx, "job-collector-0", outOfCPUStatus)
			before := s.identities(ctx)["job-collector-0"]
			Expect(s.settle(ctx)).To(Succeed())
			waits := *at
			for s.identities(ctx)["job-collector-0"] == before {
				left := s.next(ctx)
				Expect(left).To(BeNumerically(">", 0))
				*at = at.Add(left)
				Expect(s.settle(ctx)).To(Succeed())
			}
			longest = max(longest, at.Sub(waits))
			made++
		}
		Expect(made).To(BeNumerically("<=", 10), "pods that are created in 20 minutes")
		Expect(longest).To(BeNumerically("~", 5*time.Minute, time.Second))
		Expect(s.job(ctx).Status.Restarts).To(BeZero())
		told := eventsOf(recorder)
		Expect(told).To(ContainElements(
			`Warning Rejected pod job-collector-0 was disrupted (OutOfcpu), saying "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 4000"; recreating it without counting a failure, next retry in 10s`,
			HaveSuffix("next retry in 5m0s"),
		))

		By("running at last")
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
		Expect(s.job(ctx)).To(condition(interrupted, corev1.ConditionTrue, "Rejected", Not(BeEmpty())))
		*at = at.Add(s.next(ctx))
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(interrupted, corev1.ConditionFalse, "", BeEmpty()))

		By("being evicted once more, which is the first time again")
		before := s.identities(ctx)
		s.report(ctx, "job-collector-0", evictedStatus)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.identities(ctx)["job-collector-0"]).NotTo(Equal(before["job-collector-0"]))
	})
})

// recordForReal gives the operator the recorder that it has in a cluster. The recorder sends Events to the
// API server.
func (s *space) recordForReal(ctx context.Context) {
	GinkgoHelper()
	clients := specs.Must(kubernetes.NewForConfig(shared.account))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	Expect(broadcaster.StartRecordingToSinkWithContext(ctx)).To(Succeed())
	DeferCleanup(broadcaster.Shutdown)
	s.operator.recorder = broadcaster.NewRecorder(shared.scheme, names.ControllerName)
}

// notesOf returns the notes of the Events with a reason.
func (s *space) notesOf(ctx context.Context, reason string) []string {
	list := specs.List[eventsv1.EventList](ctx, shared.api, client.InNamespace(s.name))
	var notes []string
	for i := range list.Items {
		if list.Items[i].Reason == reason {
			notes = append(notes, list.Items[i].Note)
		}
	}
	return notes
}

// allocate writes the nodes of the ranks as the allocator does.
func (s *space) allocate(ctx context.Context, nodes ...string) {
	job := s.job(ctx)
	job.Status.Allocation = nodes
	Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
}

// onFailure sets a failure policy.
func onFailure(rules ...v2alpha1.FailurePolicyRule) func(*v2alpha1.DIJobSpec) {
	return func(spec *v2alpha1.DIJobSpec) {
		spec.BackoffLimit = ptr.To(int32(2))
		spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: rules}
	}
}

func exitCodes(operator v2alpha1.ExitCodesOperator, values ...int32) *v2alpha1.ExitCodesRequirement {
	return &v2alpha1.ExitCodesRequirement{Operator: operator, Values: values}
}

var _ = Describe("A failure policy", func() {
	const (
		failJob, restartJob    = v2alpha1.FailurePolicyFailJob, v2alpha1.FailurePolicyRestartJob
		restartReplica, ignore = v2alpha1.FailurePolicyRestartReplica, v2alpha1.FailurePolicyIgnore
	)
	policy := onFailure(
		v2alpha1.FailurePolicyRule{Action: failJob, Tasks: []string{"learner"}, OnExitCodes: exitCodes(v2alpha1.ExitCodesIn, 42)},
		v2alpha1.FailurePolicyRule{Action: ignore, Tasks: []string{"collector"}, OnExitCodes: exitCodes(v2alpha1.ExitCodesIn, 7)},
		v2alpha1.FailurePolicyRule{Action: restartReplica, Tasks: []string{"collector"}, OnExitCodes: exitCodes(v2alpha1.ExitCodesNotIn, 9)},
		v2alpha1.FailurePolicyRule{Action: restartReplica, Tasks: []string{"learner"}, OnExitCodes: exitCodes(v2alpha1.ExitCodesIn, 8)},
	)

	DescribeTable("decides by task and by the exit code of the main container",
		func(ctx SpecContext, pod, status string, want v2alpha1.FailurePolicyAction) {
			s := newSpace(ctx)
			at, recorder := s.clock(), s.record()
			s.submitWith(ctx, policy)
			s.start(ctx)
			before := s.identities(ctx)
			s.report(ctx, pod, status)
			// The operator sees the end at once, by its own clock.
			*at = s.endOf(ctx, pod)
			Expect(s.settle(ctx)).To(Succeed())
			job, after := s.job(ctx), s.identities(ctx)
			remade := 0
			for name, uid := range before {
				if after[name] != uid {
					remade++
				}
			}
			switch want {
			case failJob:
				Expect(job.Status.Phase).To(Equal(v2alpha1.JobFailed))
				Expect(job.Status.Restarts).To(BeZero())
			case restartJob:
				Expect(job.Status.Restarts).To(BeEquivalentTo(1))
				Expect(remade).To(Equal(3))
			case restartReplica:
				Expect(job.Status.Restarts).To(BeZero())
				Expect(job.Status.ReplicaRestarts).To(Equal(map[string]int32{pod: 1}))
				Expect(remade).To(Equal(1))
				Expect(after[pod]).NotTo(BeElementOf(before[pod], types.UID("")))
				Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
				Expect(eventsOf(recorder)).To(ContainElement(And(
					HavePrefix("Warning ReplicaRestarting pod "+pod+" has failed"), HaveSuffix("restarts alone, restart 1 of 2"))))
			case ignore:
				Expect(job.Status.Restarts).To(BeZero())
				Expect(job.Status.LastFailure).To(BeNil())
				Expect(remade).To(BeZero())
				*at = s.endOf(ctx, pod).Add(2 * time.Second)
				Expect(s.next(ctx)).To(Equal(3 * time.Second))
			}
		},
		Entry("the first rule of its task and code", "job-learner-0", exited(42), failJob),
		Entry("a code that is ignored", "job-collector-1", exited(7), ignore),
		Entry("a code that is not left out", "job-collector-1", exited(42), restartReplica),
	)

	It("restarts a replica alone, under its name and rank, within the limit", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWith(ctx, onFailure(v2alpha1.FailurePolicyRule{Action: restartReplica}))
		s.start(ctx)
		before := s.identities(ctx)
		for range 2 {
			s.end(ctx, "job-collector-1", 1)
			s.start(ctx)
		}
		pods := s.pods(ctx)
		for i := range pods {
			if pods[i].Name == "job-collector-1" {
				Expect(pods[i].Annotations).To(HaveKeyWithValue("diengine/rank", "2"))
				continue
			}
			Expect(pods[i].UID).To(Equal(before[pods[i].Name]))
		}
		By("losing the status, as when it is restored from an earlier backup")
		job := s.job(ctx)
		job.Status.ReplicaRestarts = nil
		Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.ReplicaRestarts).To(Equal(map[string]int32{"job-collector-1": 2}))
		s.end(ctx, "job-collector-1", 1)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobFailed))
		Expect(s.job(ctx)).To(condition("Failed", corev1.ConditionTrue, "JobFailed",
			Equal("pod job-collector-1 has failed (exit code 1) after 0 restarts of the job and 2 of its own, the limit is 2")))
	})

	It("records an Event for each replica that restarts alone, also for several at once", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.recordForReal(ctx)
		s.submitWith(ctx, onFailure(v2alpha1.FailurePolicyRule{Action: restartReplica}))
		s.start(ctx)
		s.end(ctx, "job-collector-0", 1)
		s.end(ctx, "job-collector-1", 2)
		Expect(s.settle(ctx)).To(Succeed())
		Eventually(s.notesOf).WithContext(ctx).WithArguments(v2alpha1.ReasonReplicaRestarting).WithTimeout(patience).Should(ConsistOf(
			"pod job-collector-0 has failed (exit code 1) and restarts alone, restart 1 of 2",
			"pod job-collector-1 has failed (exit code 2) and restarts alone, restart 1 of 2",
		))
	})

	It("counts a replica's restart once, whenever the operator crashes", func(ctx SpecContext) {
		afterEachWrite(func(writes int) bool {
			s := newSharedSpace(ctx)
			s.submitWith(ctx, onFailure(v2alpha1.FailurePolicyRule{Action: restartReplica}))
			crashed := s.drive(ctx, writes, func() {
				status := s.job(ctx).Status
				switch {
				case status.Phase != v2alpha1.JobRunning || status.ReadyReplicas < 3:
					s.run(ctx)
				case len(status.ReplicaRestarts) == 0:
					s.end(ctx, "job-collector-1", 1)
				default:
					for _, name := range s.podNames(ctx) {
						s.end(ctx, name, 0)
					}
				}
			})
			status := s.job(ctx).Status
			Expect(status.Phase).To(Equal(v2alpha1.JobSucceeded))
			Expect(status.ReplicaRestarts).To(Equal(map[string]int32{"job-collector-1": 1}))
			s.expectOneNodes()
			Expect(s.created).To(Equal(map[string]int{
				"*v1.Service di-job": 1, "*v1.Pod job-learner-0": 1, "*v1.Pod job-collector-0": 1, "*v1.Pod job-collector-1": 2,
			}))
			return crashed
		})
	})
})

var _ = Describe("A success policy", func() {
	target := func(tasks ...string) func(*v2alpha1.DIJobSpec) {
		return func(spec *v2alpha1.DIJobSpec) {
			spec.BackoffLimit = ptr.To(int32(0))
			spec.SuccessPolicy = &v2alpha1.SuccessPolicy{Operator: v2alpha1.SuccessPolicyAll, TargetTasks: tasks}
			spec.Tasks = append(spec.Tasks, v2alpha1.Task{Type: v2alpha1.TaskTypeEvaluator, Replicas: ptr.To(int32(0)), Template: podTemplate()})
		}
	}

	It("lets the named tasks decide, and cleans up the others", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWith(ctx, target("learner", "evaluator"))
		s.start(ctx)
		s.end(ctx, "job-learner-0", 0)
		s.end(ctx, "job-collector-0", 1)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobSucceeded))
		Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0", "job-collector-0"), "the one that ran is deleted")
		Expect(s.job(ctx).Status.LastFailure).To(BeNil())
	})
})
