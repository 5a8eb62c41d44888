// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

// survivalNamespace is the namespace of the jobs that lose their pods.
const survivalNamespace = "survival"

// curve returns the arguments that determine the curve of the training. It has 69 rounds. A longer
// training can detect more losses.
func curve() []string {
	return []string{"--seed=1", "--target=400"}
}

// The client of these jobs is strict, as the deployed one is. It ends the job on any error status
// of di-server, and on any URL that vanishes from its list when the pod behind it is gone.
var _ = Describe("Jobs whose client forgives nothing", Ordered, func() {
	// plain has a learner of one process. unit has a unit with two GPUs: an aggregator and a DDP
	// learner.
	plain := &survivor{namespace: survivalNamespace, name: "plain", gpus: 0, wanted: map[names.ReplicaType]int{
		names.ReplicaTypeCoordinator: 1, names.ReplicaTypeCollector: 2, names.ReplicaTypeLearner: 1,
	}}
	unit := &survivor{namespace: survivalNamespace, name: "unit", gpus: 2, wanted: map[names.ReplicaType]int{
		names.ReplicaTypeCoordinator: 1, names.ReplicaTypeCollector: 2, names.ReplicaTypeAggregator: 1, names.ReplicaTypeDDPLearner: 1,
	}}
	jobs := []*survivor{plain, unit}

	BeforeAll(func(ctx SpecContext) {
		makeNamespace(ctx, survivalNamespace)
		kubectlOutput(ctx, "apply", "-f", filepath.Join(testkit.Root(), "examples", "cartpole", "aggregatorconfig.yaml"))
		for _, job := range jobs {
			job.submit(ctx)
		}
		for _, job := range jobs {
			job.expectRecovered(ctx, nil)
			job.expectGoingOn(ctx)
			job.expectListed(ctx)
		}
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			for _, job := range jobs {
				job.explain(ctx)
			}
		}
	})

	losses := []struct {
		name string
		of   map[*survivor]loss
	}{
		{"a collector whose process crashes", map[*survivor]loss{
			plain: crashed(names.ReplicaTypeCollector), unit: crashed(names.ReplicaTypeCollector),
		}},
		{"a collector that is deleted, and one that is evicted", map[*survivor]loss{
			plain: deleted(names.ReplicaTypeCollector), unit: evicted(names.ReplicaTypeCollector),
		}},
		{"a learner or a DDP learner whose process crashes", map[*survivor]loss{
			plain: crashed(names.ReplicaTypeLearner), unit: crashed(names.ReplicaTypeDDPLearner),
		}},
		{"a learner or a DDP learner that is deleted", map[*survivor]loss{
			plain: deleted(names.ReplicaTypeLearner), unit: deleted(names.ReplicaTypeDDPLearner),
		}},
		{"a learner that is evicted, and an aggregator whose process crashes", map[*survivor]loss{
			plain: evicted(names.ReplicaTypeLearner), unit: crashed(names.ReplicaTypeAggregator),
		}},
		{"an aggregator that is deleted, and all collectors at once", map[*survivor]loss{
			plain: deleted(names.ReplicaTypeCollector, names.ReplicaTypeCollector), unit: deleted(names.ReplicaTypeAggregator),
		}},
		{"the coordinator, deleted", map[*survivor]loss{
			plain: deleted(names.ReplicaTypeCoordinator), unit: deleted(names.ReplicaTypeCoordinator),
		}},
		{"replicas once more, which the new coordinator knows as its own", map[*survivor]loss{
			plain: deleted(names.ReplicaTypeCollector, names.ReplicaTypeLearner),
			unit:  deleted(names.ReplicaTypeCollector, names.ReplicaTypeDDPLearner),
		}},
	}
	for _, step := range losses {
		It("survive the loss of "+step.name, func(ctx SpecContext) {
			lost := map[*survivor][]corev1.Pod{}
			for job, inflict := range step.of {
				lost[job] = inflict(ctx, job)
			}
			for job := range step.of {
				job.expectRecovered(ctx, lost[job])
				job.expectGoingOn(ctx)
				job.expectListed(ctx)
			}
		})
	}

	It("survive that replicas are given up and asked for by hand", func(ctx SpecContext) {
		for _, job := range jobs {
			job.letGoOn(ctx)
			job.giveUp(ctx, "--collectors=1")
			job.wanted[names.ReplicaTypeCollector]--
		}
		for _, job := range jobs {
			job.expectRecovered(ctx, nil)
			job.expectGoingOn(ctx)
			job.expectListed(ctx)
			job.dist(ctx, "--add", "--collectors=2")
			job.wanted[names.ReplicaTypeCollector] += 2
		}
		for _, job := range jobs {
			job.expectRecovered(ctx, nil)
			job.expectGoingOn(ctx)
			job.expectListed(ctx)
		}
	})

	It("survive that replicas in use are replaced by hand", func(ctx SpecContext) {
		replaced := map[*survivor][]corev1.Pod{}
		for job, role := range map[*survivor]names.ReplicaType{plain: names.ReplicaTypeLearner, unit: names.ReplicaTypeAggregator} {
			pods := job.choose(ctx, []names.ReplicaType{names.ReplicaTypeCollector, role})
			job.letGoOn(ctx)
			job.replace(ctx, pods)
			replaced[job] = pods
		}
		for _, job := range jobs {
			job.expectRecovered(ctx, replaced[job])
			job.expectGoingOn(ctx)
			job.expectListed(ctx)
		}
	})

	It("survive a rollout of the operator and of di-server", func(ctx SpecContext) {
		before := map[*survivor][]corev1.Pod{}
		for _, job := range jobs {
			before[job] = job.pods(ctx, Default)
			job.letGoOn(ctx)
		}
		Expect(run.Install(ctx)).To(Succeed())
		for _, job := range jobs {
			job.expectRecovered(ctx, nil)
			job.expectGoingOn(ctx)
			Expect(uids(job.pods(ctx, Default))).To(Equal(uids(before[job])), "the pods of job %s", job.name)
		}
	})

	It("reach their target by the curve of their seed", func(ctx SpecContext) {
		for _, job := range jobs {
			job.release(ctx)
		}
		want := serialOutcome(ctx, curve()...)
		for _, job := range jobs {
			job.expectSucceeded(ctx, want)
		}
	})

	It("leave nothing over but the coordinator", func(ctx SpecContext) {
		for _, job := range jobs {
			Eventually(func(g Gomega) {
				pods := job.pods(ctx, g)
				g.Expect(pods).To(HaveLen(1))
				g.Expect(pods[0].Name).To(Equal(names.CoordinatorPod(job.name)))
				g.Expect(pods[0].Status.Phase).To(Equal(corev1.PodSucceeded))
				services, err := core.CoreV1().Services(survivalNamespace).List(ctx, job.selector())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(services.Items).To(BeEmpty())
			}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		}
	})

	It("are gone without a trace when they are deleted", func(ctx SpecContext) {
		kubectlOutput(ctx, "delete", dijobs, "--namespace="+survivalNamespace, "--all", waiting())
		Eventually(func() string {
			return kubectlOutput(ctx, "get", dijobs+",memberships,pods,services", "--namespace="+survivalNamespace, "-o=name")
		}).WithTimeout(patience).WithPolling(time.Second).Should(BeEmpty())
	})
})

