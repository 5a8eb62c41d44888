// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	// twoNodes labels specs that need the two nodes of hack/cluster. Exclude them elsewhere with
	// -ginkgo.label-filter='!two-nodes'.
	twoNodes = "two-nodes"
	// power labels specs that cut the power of a node and wait until the node is lost. They take
	// long, and CI excludes them.
	power = "power"
	// stayingNode and lostNode are the names of the two nodes.
	stayingNode = "local"
	lostNode    = "local-2"
	// outOfService is the taint with which an administrator marks a node as shut down.
	outOfService = corev1.TaintNodeOutOfService + "=nodeshutdown:" + string(corev1.TaintEffectNoExecute)
)

// restoreNode restores the power of a node and waits for the pods on it that belong to no job. It
// is not a Ginkgo helper, so the line of a failure shows the step.
func restoreNode(ctx SpecContext, name string) {
	By("giving node " + name + " its power back")
	output, err := callCluster(ctx, "node", "start", name)
	Expect(err).NotTo(HaveOccurred(), func() string { return diagnostics(ctx, output)() })
	By("waiting until it is ready, and taking the taint off it")
	Eventually(func(g Gomega) {
		node, err := core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue),
		)))
		given := len(node.Spec.Taints)
		// The taint may never have been set.
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		if len(node.Spec.Taints) < given {
			_, err = core.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
		}
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), diagnostics(ctx, "node "+name+" is ready"))
	By("waiting until the operator and di-server are at full strength")
	expectRolledOut(ctx)
	// The API server may still have an open connection to an operator on this node. The first call
	// over it fails.
	By("waiting until jobs are admitted")
	expectAdmitting(ctx)
}

// clusterOutput runs the program of the local cluster.
func clusterOutput(ctx SpecContext, args ...string) string {
	GinkgoHelper()
	output, err := callCluster(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

func callCluster(ctx SpecContext, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", append([]string{"run", "."}, args...)...)
	command.Dir = filepath.Join(testkit.Root(), "hack", "cluster")
	output, err := command.CombinedOutput()
	return string(output), err
}

// stayOn binds pods to one node.
func stayOn(spec map[string]any, node string) {
	spec["nodeSelector"] = map[string]any{corev1.LabelHostname: node}
}

// preferNode makes pods prefer a node while it exists, and get evicted soon when it is lost.
func preferNode(spec map[string]any, node string) {
	spec["affinity"] = map[string]any{"nodeAffinity": map[string]any{
		"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
			"weight": int64(100),
			"preference": map[string]any{"matchExpressions": []any{map[string]any{
				"key": corev1.LabelHostname, "operator": string(corev1.NodeSelectorOpIn), "values": []any{node},
			}}},
		}},
	}}
	var tolerations []any
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerations = append(tolerations, map[string]any{
			"key": taint, "operator": string(corev1.TolerationOpExists),
			"effect": string(corev1.TaintEffectNoExecute), "tolerationSeconds": int64(2),
		})
	}
	spec["tolerations"] = tolerations
}

// podsOn returns the pods of a namespace on a node, by whether they are terminating.
func podsOn(ctx SpecContext, g Gomega, namespace, node, selector string) (living, going []corev1.Pod) {
	GinkgoHelper()
	pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + node, LabelSelector: selector,
	})
	g.Expect(err).NotTo(HaveOccurred())
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			living = append(living, pods.Items[i])
		} else {
			going = append(going, pods.Items[i])
		}
	}
	return living, going
}

// lossNamespace is the namespace of the jobs whose node is lost.
const lossNamespace = "loss"

