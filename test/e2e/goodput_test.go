// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
)

const (
	// goodput labels specs that run the operator with the policy goodput.
	goodput = "goodput"
	// resizedNamespace is the namespace of the job that the policy resizes.
	resizedNamespace = "resized"
	// resizedAfter is the round after which the job pauses: it has reported its speed by then.
	resizedAfter = 4
	// allocationPatience covers the minute in which a report may be pending, and a round of the allocator.
	allocationPatience = 5 * time.Minute
)

// The job is resized while it is paused, so that each of its processes shows the same round.
var _ = Describe("A preemptible job under the policy goodput", Ordered, Serial, Label(goodput, twoNodes), func() {
	const name = "resized"
	learner := names.WorkerPod(name, "learner", 0)
	leads := driver{resizedNamespace, learner, names.DefaultWorkerPort}
	reschedules := int32(0)

	// expectReplaced waits until all replicas are restarted in another placement, and the training continues from
	// its checkpoint.
	expectReplaced := func(ctx SpecContext, replicas int) *v2alpha1.DIJob {
		GinkgoHelper()
		var job *v2alpha1.DIJob
		Eventually(func(g Gomega) {
			job = getJob(ctx, g, resizedNamespace, name)
			g.Expect(job.Status.Allocation).To(HaveLen(replicas))
			g.Expect(job.Status.Reschedules).To(BeNumerically(">", reschedules))
			g.Expect(job.Status.Restarts).To(Equal(int32(0)))
			g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(leads.round(ctx, g)).To(Equal(resizedAfter))
		}).WithTimeout(allocationPatience).WithPolling(time.Second).Should(Succeed())
		reschedules = job.Status.Reschedules
		Expect(logOf(ctx, resizedNamespace, learner)).To(MatchRegexp(`continuing from a checkpoint.* round=%d steps=[1-9]`, resizedAfter))
		return job
	}

	BeforeAll(func(ctx SpecContext) {
		helmOutput(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--set=configuration.operator.allocator.policy=goodput", "--wait", helmWaiting())
		DeferCleanup(func(ctx SpecContext) { Expect(run.Install(ctx)).To(Succeed()) })
		makeNamespace(ctx, resizedNamespace)
		folder := filepath.Join(GinkgoT().TempDir(), "checkpoints")
		job := preemptibleJob(resizedNamespace, name, folder)
		Expect(unstructured.SetNestedMap(job.Object, map[string]any{
			"task": "collector", "minReplicas": int64(1), "maxReplicas": int64(4),
		}, "spec", "elastic")).To(Succeed())
		// The units of a round take 1.6 seconds with one collector, and half of it with two.
		addArgs(podSpecs(job)["collector"], "--min-unit=200ms")
		addArgs(podSpecs(job)["learner"], fmt.Sprintf("--pause-after=%d", resizedAfter))
		submit(ctx, job)
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, resizedNamespace, []string{"get", "pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"},
				[]string{"get", "events"}, []string{"logs", learner})
			explain(ctx, names.SystemNamespace, []string{"logs", "--selector=" + operatorPods, "--tail=60", "--prefix"})
		}
	})

	It("starts with its least replicas", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			g.Expect(getJob(ctx, g, resizedNamespace, name).Status.Allocation).To(HaveLen(2))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
	})

	It("is grown to twice what it has reported, and continues from its checkpoint", func(ctx SpecContext) {
		job := expectReplaced(ctx, 3)
		Expect(job.Status.Profilings).NotTo(BeNil())
		Expect(string(job.Status.Profilings.Raw)).To(And(ContainSubstring(`"steps"`), ContainSubstring(`"gradient"`), ContainSubstring(`"progress"`)))
	})

	It("is shrunk to a smaller range, and continues from its checkpoint", func(ctx SpecContext) {
		kubectlOutput(ctx, "patch", dijobs, name, "--namespace="+resizedNamespace, "--type=merge", `--patch={"spec":{"elastic":{"maxReplicas":1}}}`)
		expectReplaced(ctx, 2)
	})

	It("is moved off a drained node, and continues from its checkpoint", func(ctx SpecContext) {
		left := getJob(ctx, Default, resizedNamespace, name).Status.Allocation[0]
		exited := watchExit(ctx, resizedNamespace, learner)
		DeferCleanup(func(ctx SpecContext) { kubectlOutput(ctx, "uncordon", left) })
		kubectlOutput(ctx, "drain", left, "--pod-selector="+names.LabelJob+"="+name, "--ignore-daemonsets", waiting())
		Expect(exited()).To(Equal(int32(exitPreempted)), "the exit code of the learner that was moved")
		Expect(expectReplaced(ctx, 2).Status.Allocation).NotTo(ContainElement(left))
	})

	It("reaches its target by the curve of its seed", func(ctx SpecContext) {
		Eventually(func(g Gomega) { leads.pause(ctx, g, 0) }).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		expectJobSucceeded(ctx, resizedNamespace, name)
		Expect(outcome(logOf(ctx, resizedNamespace, learner))).To(Equal(serialOutcome(ctx, "--seed=3")))
	})
})
