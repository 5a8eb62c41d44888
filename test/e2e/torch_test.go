// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	torchNamespace = "torch"
	// ddpIterations are the iterations of each training. The reward grows up to about the 25th.
	ddpIterations = 40
	// disturbedAfter is the iteration after which a training is disturbed, while its reward grows.
	disturbedAfter = 8
	// torchPatience is the timeout of a training with PyTorch on a busy machine.
	torchPatience = 10 * time.Minute
)

var (
	resumedAfter = regexp.MustCompile(`(?m)^resumed after iteration=(\d+)$`)
	wholeCurve   = regexp.MustCompile(`(?m)^curve=(.+)$`)
	learned      = regexp.MustCompile(`(?m)^(?:iteration|update)=(\d+) reward=(\S+)`)
)

// These specs build the image of PyTorch from Debian's packages, and load it as the local cluster requires.
var _ = Describe("A trainer with PyTorch", Ordered, Serial, Label("torch"), func() {
	// curves are the mean rewards of undisturbed trainings by seed, from 1.
	var curves [3][]float64

	BeforeAll(func(ctx SpecContext) {
		build := exec.CommandContext(ctx, "make", "image-torch-load")
		build.Dir = testkit.Root()
		output, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		makeNamespace(ctx, torchNamespace)
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, torchNamespace, []string{"get", "dijobs,pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "events"},
				[]string{"logs", "--selector=diengine/operator", "--prefix", "--tail=40"}, []string{"logs", "--selector=dijob-name", "--prefix", "--tail=40"})
		}
	})

	It("has a curve of rewards for each seed", func(ctx SpecContext) {
		for i := range curves {
			submitDDP(ctx, fmt.Sprintf("seed-%d", i+1), i+1)
		}
		for i := range curves {
			name := fmt.Sprintf("seed-%d", i+1)
			expectTrained(ctx, name)
			curves[i] = curveOf(logOf(ctx, torchNamespace, learnerOf(name)))
			AddReportEntry(name, fmt.Sprint(curves[i]))
			Expect(mean(curves[i][:3])).To(BeNumerically("<", 60), name)
			Expect(mean(curves[i][ddpIterations-5:])).To(BeNumerically(">", 150), name)
		}
		Expect(string(getJob(ctx, Default, torchNamespace, "seed-1").Status.Profilings.Raw)).To(And(ContainSubstring(`"reward"`), ContainSubstring(`"done":40`)))
	})

	It("that is preempted while it learns has the curve of its seed", func(ctx SpecContext) {
		const name = "preempted"
		submitDDP(ctx, name, 1)
		expectIteration(ctx, name)
		exited := watchExit(ctx, torchNamespace, learnerOf(name))
		Expect(core.CoreV1().Pods(torchNamespace).Delete(ctx, names.WorkerPod(name, "learner", 1), metav1.DeleteOptions{})).To(Succeed())
		Expect(exited()).To(Equal(int32(exitPreempted)), "the exit code of the replica that saves")
		expectTrained(ctx, name)
		log := logOf(ctx, torchNamespace, learnerOf(name))
		AddReportEntry(name, fmt.Sprint("resumed after ", resumptionOf(log), ": ", curveOf(log)))
		Expect(curveOf(log)).To(Equal(curves[0]))
	})

	It("that loses a replica for good while it learns has the curve of its seed within the noise", func(ctx SpecContext) {
		const name = "shrunk"
		submitDDP(ctx, name, 1)
		expectIteration(ctx, name)
		kubectlOutput(ctx, "patch", dijobs, name, "--namespace="+torchNamespace, "--type=merge", `--patch={"spec":{"elastic":{"maxReplicas":1}}}`)
		expectTrained(ctx, name)
		log := logOf(ctx, torchNamespace, learnerOf(name))
		Expect(log).To(ContainSubstring("replicas=1 "))
		resumed, got := resumptionOf(log), curveOf(log)
		means := make([]float64, 0, len(curves))
		for _, curve := range curves {
			means = append(means, mean(curve[resumed:]))
		}
		AddReportEntry(name, fmt.Sprint("resumed after ", resumed, ": ", got, ", means of the seeds from there: ", means))
		Expect(got[:resumed]).To(Equal(curves[0][:resumed]))
		Expect(mean(got[resumed:])).To(BeNumerically("~", means[0], 3*deviation(means)))
	})

	It("gets its actors from di-server, and learns from what they send", func(ctx SpecContext) {
		const name = "cartpole-impala"
		job := readManifest("../torch/impala.yaml")
		job.SetNamespace(torchNamespace)
		submit(ctx, job)
		expectTrained(ctx, name)
		log := logOf(ctx, torchNamespace, names.CoordinatorPod(name))
		AddReportEntry(name, log)
		Expect(log).To(ContainSubstring("granted=2 actors: " + name + "-collector-"))
		lines := learned.FindAllStringSubmatch(log, -1)
		Expect(number(lines[0][2])).To(BeNumerically("<", 60))
		Expect(number(lines[len(lines)-1][2])).To(BeNumerically(">", 150))
	})
})

