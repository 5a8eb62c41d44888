// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/names"
)

// autoscale labels specs in which a job changes its size or resources for minutes. CI excludes them.
const autoscale = "autoscale"

// ratioNamespace is the namespace of the job whose collectors follow its learner.
const ratioNamespace = "ratio"

var _ = Describe("A job with a ratio rule", Ordered, Serial, Label(autoscale), func() {
	Context("that the operator resizes", Ordered, func() { followsItsLearner("ratio", false) })
	Context("that the allocator places", Ordered, Label("ratio-placed"), func() { followsItsLearner("ratio-placed", true) })
})

// followsItsLearner has the specs of a job whose collectors follow its learner, and that the allocator places if it is
// preemptible. A collector makes about 4 units a second. The learner takes 8, then 16, then 8.
func followsItsLearner(name string, isPreemptible bool) {
	learner := names.WorkerPod(name, "learner", 0)
	leads := driver{ratioNamespace, learner, names.DefaultWorkerPort}

	// work is what the learner did.
	type work struct {
		BusySeconds    float64 `json:"busy_seconds"`
		StarvedSeconds float64 `json:"starved_seconds"`
	}
	read := func(ctx SpecContext, g Gomega) work {
		GinkgoHelper()
		raw, err := leads.request(core.CoreV1().RESTClient().Get(), "stream").DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		var got work
		g.Expect(json.Unmarshal(raw, &got)).To(Succeed())
		return got
	}
	// starved is the share of the last 30 seconds that the learner waited.
	starved := func(ctx SpecContext, g Gomega) float64 {
		GinkgoHelper()
		before := read(ctx, g)
		// The window of the measurement, not a wait for an effect.
		<-time.After(30 * time.Second)
		after := read(ctx, g)
		busy, waited := after.BusySeconds-before.BusySeconds, after.StarvedSeconds-before.StarvedSeconds
		g.Expect(busy + waited).To(BeNumerically(">", 0))
		return waited / (busy + waited)
	}
	setSpeed := func(ctx SpecContext, perSecond int) {
		GinkgoHelper()
		Eventually(func() error {
			return leads.request(core.CoreV1().RESTClient().Put(), "speed").Body(fmt.Appendf(nil, `{"perSecond":%d}`, perSecond)).Do(ctx).Error()
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	}
	collectors := func(ctx SpecContext, g Gomega) int32 {
		job := getJob(ctx, g, ratioNamespace, name)
		if isPreemptible {
			return int32(len(job.Status.Allocation)) - 1
		}
		return ptr.Deref(job.Spec.Elastic.Replicas, 0)
	}

	BeforeAll(func(ctx SpecContext) {
		makeNamespace(ctx, ratioNamespace)
		job := preemptibleJob(ratioNamespace, name, GinkgoT().TempDir())
		Expect(unstructured.SetNestedField(job.Object, isPreemptible, "spec", "preemptible")).To(Succeed())
		Expect(unstructured.SetNestedMap(job.Object, map[string]any{
			"task": "collector", "minReplicas": int64(1), "maxReplicas": int64(8), "replicas": int64(1), "onResize": "Continue",
		}, "spec", "elastic")).To(Succeed())
		Expect(unstructured.SetNestedMap(job.Object, map[string]any{"ratio": map[string]any{}}, "spec", "autoscale")).To(Succeed())
		for _, task := range []string{"collector", "learner"} {
			addArgs(podSpecs(job)[task], "--stream=8", "--min-unit=250ms")
		}
		submit(ctx, job)
		DeferCleanup(func(ctx SpecContext) {
			kubectlOutput(ctx, "delete", dijobs, name, "--namespace="+ratioNamespace, waiting())
		})
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, ratioNamespace, []string{"get", "pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "events"}, []string{"logs", learner})
			explain(ctx, names.SystemNamespace, []string{"logs", "--selector=" + operatorPods, "--tail=60", "--prefix"})
		}
	})

	It("gets the collectors that its learner needs", func(ctx SpecContext) {
		Eventually(func(g Gomega) { g.Expect(collectors(ctx, g)).To(BeNumerically(">=", 2)) }).
			WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Succeed())
	})

	It("starves less than 5 % within 5 minutes when its learner becomes twice as fast", func(ctx SpecContext) {
		setSpeed(ctx, 16)
		Eventually(func(g Gomega) { g.Expect(starved(ctx, g)).To(BeNumerically("<", 0.05)) }).
			WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Succeed())
		Expect(collectors(ctx, Default)).To(BeNumerically(">=", 4))
	})

	It("gives collectors back within 10 minutes when its learner becomes half as fast", func(ctx SpecContext) {
		before := collectors(ctx, Default)
		setSpeed(ctx, 8)
		Eventually(func(g Gomega) { g.Expect(collectors(ctx, g)).To(BeNumerically("<=", (before+1)/2+1)) }).
			WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Succeed())
	})

	It("describes each change and why", func(ctx SpecContext) {
		shown := kubectlOutput(ctx, "describe", dijobs, name, "--namespace="+ratioNamespace)
		Expect(shown).To(MatchRegexp(`the consumer takes .* samples/s, a producer makes`))
		if !isPreemptible {
			Expect(shown).To(MatchRegexp(`Autoscaled .*collector \d+ -> \d+: `))
		}
		Expect(conditionOf(getJob(ctx, Default, ratioNamespace, name), "Autoscaling")).To(BeEquivalentTo("True"))
	})
}
