// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	grpoNamespace = "grpo"
	// grpoSteps are the steps of each training, as in the manifest.
	grpoSteps = 400
	// grpoReward is what each training reaches. It begins below 0.2, and the best is 1. Most reach 0.97, but some
	// give one of the ten digits up, and stop at 0.9.
	grpoReward = 0.85
)

var (
	grpoLine    = regexp.MustCompile(`(?m)^step=(\d+) reward=(\S+) staleness=(\S+) .* dropped=(\d+) helped=(\d+)$`)
	grpoResumed = regexp.MustCompile(`(?m)^resumed after step=(\d+)$`)
)

// grpoProgress is the last line of the log of a first trainer.
type grpoProgress struct {
	Step, Reward, Staleness, Helped float64
}

// The image has Debian's numpy, a tenth of PyTorch, so that CI can run these. Both jobs train at once.
var _ = Describe("A language model trained by GRPO", Ordered, Label("grpo"), func() {
	const steady, disturbed = "steady", "disturbed"

	BeforeAll(func(ctx SpecContext) {
		build := exec.CommandContext(ctx, "make", "image-grpo-load")
		build.Dir = testkit.Root()
		output, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		makeNamespace(ctx, grpoNamespace)
		submitGRPO(ctx, steady, nil)
		// Without the rule, so that only the test changes the number of generators.
		submitGRPO(ctx, disturbed, func(job *unstructured.Unstructured) {
			unstructured.RemoveNestedField(job.Object, "spec", "autoscale")
			Expect(unstructured.SetNestedField(job.Object, int64(4), "spec", "elastic", "replicas")).To(Succeed())
		})
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, grpoNamespace, []string{"get", "dijobs,pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "events"},
				[]string{"logs", "--selector=diengine/operator", "--prefix", "--tail=60"})
		}
	})

	It("has the gradient of its objective", func(ctx SpecContext) {
		script, err := os.ReadFile(filepath.Join("testdata", "grpo_gradient.py"))
		Expect(err).NotTo(HaveOccurred())
		expectStep(ctx, steady, 10)
		kubectlOutput(ctx, "exec", "--namespace="+grpoNamespace, names.WorkerPod(steady, "generator", 0), "--", "python3", "-c", string(script))
	})

	It("continues when a generator crashes, and when half of the generators are lost", func(ctx SpecContext) {
		expectStep(ctx, disturbed, 20)
		crashed := podUID(ctx, names.WorkerPod(disturbed, "generator", 0))
		// A default handler of Python ends the process with an error.
		kubectlOutput(ctx, "exec", "--namespace="+grpoNamespace, names.WorkerPod(disturbed, "generator", 0), "--",
			"python3", "-c", "import os, signal; os.kill(1, signal.SIGINT)")
		expectReplaced(ctx, names.WorkerPod(disturbed, "generator", 0), crashed)
		loseGRPO(ctx, names.WorkerPod(disturbed, "generator", 1), names.WorkerPod(disturbed, "generator", 2))
		expectStep(ctx, disturbed, progressOf(ctx, Default, disturbed).Step+20)
	})

	It("shares its steps with trainers that join", func(ctx SpecContext) {
		kubectlOutput(ctx, "patch", dijobs, disturbed, "--namespace="+grpoNamespace, "--type=json",
			`--patch=[{"op":"replace","path":"/spec/tasks/0/replicas","value":2}]`)
		Eventually(func(g Gomega) { g.Expect(progressOf(ctx, g, disturbed).Helped).To(BeNumerically(">", 0)) }).
			WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
	})

	It("resumes from its checkpoint when the first trainer is killed", func(ctx SpecContext) {
		before := progressOf(ctx, Default, disturbed).Step
		Expect(before).To(BeNumerically("<", grpoSteps))
		loseGRPO(ctx, names.WorkerPod(disturbed, "trainer", 0))
		expectJobSucceeded(ctx, grpoNamespace, disturbed)
		log := logOf(ctx, grpoNamespace, names.WorkerPod(disturbed, "trainer", 0))
		AddReportEntry(disturbed, log)
		found := grpoResumed.FindStringSubmatch(log)
		Expect(found).NotTo(BeNil(), log)
		Expect(number(found[1])).To(And(BeNumerically(">=", before), BeNumerically("<", grpoSteps)))
		Expect(progressOf(ctx, Default, disturbed)).To(And(HaveField("Step", BeNumerically("==", grpoSteps)), HaveField("Reward", BeNumerically(">", grpoReward))))
		Expect(getJob(ctx, Default, grpoNamespace, disturbed).Status.Restarts).To(BeZero())
	})

	It("reaches its reward, and has as many generators as its trainer takes", func(ctx SpecContext) {
		expectJobSucceeded(ctx, grpoNamespace, steady)
		AddReportEntry(steady, logOf(ctx, grpoNamespace, names.WorkerPod(steady, "trainer", 0)))
		last := progressOf(ctx, Default, steady)
		Expect(last.Step).To(BeNumerically("==", grpoSteps))
		Expect(last.Reward).To(BeNumerically(">", grpoReward))
		Expect(last.Staleness).To(BeNumerically("<=", 4))
		job := getJob(ctx, Default, grpoNamespace, steady)
		Expect(string(job.Status.Profilings.Raw)).To(And(ContainSubstring(`"reward"`), ContainSubstring(`"staleness"`),
			ContainSubstring(`"samples_per_second"`), ContainSubstring(fmt.Sprintf(`"done":%d`, grpoSteps))))
		Expect(kubectlOutput(ctx, "describe", dijobs, steady, "--namespace="+grpoNamespace)).To(MatchRegexp(`Autoscaled.*generator 2 -> \d`))
	})
})