// dijobs is the resource, for uses where its version does not matter.
const dijobs = "dijobs." + v2alpha1.GroupName

// loss disrupts pods of a job and returns them in their previous state.
type loss func(ctx SpecContext, job *survivor) []corev1.Pod

// each returns a loss that disrupts pods of the given roles in the same way.
func each(roles []names.ReplicaType, inflict func(ctx SpecContext, pod *corev1.Pod)) loss {
	return func(ctx SpecContext, job *survivor) []corev1.Pod {
		GinkgoHelper()
		lost := job.choose(ctx, roles)
		job.letGoOn(ctx)
		for i := range lost {
			inflict(ctx, &lost[i])
			AddReportEntry("lost", lost[i].Name)
		}
		return lost
	}
}

// deleted deletes pods without a grace period, which resembles the failure of a node.
func deleted(roles ...names.ReplicaType) loss {
	return each(roles, func(ctx SpecContext, pod *corev1.Pod) {
		GinkgoHelper()
		now := int64(0)
		Expect(core.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})).To(Succeed())
	})
}

// evicted evicts pods, as a drain of their node does.
func evicted(roles ...names.ReplicaType) loss {
	return each(roles, func(ctx SpecContext, pod *corev1.Pod) {
		GinkgoHelper()
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
		Expect(core.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)).To(Succeed())
	})
}

// crashed kills the process of a pod, which the kubelet restarts.
func crashed(roles ...names.ReplicaType) loss {
	return func(ctx SpecContext, job *survivor) []corev1.Pod {
		GinkgoHelper()
		each(roles, func(ctx SpecContext, pod *corev1.Pod) {
			GinkgoHelper()
			kubectlOutput(ctx, "exec", "--namespace="+pod.Namespace, pod.Name, "--", "/cartpole", "crash")
			Eventually(func(g Gomega) {
				found, err := core.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(restarts(found)).To(BeNumerically(">", restarts(pod)), "restarts of %s", pod.Name)
			}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		})(ctx, job)
		return nil // the pods are still there
	}
}

// serialOutcome returns the result of a training in one process.
func serialOutcome(ctx SpecContext, args ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "go", append([]string{"run", "./test/workload/cartpole", "serial"}, args...)...)
	command.Dir = testkit.Root()
	output, err := command.Output()
	Expect(err).NotTo(HaveOccurred())
	return outcome(string(output))
}

// outcome returns the result that a training printed, without parts that differ from run to run.
func outcome(log string) string {
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "result=") {
			continue
		}
		var kept []string
		for field := range strings.FieldsSeq(line) {
			switch key, _, _ := strings.Cut(field, "="); key {
			case "elapsed", "collectors", "learners":
			default:
				kept = append(kept, field)
			}
		}
		return strings.Join(kept, " ")
	}
	return ""
}
