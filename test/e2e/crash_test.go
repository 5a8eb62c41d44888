// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// trainingPods is the number of pods of the demo's three jobs: a coordinator, two collectors, an
// aggregator and its DDP learner; a coordinator; five workers.
const trainingPods = 5 + 1 + 5

var _ = Describe("Operator, webhooks and di-server that are killed while jobs train", func() {
	It("come back, and the jobs reach their target with the pods that they had", func(ctx SpecContext) {
		jobs, err := run.Submit(ctx)
		Expect(err).NotTo(HaveOccurred())
		var before map[types.UID]string
		Eventually(func(g Gomega) {
			before = podsIn(ctx, g, metav1.NamespaceDefault, labels.Everything())
			g.Expect(before).To(HaveLen(trainingPods))
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())

		By("killing both operators, both replicas of the webhooks and one of the two servers")
		kill(ctx, labels.Set{"app.kubernetes.io/component": "operator"}, 2)
		kill(ctx, labels.Set{"app.kubernetes.io/component": "webhook"}, 2)
		kill(ctx, labels.Set{"app.kubernetes.io/component": "server"}, 1)

		results, err := run.Follow(ctx, jobs)
		Expect(err).NotTo(HaveOccurred())
		for _, result := range results {
			Expect(result.Phase).To(Equal(v2alpha1.JobSucceeded), result.Name)
		}
		for uid, name := range podsIn(ctx, Default, metav1.NamespaceDefault, labels.Everything()) {
			Expect(before).To(HaveKey(uid), "pod %s was made by no need", name)
		}
	})
})

// podsIn returns the names of the pods of a namespace by UID.
func podsIn(ctx SpecContext, g Gomega, namespace string, selector labels.Selector) map[types.UID]string {
	GinkgoHelper()
	pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	g.Expect(err).NotTo(HaveOccurred())
	found := make(map[types.UID]string, len(pods.Items))
	for i := range pods.Items {
		found[pods.Items[i].UID] = pods.Items[i].Name
	}
	return found
}

// killKueue kills Kueue at once. Its Deployment starts it again.
func killKueue(ctx SpecContext) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "delete", "pod", "--namespace=kueue-system", "--selector=control-plane=controller-manager", "--grace-period=0", "--force")
}

// runKueue starts or stops Kueue, whose webhooks must admit every pod.
func runKueue(ctx SpecContext, runs bool) {
	GinkgoHelper()
	replicas := map[bool]string{true: "1", false: "0"}[runs]
	kubectlUntilDone(ctx, "scale", "deployment/kueue-controller-manager", "--namespace=kueue-system", "--replicas="+replicas)
	kubectlUntilDone(ctx, "rollout", "status", "deployment/kueue-controller-manager", "--namespace=kueue-system", waiting())
}

// configureKueue adds a section to Kueue's configuration until the end of the spec.
func configureKueue(ctx SpecContext, section string) {
	GinkgoHelper()
	const configMap, key = "kueue-manager-config", "controller_manager_config.yaml"
	found, err := core.CoreV1().ConfigMaps("kueue-system").Get(ctx, configMap, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	write := func(ctx SpecContext, text string) {
		GinkgoHelper()
		patch, err := json.Marshal(map[string]any{"data": map[string]string{key: text}})
		Expect(err).NotTo(HaveOccurred())
		kubectlUntilDone(ctx, "patch", "configmap/"+configMap, "--namespace=kueue-system", "--patch="+string(patch))
		runKueue(ctx, false)
		runKueue(ctx, true)
	}
	before := found.Data[key]
	Expect(before).NotTo(BeEmpty())
	DeferCleanup(func(ctx SpecContext) { write(ctx, before) })
	write(ctx, before+"\n"+section+"\n")
}

// kill kills count of the programs' pods at once, without a grace period.
func kill(ctx SpecContext, component labels.Set, count int) {
	GinkgoHelper()
	now := int64(0)
	var pods []string
	// Those that were killed before may not be recreated yet.
	Eventually(func(g Gomega) {
		pods = slices.Collect(maps.Values(podsIn(ctx, g, names.SystemNamespace, component.AsSelector())))
		g.Expect(len(pods)).To(BeNumerically(">=", count))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
	for _, name := range pods[:count] {
		Expect(core.CoreV1().Pods(names.SystemNamespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})).To(Succeed())
	}
}
