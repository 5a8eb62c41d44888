// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/set"

	"opendilab.org/di-orchestrator/internal/names"
)

// budgetNamespace is the namespace of the jobs with spec.disruption.
const budgetNamespace = "budgets"

var _ = Describe("Jobs with spec.disruption", Ordered, Label(twoNodes), func() {
	led := &survivor{namespace: budgetNamespace, name: "led", wanted: map[names.ReplicaType]int{
		names.ReplicaTypeCoordinator: 1, names.ReplicaTypeCollector: 2, names.ReplicaTypeLearner: 1,
	}}
	const (
		ranked     = "ranked"
		collectors = "collector"
		heldAfter  = 3
	)
	selectors := map[string]string{led.name: names.LabelDIJobName + "=" + led.name, ranked: names.LabelJob + "=" + ranked}
	place := func(role string, spec map[string]any) {
		if role == collectors {
			preferNode(spec, lostNode)
			return
		}
		stayOn(spec, stayingNode)
	}

	BeforeAll(func(ctx SpecContext) {
		makeNamespace(ctx, budgetNamespace)
		led.submit(ctx, place)
		submitRanked(ctx, budgetNamespace, ranked, heldAfter, place)
		led.expectRecovered(ctx, nil)
		for name := range selectors {
			kubectlOutput(ctx, "patch", dijobs, name, "--namespace="+budgetNamespace, "--type=merge", `--patch={"spec":{"disruption":{"maxUnavailable":1}}}`)
		}
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			led.explain(ctx)
			explain(ctx, budgetNamespace, []string{"get", "poddisruptionbudgets", "-o=yaml"}, []string{"get", "pods", "-o=wide"}, []string{"get", "events"})
		}
	})

	for name, selector := range selectors {
		It("lose one replica at a time when their node is drained: "+name, func(ctx SpecContext) {
			var replicas int32
			Eventually(func(g Gomega) {
				status := getJob(ctx, g, budgetNamespace, name).Status
				replicas = status.Replicas
				g.Expect(status.ReadyReplicas).To(Equal(replicas))
				budget, err := core.PolicyV1().PodDisruptionBudgets(budgetNamespace).Get(ctx, name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(budget.Spec.MinAvailable.IntVal).To(Equal(replicas - 1))
				g.Expect(budget.Status.DisruptionsAllowed).To(Equal(int32(1)))
				g.Expect(budget.Status.Conditions).To(ContainElement(And(
					HaveField("Type", policyv1.DisruptionAllowedCondition), HaveField("Status", metav1.ConditionTrue))))
			}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
			lost, _ := podsOn(ctx, Default, budgetNamespace, lostNode, selector)
			Expect(len(lost)).To(BeNumerically(">", 1), "the pods of job %s on node %s", name, lostNode)

			By("draining node " + lostNode)
			fewest := watchAvailable(ctx, budgetNamespace, selector, int(replicas))
			DeferCleanup(func(ctx SpecContext) { kubectlOutput(ctx, "uncordon", lostNode) })
			kubectlOutput(ctx, "drain", lostNode, "--pod-selector="+selector, "--ignore-daemonsets", waiting())
			Eventually(func(g Gomega) {
				g.Expect(getJob(ctx, g, budgetNamespace, name).Status.ReadyReplicas).To(Equal(replicas))
				living, going := podsOn(ctx, g, budgetNamespace, lostNode, selector)
				g.Expect(append(living, going...)).To(BeEmpty())
			}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
			Expect(fewest()).To(Equal(int(replicas)-1), "the fewest available replicas of job %s", name)
		})
	}
})

// watchAvailable counts the available pods of a selector, which are all at first. The returned function stops
// that and returns the fewest.
func watchAvailable(ctx SpecContext, namespace, selector string, all int) func() int {
	GinkgoHelper()
	watcher, err := core.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: selector})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watcher.Stop)
	result := make(chan int, 1)
	go func() {
		available, fewest, isComplete := set.New[types.UID](), all, false
		for event := range watcher.ResultChan() {
			pod, isPod := event.Object.(*corev1.Pod)
			if !isPod {
				continue
			}
			available.Delete(pod.UID)
			if event.Type != watch.Deleted && isReady(pod) {
				available.Insert(pod.UID)
			}
			if isComplete = isComplete || available.Len() == all; isComplete {
				fewest = min(fewest, available.Len())
			}
		}
		result <- fewest
	}()
	return func() int {
		watcher.Stop()
		return <-result
	}
}