var _ = Describe("Jobs that lose a node", Ordered, Label(twoNodes, power), func() {
	// led has a strict coordinator. All its collectors are on the node that is lost. So are the
	// collectors of ranked, which is worker-led.
	led := &survivor{namespace: lossNamespace, name: "led", wanted: map[names.ReplicaType]int{
		names.ReplicaTypeCoordinator: 1, names.ReplicaTypeCollector: 2, names.ReplicaTypeLearner: 1,
	}}
	const (
		ranked     = "ranked"
		heldAfter  = 3
		collectors = "collector"
	)
	leads := driver{lossNamespace, names.WorkerPod(ranked, "learner", 0), names.DefaultWorkerPort}
	ledPods, rankedPods := names.LabelDIJobName+"="+led.name, names.LabelJob+"="+ranked

	place := func(role string, spec map[string]any) {
		if role == collectors {
			preferNode(spec, lostNode)
			return
		}
		stayOn(spec, stayingNode)
		if role == string(names.ReplicaTypeCoordinator) {
			addArgs(spec, "--min-round=100ms")
		}
	}

	BeforeAll(func(ctx SpecContext) {
		makeNamespace(ctx, lossNamespace)
		DeferCleanup(restoreNode, lostNode)
		led.submit(ctx, place)
		submitRanked(ctx, lossNamespace, ranked, heldAfter, place)
		led.expectRecovered(ctx, nil)
		led.expectGoingOn(ctx)
		led.expectListed(ctx)
		Eventually(func(g Gomega) {
			g.Expect(leads.round(ctx, g)).To(Equal(heldAfter))
			g.Expect(getJob(ctx, g, lossNamespace, ranked).Status.ReadyReplicas).To(Equal(int32(5)))
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			led.explain(ctx)
			explain(ctx, lossNamespace, []string{"get", "nodes"}, []string{"get", "pods", "-A", "-o=wide"},
				[]string{"get", dijobs, ranked, "-o=yaml"}, []string{"logs", leads.pod, "--tail=40"}, []string{"get", "events"})
		}
	})

	It("replace by themselves what a coordinator has lost, and wait with what must keep its name", func(ctx SpecContext) {
		lost, _ := podsOn(ctx, Default, lossNamespace, lostNode, ledPods)
		Expect(lost).To(HaveLen(2), "the collectors of job led")
		By("stopping node " + lostNode)
		clusterOutput(ctx, "node", "stop", lostNode)
		// It cannot until it has collectors again.
		Eventually(func(g Gomega) { leads.pause(ctx, g, heldAfter+1) }).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		By("waiting until the collectors of job led are replaced")
		Eventually(func(g Gomega) {
			living, going := podsOn(ctx, g, lossNamespace, lostNode, ledPods)
			g.Expect(living).To(BeEmpty())
			g.Expect(uids(going)).To(Equal(uids(lost)), "nobody is there to end these")
			here, _ := podsOn(ctx, g, lossNamespace, stayingNode, ledPods)
			g.Expect(here).To(HaveLen(len(led.pods(ctx, g)) - len(lost)))
			found := map[names.ReplicaType]int{}
			for i := range here {
				if roleOf(&here[i]) == names.ReplicaTypeCoordinator {
					led.checkCoordinator(&here[i])
				}
				g.Expect(isReady(&here[i])).To(BeTrue(), here[i].Name)
				found[roleOf(&here[i])]++
			}
			g.Expect(found).To(Equal(led.wanted))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		By("letting job led go on with them")
		led.expectGoingOn(ctx)
		led.expectListed(ctx)

		_, going := podsOn(ctx, Default, lossNamespace, lostNode, rankedPods)
		Expect(going).To(HaveLen(3), "the collectors of job ranked")
		here, _ := podsOn(ctx, Default, lossNamespace, stayingNode, rankedPods)
		Expect(here).To(HaveLen(2), "the other workers of job ranked")
	})

	It("replace what must keep its name when the node is given up", func(ctx SpecContext) {
		kubectlOutput(ctx, "taint", "node", lostNode, outOfService, "--overwrite")
		Eventually(func(g Gomega) {
			here, _ := podsOn(ctx, g, lossNamespace, stayingNode, rankedPods)
			g.Expect(here).To(HaveLen(5))
			job := getJob(ctx, g, lossNamespace, ranked)
			g.Expect(job.Status.ReadyReplicas).To(Equal(int32(5)))
			g.Expect(job.Status.Restarts).To(Equal(int32(0)), "a lost node is no failure of the job")
			g.Expect(leads.round(ctx, g)).To(Equal(heldAfter + 1))
			living, going := podsOn(ctx, g, lossNamespace, lostNode, "")
			g.Expect(living).To(BeEmpty())
			g.Expect(going).To(BeEmpty(), "what was lost is gone")
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		Expect(kubectlOutput(ctx, "get", "node", lostNode, `-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}`)).
			To(Equal("Unknown"), "the node is still away")
	})

	It("reach their target by the curve of their seed", func(ctx SpecContext) {
		led.release(ctx)
		Eventually(func(g Gomega) { leads.pause(ctx, g, 0) }).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		led.expectSucceeded(ctx, serialOutcome(ctx, curve()...))
		expectJobSucceeded(ctx, lossNamespace, ranked)
		Expect(outcome(logOf(ctx, lossNamespace, leads.pod))).To(Equal(serialOutcome(ctx, "--seed=3")))
	})
})
