// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

var _ = Describe("A job in a queue of Kueue", Ordered, ContinueOnFailure, Label(kueue), func() {
	BeforeAll(useKueue)
	AfterEach(explainQueues)

	It("runs within the quota, or waits and says in Kueue's words why, and frees its quota", func(ctx SpecContext) {
		const queue = "quota"
		makeQueue(ctx, queue, 3)
		plugin := buildPlugin(ctx)
		began := time.Now()
		queuedJob{name: "first", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "first", 3)
		AddReportEntry("from the job to its pods", time.Since(began).Round(time.Millisecond).String(), ReportEntryVisibilityAlways)

		queuedJob{name: "second", queue: queue, collectors: 1}.submit(ctx)
		const words = "insufficient unused quota for cpu in flavor any, 20m more needed"
		expectInQueue(ctx, "second", 2, words)
		page := describeQueued(ctx, plugin, "second")
		Expect(page).To(ContainSubstring(words))
		Expect(page).To(ContainSubstring("Quota of queue quota becomes free"))

		began = time.Now()
		deleteJob(ctx, "first")
		expectAdmitted(ctx, "second", 2)
		AddReportEntry("from the deletion to the other's pods", time.Since(began).Round(time.Millisecond).String(), ReportEntryVisibilityAlways)
		expectUsed(ctx, queue, 2)
		deleteJob(ctx, "second")
		expectUsed(ctx, queue, 0)
		expectNoWorkloads(ctx)

		By("ending a job")
		queuedJob{name: "short", queue: queue, collectors: 2, command: `exit, "0"`}.submit(ctx)
		expectQueued(ctx, "short", func(g Gomega, job *v2alpha1.DIJob) { g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobSucceeded)) })
		expectUsed(ctx, queue, 0)
		deleteJob(ctx, "short")
		expectNoWorkloads(ctx)
	})

	It("is evicted by one of a higher priority, and resumes", func(ctx SpecContext) {
		const queue = "priorities"
		makeQueue(ctx, queue, 3, "  preemption: {withinClusterQueue: LowerPriority}")
		queuedJob{name: "low", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "low", 3)

		began := time.Now()
		queuedJob{name: "high", queue: queue, collectors: 1, labels: "kueue.x-k8s.io/priority-class: urgent"}.submit(ctx)
		expectAdmitted(ctx, "high", 2)
		AddReportEntry("from the urgent job to its pods", time.Since(began).Round(time.Millisecond).String(), ReportEntryVisibilityAlways)
		expectInQueue(ctx, "low", 3, "insufficient unused quota")
		expectUsed(ctx, queue, 2)

		began = time.Now()
		deleteJob(ctx, "high")
		job := expectAdmitted(ctx, "low", 3)
		AddReportEntry("from the end of the urgent job to the pods of the evicted one", time.Since(began).Round(time.Millisecond).String(), ReportEntryVisibilityAlways)
		Expect(job.Status.Restarts).To(BeZero())
		Expect(job.Status.Reschedules).To(Equal(int32(1)))
	})

	It("grows and shrinks within the quota, and runs on while more pods wait", func(ctx SpecContext) {
		const queue = "growth"
		makeQueue(ctx, queue, 4)
		queuedJob{name: "grower", queue: queue, collectors: 1}.submit(ctx)
		expectAdmitted(ctx, "grower", 2)
		before := uidsOf(queuedPods(ctx, Default, "grower"))

		By("growing into what is free")
		scale(ctx, "grower", 3)
		expectAdmitted(ctx, "grower", 4)
		expectUsed(ctx, queue, 4)

		By("growing beyond it")
		scale(ctx, "grower", 5)
		expectQueued(ctx, "grower", func(g Gomega, job *v2alpha1.DIJob) {
			g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(job.Status.ReadyReplicas).To(Equal(int32(4)))
			g.Expect(admission(job).Status).To(Equal(corev1.ConditionTrue))
			g.Expect(admission(job).Message).To(And(ContainSubstring("2 of its 6 pods wait there"), ContainSubstring("insufficient unused quota")))
		})

		By("shrinking to its first size")
		scale(ctx, "grower", 1)
		job := expectAdmitted(ctx, "grower", 2)
		Expect(job.Status.Restarts + job.Status.Reschedules).To(BeZero())
		expectUsed(ctx, queue, 2)
		Expect(uidsOf(queuedPods(ctx, Default, "grower"))).To(Equal(before))

		By("growing again")
		scale(ctx, "grower", 2)
		expectAdmitted(ctx, "grower", 3)
		expectUsed(ctx, queue, 3)
	})

	It("replaces replicas without another admission while others wait for the quota", func(ctx SpecContext) {
		const queue = "replacement"
		makeQueue(ctx, queue, 3)
		queuedJob{name: "keeper", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "keeper", 3)
		queuedJob{name: "waiter", queue: queue, collectors: 1}.submit(ctx)
		expectInQueue(ctx, "waiter", 2, "")
		lost := names.WorkerPod("keeper", "collector", 1)
		replaced := func(before []corev1.Pod) {
			GinkgoHelper()
			expectQueued(ctx, "keeper", func(g Gomega, job *v2alpha1.DIJob) {
				now := uidsOf(queuedPods(ctx, g, "keeper"))
				g.Expect(now).To(HaveLen(3))
				g.Expect(now[lost]).NotTo(Equal(uidsOf(before)[lost]))
				g.Expect(job.Status.ReadyReplicas).To(Equal(int32(3)))
			})
			expectUsed(ctx, queue, 3)
			expectInQueue(ctx, "waiter", 2, "")
		}

		By("deleting a replica")
		before := queuedPods(ctx, Default, "keeper")
		Expect(core.CoreV1().Pods(queueNamespace).Delete(ctx, lost, metav1.DeleteOptions{})).To(Succeed())
		replaced(before)

		By("evicting a replica")
		before = queuedPods(ctx, Default, "keeper")
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: lost, Namespace: queueNamespace}}
		Expect(core.PolicyV1().Evictions(queueNamespace).Evict(ctx, eviction)).To(Succeed())
		replaced(before)
	})

	for _, version := range []string{"v1alpha1", "v2alpha1"} {
		It("is led by its coordinator, whose requests queue ("+version+")", func(ctx SpecContext) {
			queue, name := "led-"+version, "led-"+version
			makeQueue(ctx, queue, 5)
			applyContent(ctx, queueNamespace, ledJob(version, name, queue))
			expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) { g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning)) })
			expectUsed(ctx, queue, 1)
			readyCollectors := func(ready, all int) {
				GinkgoHelper()
				expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) {
					g.Expect(job.Status.ReadyReplicas).To(Equal(int32(ready + 1)))
					g.Expect(queuedPods(ctx, g, name)).To(HaveLen(all + 1))
				})
			}

			By("asking for collectors within the quota, and for more than is left of it")
			requestOnce(ctx, name, "add", 2)
			readyCollectors(2, 2)
			before := uidsOf(queuedPods(ctx, Default, name))
			requestOnce(ctx, name, "add", 3) // The same request would count as a repeated one.
			readyCollectors(2, 5)
			job := expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) {
				g.Expect(admission(job).Message).To(ContainSubstring("3 of its 6 pods wait there"))
			})
			Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			expectUsed(ctx, queue, 3)

			By("giving up as many as wait")
			requestOnce(ctx, name, "delete", 3)
			expectAdmitted(ctx, name, 3)
			Expect(uidsOf(queuedPods(ctx, Default, name))).To(Equal(before))
			expectUsed(ctx, queue, 3)

			By("giving up one that was admitted with another, and asking for one in its place")
			requestOnce(ctx, name, "delete", 1)
			expectAdmitted(ctx, name, 2)
			requestOnce(ctx, name, "add", 1)
			expectAdmitted(ctx, name, 3)
			expectUsed(ctx, queue, 3)
			deleteJob(ctx, name)
			expectUsed(ctx, queue, 0)
			expectNoWorkloads(ctx)
		})
	}

	It("borrows from another queue, and is evicted when that reclaims its quota", func(ctx SpecContext) {
		const cohort = "  cohortName: lenders\n  preemption: {reclaimWithinCohort: Any}"
		makeQueue(ctx, "borrower", 1, cohort)
		makeQueue(ctx, "lender", 2, cohort)
		queuedJob{name: "borrowing", queue: "borrower", collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "borrowing", 3)

		queuedJob{name: "owning", queue: "lender", collectors: 1}.submit(ctx)
		expectAdmitted(ctx, "owning", 2)
		expectInQueue(ctx, "borrowing", 3, "insufficient unused quota")
		expectUsed(ctx, "borrower", 0)

		deleteJob(ctx, "owning")
		job := expectAdmitted(ctx, "borrowing", 3)
		Expect(job.Status.Reschedules).To(Equal(int32(1)))
		Expect(job.Status.Restarts).To(BeZero())
	})

	It("waits and grows on while the operator is killed", func(ctx SpecContext) {
		const queue = "killed"
		makeQueue(ctx, queue, 3)
		operator := labels.Set{"app.kubernetes.io/component": "operator"}
		queuedJob{name: "growing", queue: queue, collectors: 1}.submit(ctx)
		expectAdmitted(ctx, "growing", 2)
		queuedJob{name: "delayed", queue: queue, collectors: 1}.submit(ctx)
		expectInQueue(ctx, "delayed", 2, "")

		By("killing both operators while one job waits and the other grows")
		scale(ctx, "growing", 2)
		kill(ctx, operator, 2)
		expectAdmitted(ctx, "growing", 3)
		expectInQueue(ctx, "delayed", 2, "")

		By("killing both while the quota becomes free")
		scale(ctx, "growing", 1)
		kill(ctx, operator, 2)
		deleteJob(ctx, "growing")
		job := expectAdmitted(ctx, "delayed", 2)
		Expect(job.Status.Restarts + job.Status.Reschedules).To(BeZero())
		deleteJob(ctx, "delayed")
		expectNoWorkloads(ctx)
	})
})

// ledJob returns a coordinator-led job whose pods wait.
func ledJob(version, name, queue string) string {
	const pod = `{spec: {terminationGracePeriodSeconds: 1, containers: [{name: di-container, image: cartpole:dev, imagePullPolicy: IfNotPresent,
      command: [/cartpole], args: [wait], resources: {requests: {cpu: 10m}}}]}}`
	if version == "v1alpha1" {
		return fmt.Sprintf(`
apiVersion: diengine.opendilab.org/v1alpha1
kind: DIJob
metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: %s}}
spec:
  coordinator: {template: &pod %s}
  collector: {template: *pod}
  learner: {template: *pod}
`, name, queue, pod)
	}
	return fmt.Sprintf(`
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: %s}
spec:
  lifecycle: CoordinatorLed
  scheduling: {queue: %s}
  tasks:
  - {type: coordinator, name: coordinator, replicas: 1, template: &pod %s}
  - {type: collector, name: collector, template: *pod}
  - {type: learner, name: learner, template: *pod}
`, name, queue, pod)
}
