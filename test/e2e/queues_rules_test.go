// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/queueing"
)

// These are the rules of Kueue's queues, as jobs meet them.
var _ = Describe("A queue of Kueue", Ordered, ContinueOnFailure, Label(kueue, kueueLong), func() {
	BeforeAll(useKueue)
	AfterEach(explainQueues)

	DescribeTable("keeps nothing of a job that is deleted", func(ctx SpecContext, reach func(ctx SpecContext, queue string)) {
		const queue = "deletions"
		makeQueue(ctx, queue, 3, "  preemption: {withinClusterQueue: LowerPriority}")
		reach(ctx, queue)
		kubectlUntilDone(ctx, "delete", dijobs, "--namespace="+queueNamespace, "--all", waiting())
		expectUsed(ctx, queue, 0)
		expectNoWorkloads(ctx)
	},
		Entry("while it waits", func(ctx SpecContext, queue string) {
			queuedJob{name: "waits", queue: queue, collectors: 5}.submit(ctx)
			expectInQueue(ctx, "waits", 6, "insufficient quota")
		}),
		Entry("while it runs", func(ctx SpecContext, queue string) {
			queuedJob{name: "runs", queue: queue, collectors: 2}.submit(ctx)
			expectAdmitted(ctx, "runs", 3)
		}),
		Entry("at once", func(ctx SpecContext, queue string) {
			queuedJob{name: "brief", queue: queue, collectors: 2}.submit(ctx)
		}),
		Entry("while it is evicted", func(ctx SpecContext, queue string) {
			queuedJob{name: "evicted", queue: queue, collectors: 2}.submit(ctx)
			expectAdmitted(ctx, "evicted", 3)
			queuedJob{name: "urgent", queue: queue, collectors: 2, labels: urgent}.submit(ctx)
			expectQueued(ctx, "evicted", func(g Gomega, job *v2alpha1.DIJob) { g.Expect(job.Status.Reschedules).To(Equal(int32(1))) })
		}),
		Entry("after it has ended", func(ctx SpecContext, queue string) {
			queuedJob{name: "over", queue: queue, collectors: 2, command: `exit, "0"`}.submit(ctx)
			expectQueued(ctx, "over", func(g Gomega, job *v2alpha1.DIJob) { g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobSucceeded)) })
		}),
		Entry("while the coordinator runs and members wait", func(ctx SpecContext, queue string) {
			applyContent(ctx, queueNamespace, ledJob("v2alpha1", "leads", queue))
			requestOnce(ctx, "leads", "add", 4)
			expectQueued(ctx, "leads", func(g Gomega, job *v2alpha1.DIJob) { g.Expect(queuedPods(ctx, g, "leads")).To(HaveLen(5)) })
		}),
	)

	DescribeTable("is free again when a job has ended", func(ctx SpecContext, code string, phase v2alpha1.Phase) {
		const queue = "ends"
		makeQueue(ctx, queue, 3)
		queuedJob{name: "ends", queue: queue, collectors: 2, command: `exit, "` + code + `"`}.submit(ctx)
		expectQueued(ctx, "ends", func(g Gomega, job *v2alpha1.DIJob) { g.Expect(job.Status.Phase).To(Equal(phase)) })
		queuedJob{name: "next", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "next", 3)
		expectUsed(ctx, queue, 3)
	},
		Entry("well", "0", v2alpha1.JobSucceeded),
		Entry("badly, after its restarts", "1", v2alpha1.JobFailed),
	)

	DescribeTable("says why a job waits", func(ctx SpecContext, queue string, pods int, words string, change func(ctx SpecContext, queue string)) {
		makeQueue(ctx, queue, 3)
		change(ctx, queue)
		queuedJob{name: "asks", queue: queue, collectors: pods - 1}.submit(ctx)
		expectInQueue(ctx, "asks", pods, words)
	},
		Entry("for more than the queue ever has", "small", 5, "insufficient quota for cpu in flavor any", func(SpecContext, string) {}),
		Entry("for a queue that is stopped", "stopped", 2, "ClusterQueue stopped is inactive", func(ctx SpecContext, queue string) {
			patchQueue(ctx, queue, `{"spec":{"stopPolicy":"Hold"}}`)
		}),
		Entry("for a queue whose flavor does not exist", "flavorless", 2, "ClusterQueue flavorless is inactive", func(ctx SpecContext, queue string) {
			patchQueue(ctx, queue, `{"spec":{"resourceGroups":[{"coveredResources":["cpu"],"flavors":[{"name":"missing","resources":[{"name":"cpu","nominalQuota":"1"}]}]}]}}`)
		}),
		Entry("for a queue of other namespaces", "foreign", 2, "namespace doesn't match ClusterQueue selector", func(ctx SpecContext, queue string) {
			patchQueue(ctx, queue, `{"spec":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"another"}}}}`)
		}),
		Entry("for a resource that the queue does not have", "resources", 2, "resource cpu unavailable in ClusterQueue", func(ctx SpecContext, queue string) {
			patchQueue(ctx, queue, `{"spec":{"resourceGroups":[{"coveredResources":["memory"],"flavors":[{"name":"any","resources":[{"name":"memory","nominalQuota":"1Gi"}]}]}]}}`)
		}),
	)

	It("evicts its jobs when it is drained, and admits them when it is open again", func(ctx SpecContext) {
		const queue = "drained"
		makeQueue(ctx, queue, 3)
		queuedJob{name: "job", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "job", 3)
		patchQueue(ctx, queue, `{"spec":{"stopPolicy":"HoldAndDrain"}}`)
		expectInQueue(ctx, "job", 3, "inactive")
		expectUsed(ctx, queue, 0)
		patchQueue(ctx, queue, `{"spec":{"stopPolicy":"None"}}`)
		job := expectAdmitted(ctx, "job", 3)
		Expect(job.Status.Restarts).To(BeZero())
	})

	It("gets the quota of a job that is suspended, and admits it again after it is resumed", func(ctx SpecContext) {
		const queue = "suspensions"
		makeQueue(ctx, queue, 3)
		queuedJob{name: "first", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "first", 3)
		queuedJob{name: "second", queue: queue, collectors: 2}.submit(ctx)
		expectInQueue(ctx, "second", 3, "insufficient unused quota")
		suspend(ctx, "first", true)
		expectAdmitted(ctx, "second", 3)
		suspend(ctx, "first", false)
		expectInQueue(ctx, "first", 3, "insufficient unused quota")

		By("suspending a job that waits")
		suspend(ctx, "first", true)
		Eventually(func(g Gomega) { g.Expect(queuedPods(ctx, g, "first")).To(BeEmpty()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		deleteJob(ctx, "second")
		suspend(ctx, "first", false)
		expectAdmitted(ctx, "first", 3)
	})

	It("admits an urgent job before those that wait longer", func(ctx SpecContext) {
		const queue = "urgency"
		makeQueue(ctx, queue, 2)
		queuedJob{name: "runs", queue: queue, collectors: 1}.submit(ctx)
		expectAdmitted(ctx, "runs", 2)
		queuedJob{name: "waits", queue: queue, collectors: 1}.submit(ctx)
		expectInQueue(ctx, "waits", 2, "insufficient unused quota")
		queuedJob{name: "urgent", queue: queue, collectors: 1, labels: urgent}.submit(ctx)
		expectInQueue(ctx, "urgent", 2, "insufficient unused quota")
		deleteJob(ctx, "runs")
		expectAdmitted(ctx, "urgent", 2)
		expectInQueue(ctx, "waits", 2, "insufficient unused quota")
	})

	DescribeTable("admits small jobs behind a large one", func(ctx SpecContext, queue, strategy string, passes bool) {
		makeQueue(ctx, queue, 4, "  queueingStrategy: "+strategy)
		queuedJob{name: "runs", queue: queue, collectors: 1}.submit(ctx)
		expectAdmitted(ctx, "runs", 2)
		queuedJob{name: "large", queue: queue, collectors: 3}.submit(ctx)
		expectInQueue(ctx, "large", 4, "insufficient unused quota")
		queuedJob{name: "small", queue: queue, collectors: 1}.submit(ctx)
		if passes {
			expectAdmitted(ctx, "small", 2)
			return
		}
		expectInQueue(ctx, "small", 2, "")
		deleteJob(ctx, "runs")
		expectAdmitted(ctx, "large", 4)
		expectInQueue(ctx, "small", 2, "")
	},
		Entry("if it does its best", "best", "BestEffortFIFO", true),
		Entry("not if it is strict", "strict", "StrictFIFO", false),
	)

	It("has two flavors, and uses the second when the first is used up", func(ctx SpecContext) {
		applyContent(ctx, queueNamespace, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: spare}\n")
		DeferCleanup(func(ctx SpecContext) {
			kubectlUntilDone(ctx, "delete", "resourceflavor/spare", "--ignore-not-found", "--wait=false")
		})
		const queue = "flavors"
		makeQueue(ctx, queue, 3)
		patchQueue(ctx, queue, `{"spec":{"resourceGroups":[{"coveredResources":["cpu"],"flavors":[
			{"name":"any","resources":[{"name":"cpu","nominalQuota":"30m"}]},{"name":"spare","resources":[{"name":"cpu","nominalQuota":"30m"}]}]}]}}`)
		queuedJob{name: "first", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "first", 3)
		queuedJob{name: "second", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "second", 3)
		flavor, err := callKubectl(ctx, "get", workloads, "--namespace="+queueNamespace, "--output=jsonpath={.items[*].status.admission.podSetAssignments[0].flavors.cpu}")
		Expect(err).NotTo(HaveOccurred())
		Expect(flavor).To(And(ContainSubstring("any"), ContainSubstring("spare")))
	})

	It("borrows up to its limit", func(ctx SpecContext) {
		const cohort = "  cohortName: limited"
		makeQueue(ctx, "lends", 4, cohort)
		makeQueue(ctx, "limited", 2, cohort)
		patchQueue(ctx, "limited", `{"spec":{"resourceGroups":[{"coveredResources":["cpu"],"flavors":[
			{"name":"any","resources":[{"name":"cpu","nominalQuota":"20m","borrowingLimit":"10m"}]}]}]}}`)
		queuedJob{name: "within", queue: "limited", collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "within", 3)
		queuedJob{name: "beyond", queue: "limited", collectors: 1}.submit(ctx)
		expectInQueue(ctx, "beyond", 2, "insufficient unused quota")
		deleteJob(ctx, "within")
		expectAdmitted(ctx, "beyond", 2)
	})

	It("reclaims its quota from jobs of lower priority in its cohort, and not from urgent ones", func(ctx SpecContext) {
		const cohort = "  cohortName: ranks\n  preemption: {reclaimWithinCohort: LowerPriority}"
		makeQueue(ctx, "owner", 4, cohort)
		makeQueue(ctx, "guest", 1, cohort)
		queuedJob{name: "important", queue: "guest", collectors: 1, labels: urgent}.submit(ctx)
		expectAdmitted(ctx, "important", 2)
		queuedJob{name: "lowly", queue: "guest", collectors: 2, labels: "kueue.x-k8s.io/priority-class: minor"}.submit(ctx)
		expectAdmitted(ctx, "lowly", 3)
		queuedJob{name: "owns", queue: "owner", collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "owns", 3)
		expectInQueue(ctx, "lowly", 3, "insufficient unused quota")
		Expect(expectAdmitted(ctx, "important", 2).Status.Reschedules).To(BeZero())
	})

	It("shares fairly between two queues that borrow", func(ctx SpecContext) {
		configureKueue(ctx, "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}")
		const cohort = "  cohortName: fair\n  fairSharing: {weight: 1}\n  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}"
		makeQueue(ctx, "pool", 4, "  cohortName: fair")
		makeQueue(ctx, "greedy", 0, cohort)
		makeQueue(ctx, "modest", 0, cohort)
		for _, name := range []string{"greedy-1", "greedy-2"} {
			queuedJob{name: name, queue: "greedy", collectors: 1}.submit(ctx)
			expectAdmitted(ctx, name, 2)
		}
		queuedJob{name: "modest-1", queue: "modest", collectors: 1}.submit(ctx)
		expectAdmitted(ctx, "modest-1", 2)
		expectUsed(ctx, "greedy", 2)
		expectUsed(ctx, "modest", 2)
		queuedJob{name: "modest-2", queue: "modest", collectors: 1}.submit(ctx)
		expectInQueue(ctx, "modest-2", 2, "insufficient unused quota")
	})

	It("admits a job that was submitted while Kueue was down", func(ctx SpecContext) {
		const queue = "outage"
		makeQueue(ctx, queue, 3)
		DeferCleanup(func(ctx SpecContext) { runKueue(ctx, true) })
		runKueue(ctx, false)
		queuedJob{name: "early", queue: queue, collectors: 2}.submit(ctx)
		expectQueued(ctx, "early", func(g Gomega, job *v2alpha1.DIJob) {
			g.Expect(job.Status.Phase).NotTo(BeEmpty())
			g.Expect(queuedPods(ctx, g, "early")).To(BeEmpty())
		})
		runKueue(ctx, true)
		job := expectAdmitted(ctx, "early", 3)
		Expect(job.Status.Restarts + job.Status.Reschedules).To(BeZero())
	})

	DescribeTable("evicts a job whose Workload a user stops, and the job queues again", func(ctx SpecContext, stop ...string) {
		const queue = "stops"
		makeQueue(ctx, queue, 3)
		queuedJob{name: "stops", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "stops", 3)
		var former string
		Eventually(func(g Gomega) {
			found := readObjects(ctx, g, queueing.WorkloadKind)
			g.Expect(found).To(HaveLen(1))
			former = found[0].GetName()
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		kubectlUntilDone(ctx, append([]string{stop[0], workloads + "/" + former, "--namespace=" + queueNamespace}, stop[1:]...)...)
		expectQueued(ctx, "stops", func(g Gomega, job *v2alpha1.DIJob) { g.Expect(job.Status.Reschedules).To(Equal(int32(1))) })
		job := expectAdmitted(ctx, "stops", 3)
		Expect(job.Status.Restarts).To(BeZero())
		deleteJob(ctx, "stops")
		expectNoWorkloads(ctx)
	},
		Entry("by deactivating it", "patch", "--type=merge", `--patch={"spec":{"active":false}}`),
		Entry("by deleting it", "delete", "--wait=false"),
	)

	It("evicts a job at the maximum time of its Workload, and the job queues again", func(ctx SpecContext) {
		const queue = "times"
		makeQueue(ctx, queue, 2)
		queuedJob{name: "timed", queue: queue, collectors: 1, podLabels: `kueue.x-k8s.io/max-exec-time-seconds: "5"`}.submit(ctx)
		expectAdmitted(ctx, "timed", 2)
		job := expectQueued(ctx, "timed", func(g Gomega, job *v2alpha1.DIJob) { g.Expect(job.Status.Reschedules).To(BeNumerically(">=", 1)) })
		Expect(job.Status.Restarts).To(BeZero())
	})

	It("takes another job of the same name for another", func(ctx SpecContext) {
		const queue = "names"
		makeQueue(ctx, queue, 3)
		for collectors := 1; collectors <= 2; collectors++ {
			queuedJob{name: "same", queue: queue, collectors: collectors}.submit(ctx)
			expectAdmitted(ctx, "same", 1+collectors)
			expectUsed(ctx, queue, 1+collectors)
			kubectlUntilDone(ctx, "delete", dijobs+"/same", "--namespace="+queueNamespace, "--wait=false")
		}
		expectNoWorkloads(ctx)
	})

	It("admits what is left of a group of added replicas as a smaller one", func(ctx SpecContext) {
		const queue = "parts"
		makeQueue(ctx, queue, 6)
		queuedJob{name: "parted", queue: queue, collectors: 1}.submit(ctx)
		expectAdmitted(ctx, "parted", 2)
		first := uidsOf(queuedPods(ctx, Default, "parted"))
		scale(ctx, "parted", 5)
		expectAdmitted(ctx, "parted", 6)
		scale(ctx, "parted", 3)
		job := expectAdmitted(ctx, "parted", 4)
		expectUsed(ctx, queue, 4)
		Expect(job.Status.Restarts + job.Status.Reschedules).To(BeZero())
		for name, uid := range first {
			Expect(uidsOf(queuedPods(ctx, Default, "parted"))).To(HaveKeyWithValue(name, uid))
		}
	})

	It("keeps the places of members that leave a group for the next ones", func(ctx SpecContext) {
		const queue, name = "places", "led-places"
		makeQueue(ctx, queue, 5)
		applyContent(ctx, queueNamespace, ledJob("v2alpha1", name, queue))
		requestOnce(ctx, name, "add", 4)
		expectAdmitted(ctx, name, 5)
		before := uidsOf(queuedPods(ctx, Default, name))
		requestOnce(ctx, name, "delete", 2)
		expectAdmitted(ctx, name, 3)
		for pod, uid := range uidsOf(queuedPods(ctx, Default, name)) {
			Expect(before).To(HaveKeyWithValue(pod, uid), "a member that stays is replaced")
		}
		expectUsed(ctx, queue, 5)
		queuedJob{name: "rival", queue: queue, collectors: 1}.submit(ctx)
		expectInQueue(ctx, "rival", 2, "insufficient unused quota")
		requestOnce(ctx, name, "add", 2)
		expectAdmitted(ctx, name, 5)
		expectInQueue(ctx, "rival", 2, "insufficient unused quota")

		By("losing a member")
		for pod := range uidsOf(queuedPods(ctx, Default, name)) {
			if pod != names.CoordinatorPod(name) {
				Expect(core.CoreV1().Pods(queueNamespace).Delete(ctx, pod, metav1.DeleteOptions{})).To(Succeed())
				break
			}
		}
		expectAdmitted(ctx, name, 5)
		expectInQueue(ctx, "rival", 2, "insufficient unused quota")

		By("removing all")
		requestOnce(ctx, name, "delete", 4)
		expectAdmitted(ctx, name, 1)
		expectAdmitted(ctx, "rival", 2)
		expectUsed(ctx, queue, 3)
	})

	It("evicts members that were added together as a whole, and their coordinator continues", func(ctx SpecContext) {
		const queue, name = "wholes", "led-wholes"
		makeQueue(ctx, queue, 4, "  preemption: {withinClusterQueue: LowerPriority}")
		applyContent(ctx, queueNamespace, ledJob("v2alpha1", name, queue))
		requestOnce(ctx, name, "add", 3)
		expectAdmitted(ctx, name, 4)
		queuedJob{name: "urgent", queue: queue, collectors: 1, labels: urgent}.submit(ctx)
		expectAdmitted(ctx, "urgent", 2)
		expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) {
			g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(job.Status.ReadyReplicas).To(Equal(int32(1)))
			g.Expect(admission(job).Message).To(ContainSubstring("3 of its 4 pods wait there"))
		})
		expectUsed(ctx, queue, 3)
		deleteJob(ctx, "urgent")
		expectAdmitted(ctx, name, 4)
	})
})

// urgent is the label of a job of high priority.
const urgent = "kueue.x-k8s.io/priority-class: urgent"

// patchQueue changes a ClusterQueue.
func patchQueue(ctx SpecContext, name, patch string) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "patch", "clusterqueue/"+name, "--type=merge", "--patch="+patch)
}

func suspend(ctx SpecContext, name string, isSuspended bool) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "patch", dijobs+"/"+name, "--namespace="+queueNamespace, "--type=merge", fmt.Sprintf(`--patch={"spec":{"suspend":%v}}`, isSuspended))
}