func learnerOf(name string) string { return names.WorkerPod(name, "learner", 0) }

// submitDDP creates a job of two replicas, with checkpoints of its own.
func submitDDP(ctx SpecContext, name string, seed int) {
	GinkgoHelper()
	job := readManifest("../torch/ddp.yaml")
	job.SetName(name)
	job.SetNamespace(torchNamespace)
	volumes, _, err := unstructured.NestedSlice(job.Object, "spec", "volumes")
	Expect(err).NotTo(HaveOccurred())
	volume, ok := volumes[0].(map[string]any)
	Expect(ok).To(BeTrue())
	Expect(unstructured.SetNestedField(volume, filepath.Join(GinkgoT().TempDir(), name), "hostPath", "path")).To(Succeed())
	Expect(unstructured.SetNestedSlice(job.Object, volumes, "spec", "volumes")).To(Succeed())
	addArgs(podSpecs(job)["learner"], fmt.Sprintf("--seed=%d", seed), fmt.Sprintf("--iterations=%d", ddpIterations))
	submit(ctx, job)
}

// expectIteration waits until a training may be disturbed.
func expectIteration(ctx SpecContext, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		log, err := core.CoreV1().Pods(torchNamespace).GetLogs(learnerOf(name), &corev1.PodLogOptions{}).DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(log)).To(ContainSubstring(fmt.Sprintf("iteration=%d ", disturbedAfter)))
	}).WithTimeout(torchPatience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

func expectTrained(ctx SpecContext, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(getJob(ctx, g, torchNamespace, name).Status.Phase).To(BeEquivalentTo("Succeeded"))
	}).WithTimeout(torchPatience).WithPolling(time.Second).Should(Succeed())
}

// resumptionOf returns the iteration after which a training continued from its checkpoint.
func resumptionOf(log string) int {
	GinkgoHelper()
	found := resumedAfter.FindStringSubmatch(log)
	Expect(found).NotTo(BeNil(), log)
	resumed := int(number(found[1]))
	Expect(resumed).To(And(BeNumerically(">=", disturbedAfter), BeNumerically("<", ddpIterations)))
	return resumed
}

// curveOf returns the rewards of all iterations, which a training prints at its end.
func curveOf(log string) []float64 {
	GinkgoHelper()
	found := wholeCurve.FindStringSubmatch(log)
	Expect(found).NotTo(BeNil(), log)
	var curve []float64
	for reward := range strings.SplitSeq(found[1], ",") {
		curve = append(curve, number(reward))
	}
	Expect(curve).To(HaveLen(ddpIterations))
	return curve
}

func number(text string) float64 {
	GinkgoHelper()
	value, err := strconv.ParseFloat(text, 64)
	Expect(err).NotTo(HaveOccurred())
	return value
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

// deviation returns the standard deviation of a sample.
func deviation(values []float64) float64 {
	middle, sum := mean(values), 0.0
	for _, value := range values {
		sum += (value - middle) * (value - middle)
	}
	return math.Sqrt(sum / float64(len(values)-1))
}