// submitGRPO creates a job after a change. It has checkpoints of its own.
func submitGRPO(ctx SpecContext, name string, change func(*unstructured.Unstructured)) {
	GinkgoHelper()
	job := readManifest("../grpo/grpo.yaml")
	job.SetName(name)
	job.SetNamespace(grpoNamespace)
	volumes, _, err := unstructured.NestedSlice(job.Object, "spec", "volumes")
	Expect(err).NotTo(HaveOccurred())
	volume, ok := volumes[0].(map[string]any)
	Expect(ok).To(BeTrue())
	Expect(unstructured.SetNestedField(volume, filepath.Join(GinkgoT().TempDir(), name), "hostPath", "path")).To(Succeed())
	Expect(unstructured.SetNestedSlice(job.Object, volumes, "spec", "volumes")).To(Succeed())
	if change != nil {
		change(job)
	}
	submit(ctx, job)
}

// progressOf returns the last line of the log of the first trainer, or zeros before it has one.
func progressOf(ctx SpecContext, g Gomega, job string) grpoProgress {
	GinkgoHelper()
	log, err := core.CoreV1().Pods(grpoNamespace).GetLogs(names.WorkerPod(job, "trainer", 0), &corev1.PodLogOptions{}).DoRaw(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	lines := grpoLine.FindAllStringSubmatch(string(log), -1)
	if len(lines) == 0 {
		return grpoProgress{}
	}
	last := lines[len(lines)-1]
	return grpoProgress{number(last[1]), number(last[2]), number(last[3]), number(last[5])}
}

// expectStep waits until a training has taken a number of steps.
func expectStep(ctx SpecContext, job string, step float64) {
	GinkgoHelper()
	Eventually(func(g Gomega) { g.Expect(progressOf(ctx, g, job).Step).To(BeNumerically(">=", step)) }).
		WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

func podUID(ctx SpecContext, name string) types.UID {
	GinkgoHelper()
	pod, err := core.CoreV1().Pods(grpoNamespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod.UID
}

// loseGRPO kills pods at once, so that none can save, and waits until all have been replaced.
func loseGRPO(ctx SpecContext, pods ...string) {
	GinkgoHelper()
	lost := map[string]types.UID{}
	for _, pod := range pods {
		lost[pod] = podUID(ctx, pod)
		Expect(core.CoreV1().Pods(grpoNamespace).Delete(ctx, pod, *metav1.NewDeleteOptions(0))).To(Succeed())
	}
	for pod, uid := range lost {
		expectReplaced(ctx, pod, uid)
	}
}

// expectReplaced waits until a pod of the same name runs.
func expectReplaced(ctx SpecContext, name string, lost types.UID) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pod, err := core.CoreV1().Pods(grpoNamespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.UID).NotTo(Equal(lost))
		g.Expect(isReady(pod)).To(BeTrue())
	}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}
