// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

var _ = Describe("Jobs in queues of Kueue", Ordered, ContinueOnFailure, Label(kueue, kueueLong), func() {
	BeforeAll(useKueue)
	AfterEach(explainQueues)

	It("start again as another group after a replica has failed", func(ctx SpecContext) {
		const queue = "failures"
		makeQueue(ctx, queue, 3)
		queuedJob{name: "failing", queue: queue, collectors: 2}.submit(ctx)
		expectAdmitted(ctx, "failing", 3)
		kubectlUntilDone(ctx, "exec", "--namespace="+queueNamespace, names.WorkerPod("failing", "collector", 0), "--", "/cartpole", "crash")
		expectQueued(ctx, "failing", func(g Gomega, job *v2alpha1.DIJob) {
			g.Expect(job.Status.Restarts).To(Equal(int32(1)))
			g.Expect(job.Status.ReadyReplicas).To(Equal(int32(3)))
		})
		expectUsed(ctx, queue, 3)
	})

	It("evict the members of a coordinator-led job together", func(ctx SpecContext) {
		const queue, name = "together", "led"
		makeQueue(ctx, queue, 3, "  preemption: {withinClusterQueue: LowerPriority}")
		applyContent(ctx, queueNamespace, ledJob("v1alpha1", name, queue))
		requestOnce(ctx, name, "add", 2)
		expectAdmitted(ctx, name, 3)

		queuedJob{name: "urgent", queue: queue, collectors: 1, labels: "kueue.x-k8s.io/priority-class: urgent"}.submit(ctx)
		expectAdmitted(ctx, "urgent", 2)
		expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) {
			g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(admission(job).Message).To(ContainSubstring("2 of its 3 pods wait there"))
			g.Expect(job.Status.ReadyReplicas).To(Equal(int32(1)))
		})
		deleteJob(ctx, "urgent")
		expectQueued(ctx, name, func(g Gomega, job *v2alpha1.DIJob) {
			g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(job.Status.ReadyReplicas).To(Equal(int32(3)))
		})
	})

	It("are placed in one domain of a topology", func(ctx SpecContext) {
		const queue = "topology"
		applyContent(ctx, queueNamespace, `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: nodes}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: placed}
spec: {topologyName: nodes, nodeLabels: {kubernetes.io/os: linux}}
`)
		DeferCleanup(func(ctx SpecContext) {
			kubectlUntilDone(ctx, "delete", "resourceflavor/placed", "topology/nodes", "--ignore-not-found", "--wait=false")
		})
		makeFlavoredQueue(ctx, queue, "placed", 8)
		queuedJob{name: "near", queue: queue, collectors: 4, annotations: "kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname"}.submit(ctx)
		expectAdmitted(ctx, "near", 5)
		expectOneNode := func() {
			GinkgoHelper()
			nodes := map[string]bool{}
			for _, pod := range queuedPods(ctx, Default, "near") {
				nodes[pod.Spec.NodeName] = true
			}
			Expect(nodes).To(HaveLen(1))
		}
		expectOneNode()

		By("replacing one of them")
		lost := names.WorkerPod("near", "collector", 1)
		before := uidsOf(queuedPods(ctx, Default, "near"))[lost]
		kubectlUntilDone(ctx, "delete", "pod/"+lost, "--namespace="+queueNamespace, waiting())
		expectQueued(ctx, "near", func(g Gomega, job *v2alpha1.DIJob) {
			g.Expect(uidsOf(queuedPods(ctx, g, "near"))[lost]).NotTo(Or(BeEmpty(), Equal(before)))
			g.Expect(job.Status.ReadyReplicas).To(Equal(int32(5)))
		})
		expectOneNode()
	})

	It("all run to their end, 200 in one queue for 10 pods", func(ctx SpecContext) {
		const queue, count = "many", 200
		makeQueue(ctx, queue, 10)
		var manifests []string
		for i := range count {
			manifests = append(manifests, fmt.Sprintf(`
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: many-%d, labels: {many: "true", kueue.x-k8s.io/queue-name: %s}}
spec:
  tasks:
  - {type: learner, name: learner, replicas: 2, template: {spec: {terminationGracePeriodSeconds: 1, containers: [
      {name: di-container, image: cartpole:dev, imagePullPolicy: IfNotPresent, command: [/cartpole], args: [exit, "0"], resources: {requests: {cpu: 10m}}}]}}}
`, i, queue))
		}
		began := time.Now()
		applyContent(ctx, queueNamespace, strings.Join(manifests, "---\n"))
		submitted := time.Since(began)
		Eventually(func(g Gomega) {
			var jobs v2alpha1.DIJobList
			g.Expect(api.List(ctx, &jobs, inQueues())).To(Succeed())
			ended := slices.DeleteFunc(jobs.Items, func(job v2alpha1.DIJob) bool { return job.Status.Phase != v2alpha1.JobSucceeded })
			g.Expect(ended).To(HaveLen(count))
		}).WithContext(ctx).WithTimeout(3 * patience).WithPolling(time.Second).Should(Succeed())
		AddReportEntry("jobs that ran to their end", fmt.Sprintf("%d created in %s, all ended after %s", count, submitted.Round(time.Second), time.Since(began).Round(time.Second)), ReportEntryVisibilityAlways)
		expectUsed(ctx, queue, 0)
		kubectlUntilDone(ctx, "delete", dijobs, "--namespace="+queueNamespace, "--selector=many", waiting())
		expectNoWorkloads(ctx)
	})

	It("say that their queue does not exist", func(ctx SpecContext) {
		queuedJob{name: "lost", queue: "nowhere", collectors: 1}.submit(ctx)
		expectInQueue(ctx, "lost", 2, "LocalQueue nowhere doesn't exist")
		Expect(admission(getJob(ctx, Default, queueNamespace, "lost")).Status).To(Equal(corev1.ConditionFalse))
		deleteJob(ctx, "lost")
		expectNoWorkloads(ctx)
	})
})
