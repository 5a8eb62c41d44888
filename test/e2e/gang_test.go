// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// gangs labels specs of Kubernetes' own gangs, which need feature gates. The cluster of
	// hack/cluster has them.
	gangs = "gang"
	// gangsLong labels those that CI leaves out.
	gangsLong = "gang-long"
	// gangNamespace is the namespace of the jobs.
	gangNamespace = "gangs"
	// seat is an extended resource. Each pod requests one, and a node has seatsOfNode. A gang does
	// not fit on one node, and the capacity that one gang leaves fits a pod of the other.
	seat        = "example.com/seat"
	seatsOfNode = 3
	gangPods    = 5
)

// The capacity is enough for only one of two gangs at a time. The first gang runs until the spec
// allows its learner to continue.
var _ = Describe("Gangs that do not fit together", Ordered, Label(gangs, twoNodes), func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(kubectlOutput(ctx, "api-resources", "--api-group=scheduling.k8s.io", "--output=name")).
			To(ContainSubstring("podgroups.scheduling.k8s.io"), "the cluster's programs run without what gangs need")
		makeNamespace(ctx, gangNamespace)
		for _, node := range []string{stayingNode, lostNode} {
			setSeats(ctx, node, seatsOfNode)
			DeferCleanup(setSeats, node, 0)
		}
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, gangNamespace, []string{"get", dijobs, "-o=yaml"}, []string{"get", "podgroups", "-o=yaml"},
				[]string{"get", "pods", "-o=wide"}, []string{"get", "events", "--sort-by=.lastTimestamp"}, []string{"describe", "nodes"})
		}
	})

	It("wait whole until there is room for them", func(ctx SpecContext) {
		submit(ctx, gangJob("first"))
		expectHeldGang(ctx, "first")

		By("submitting a second gang, for which one seat is left")
		submit(ctx, gangJob("second"))
		expectWaitingGang(ctx, "second", gangPods)
		letGangGo(ctx, "first", func() { expectNoneBound(ctx, "second") })

		By("waiting until the second gang has the seats")
		expectHeldGang(ctx, "second")
		letGangGo(ctx, "second", nil)
	})

	It("do not hold seats from each other when both come at once", func(ctx SpecContext) {
		both := []string{"left", "right"}
		var submitting sync.WaitGroup
		for _, name := range both {
			submitting.Go(func() {
				defer GinkgoRecover()
				submit(ctx, gangJob(name))
			})
		}
		submitting.Wait()

		By("waiting until one of them has the seats")
		var winner string
		Eventually(func(g Gomega) {
			placed := slices.DeleteFunc(slices.Clone(both), func(name string) bool {
				return gangCondition(getJob(ctx, g, gangNamespace, name)).Status != corev1.ConditionTrue
			})
			g.Expect(placed).To(HaveLen(1))
			winner = placed[0]
		}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		loser := both[1-slices.Index(both, winner)]
		expectHeldGang(ctx, winner)
		expectWaitingGang(ctx, loser, gangPods)
		letGangGo(ctx, winner, func() { expectNoneBound(ctx, loser) })

		By("waiting until the other has them")
		expectHeldGang(ctx, loser)
		letGangGo(ctx, loser, nil)
	})

	// Another gang would take the seat of the replica if it fit then: three seats are free meanwhile.
	It("take back a replica that is recreated alone", func(ctx SpecContext) {
		submitSeated(ctx, seatedGang{name: "holder", collectors: 3})
		expectSeated(ctx, "holder", 4)
		submitSeated(ctx, seatedGang{name: "waiter", collectors: 3})
		expectWaitingGang(ctx, "waiter", 4)
		before := uidsOf(podsOfGang(ctx, Default, "holder"))
		lost := names.WorkerPod("holder", "collector", 1)
		kubectlUntilDone(ctx, "delete", "pod", lost, "--namespace="+gangNamespace, waiting())
		expectSeated(ctx, "holder", 4)
		for name, uid := range uidsOf(podsOfGang(ctx, Default, "holder")) {
			if name == lost {
				Expect(uid).NotTo(Equal(before[name]))
			} else {
				Expect(uid).To(Equal(before[name]), name)
			}
		}
		expectNoneBound(ctx, "waiter")
		deleteGang(ctx, "holder")
		expectSeated(ctx, "waiter", 4)
		deleteGang(ctx, "waiter")
	})

	It("start in the size that a job gets while it waits", func(ctx SpecContext) {
		submitSeated(ctx, seatedGang{name: "large", collectors: 2 * seatsOfNode})
		expectWaitingGang(ctx, "large", 2*seatsOfNode+1)
		kubectlUntilDone(ctx, "scale", dijobs+"/large", "--namespace="+gangNamespace, "--replicas=3")
		expectSeated(ctx, "large", 4)

		By("growing it while it runs, which moves no pod")
		before := uidsOf(podsOfGang(ctx, Default, "large"))
		kubectlUntilDone(ctx, "scale", dijobs+"/large", "--namespace="+gangNamespace, "--replicas=5")
		expectSeated(ctx, "large", 6)
		after := uidsOf(podsOfGang(ctx, Default, "large"))
		for name, uid := range before {
			Expect(after).To(HaveKeyWithValue(name, uid))
		}
		kubectlUntilDone(ctx, "scale", dijobs+"/large", "--namespace="+gangNamespace, "--replicas=1")
		expectSeated(ctx, "large", 2)
		deleteGang(ctx, "large")
	})

	It("start with as many pods as the job needs at once", func(ctx SpecContext) {
		submitSeated(ctx, seatedGang{name: "partial", collectors: 2 * seatsOfNode, gang: "{minAvailable: 4}"})
		Eventually(func(g Gomega) {
			g.Expect(seatedPods(ctx, g, "partial")).To(Equal(2 * seatsOfNode))
			g.Expect(gangCondition(getJob(ctx, g, gangNamespace, "partial")).Status).To(Equal(corev1.ConditionTrue))
		}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		deleteGang(ctx, "partial")
	})

	It("wait while they are suspended, and start whole when they are resumed", func(ctx SpecContext) {
		submitSeated(ctx, seatedGang{name: "paused", collectors: 4})
		expectSeated(ctx, "paused", 5)
		kubectlOutput(ctx, "patch", dijobs, "paused", "--namespace="+gangNamespace, "--type=merge", `--patch={"spec":{"suspend":true}}`)
		submitSeated(ctx, seatedGang{name: "guest", collectors: 4})
		expectSeated(ctx, "guest", 5)
		kubectlOutput(ctx, "patch", dijobs, "paused", "--namespace="+gangNamespace, "--type=merge", `--patch={"spec":{"suspend":false}}`)
		expectWaitingGang(ctx, "paused", 5)
		deleteGang(ctx, "guest")
		expectSeated(ctx, "paused", 5)
		deleteGang(ctx, "paused")
	})

	It("leave no PodGroup behind", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			left, err := callKubectl(ctx, "get", "podgroups", "--namespace="+gangNamespace, "--output=name")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(left).To(BeEmpty())
		}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	})
})

// 100 gangs of two to five pods compete for six seats.
var _ = Describe("Many gangs", Ordered, Label(gangsLong, twoNodes), func() {
	It("all run to their end, and none is left waiting", func(ctx SpecContext) {
		makeNamespace(ctx, gangNamespace)
		for _, node := range []string{stayingNode, lostNode} {
			setSeats(ctx, node, seatsOfNode)
			DeferCleanup(setSeats, node, 0)
		}
		const count = 100
		begun := time.Now()
		for i := range count {
			submitSeated(ctx, seatedGang{name: fmt.Sprintf("gang-%d", i), collectors: 1 + i%4, command: `exit, "0"`})
		}
		Eventually(func(g Gomega) {
			ended := kubectlOutput(ctx, "get", dijobs, "--namespace="+gangNamespace, `--output=jsonpath={range .items[*]}{.status.phase}{"\n"}{end}`)
			g.Expect(strings.Count(ended, "Failed")).To(BeZero())
			g.Expect(strings.Count(ended, "Succeeded")).To(Equal(count))
		}).WithContext(ctx).WithTimeout(40 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
		AddReportEntry(fmt.Sprintf("%d gangs of 2 to 5 pods had ended on %d seats after %s", count, 2*seatsOfNode, time.Since(begun).Round(time.Second)))
		Expect(kubectlOutput(ctx, "get", "podgroups", "--namespace="+gangNamespace, "--output=name")).To(BeEmpty())
	})
})

// seatedGang is a gang of a learner and collectors, each with a seat.
type seatedGang struct {
	name       string
	collectors int
	// gang is the value of spec.scheduling.gang, by default {}. command is what the pods do, by default wait.
	gang, command string
}

func submitSeated(ctx SpecContext, s seatedGang) {
	GinkgoHelper()
	applyContent(ctx, gangNamespace, fmt.Sprintf(`
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: %[1]s}
spec:
  scheduling: {gang: %[3]s}
  elastic: {task: collector, minReplicas: 1, maxReplicas: 16}
  tasks:
  - {type: learner, name: learner, replicas: 1, template: &pod {spec: {terminationGracePeriodSeconds: 1, containers: [
      {name: di-container, image: cartpole:dev, imagePullPolicy: IfNotPresent, command: [/cartpole], args: [%[4]s],
       resources: {requests: {cpu: 1m, %[5]s: "1"}, limits: {%[5]s: "1"}}}]}}}
  - {type: collector, name: collector, replicas: %[2]d, template: *pod}
`, s.name, s.collectors, cmp.Or(s.gang, "{}"), cmp.Or(s.command, "wait"), seat))
}

// seatedPods returns how many pods of a gang are bound to nodes.
func seatedPods(ctx SpecContext, g Gomega, name string) (bound int) {
	GinkgoHelper()
	for _, pod := range podsOfGang(ctx, g, name) {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			bound++
		}
	}
	return bound
}

// expectSeated waits until a gang runs with exactly so many pods.
func expectSeated(ctx SpecContext, name string, pods int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(podsOfGang(ctx, g, name)).To(HaveLen(pods))
		g.Expect(seatedPods(ctx, g, name)).To(Equal(pods))
		job := getJob(ctx, g, gangNamespace, name)
		g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
		g.Expect(job.Status.ReadyReplicas).To(BeEquivalentTo(pods))
		g.Expect(gangCondition(job).Status).To(Equal(corev1.ConditionTrue))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

func deleteGang(ctx SpecContext, name string) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "delete", dijobs+"/"+name, "--namespace="+gangNamespace, waiting())
}

// setSeats sets the number of seats of a node; 0 removes them.
func setSeats(ctx SpecContext, node string, count int) {
	var quantity any
	if count > 0 {
		quantity = strconv.Itoa(count)
	}
	seats := map[string]any{seat: quantity}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": seats, "allocatable": seats}})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(ctx context.Context) error {
		_, err := core.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), "seats of node "+node)
}

// gangJob returns the worker-led example as a gang. Each of its pods requests a seat. Its training
// pauses after the first round.
func gangJob(name string) *unstructured.Unstructured {
	GinkgoHelper()
	job := readManifest("v2alpha1.yaml")
	job.SetName(name)
	job.SetNamespace(gangNamespace)
	Expect(unstructured.SetNestedMap(job.Object, map[string]any{"gang": map[string]any{}}, "spec", "scheduling")).To(Succeed())
	for task, spec := range podSpecs(job) {
		for _, kind := range []string{"requests", "limits"} {
			Expect(unstructured.SetNestedField(mainContainer(spec), "1", "resources", kind, seat)).To(Succeed())
		}
		if task == "learner" {
			addArgs(spec, "--min-round=100ms", "--pause-after=1")
		}
	}
	return job
}

func gangCondition(job *v2alpha1.DIJob) v2alpha1.DIJobCondition {
	at := slices.IndexFunc(job.Status.Conditions, func(c v2alpha1.DIJobCondition) bool { return c.Type == v2alpha1.ConditionGangScheduled })
	if at < 0 {
		return v2alpha1.DIJobCondition{}
	}
	return job.Status.Conditions[at]
}

func gangLearner(name string) driver {
	return driver{gangNamespace, names.WorkerPod(name, "learner", 0), names.DefaultWorkerPort}
}

func podsOfGang(ctx SpecContext, g Gomega, name string) []corev1.Pod {
	GinkgoHelper()
	pods, err := core.CoreV1().Pods(gangNamespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelJob + "=" + name})
	g.Expect(err).NotTo(HaveOccurred())
	return pods.Items
}

// expectHeldGang waits until all pods of a gang are running and its training pauses.
func expectHeldGang(ctx SpecContext, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		job := getJob(ctx, g, gangNamespace, name)
		g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
		g.Expect(job.Status.ReadyReplicas).To(Equal(int32(gangPods)))
		g.Expect(job.Status.Restarts).To(BeZero())
		g.Expect(gangCondition(job).Status).To(Equal(corev1.ConditionTrue))
		g.Expect(gangLearner(name).round(ctx, g)).To(Equal(1))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// expectWaitingGang waits until so many pods of a gang exist, the scheduler has tried each, and the job
// reports why it waits.
func expectWaitingGang(ctx SpecContext, name string, count int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		condition := gangCondition(getJob(ctx, g, gangNamespace, name))
		g.Expect(condition.Status).To(Equal(corev1.ConditionFalse))
		g.Expect(condition.Reason).To(Equal(corev1.PodReasonUnschedulable))
		g.Expect(condition.Message).To(ContainSubstring("Insufficient " + seat))
		pods := podsOfGang(ctx, g, name)
		g.Expect(pods).To(HaveLen(count))
		for i := range pods {
			g.Expect(pods[i].Spec.NodeName).To(BeEmpty(), pods[i].Name)
			g.Expect(pods[i].Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.PodScheduled), HaveField("Status", corev1.ConditionFalse),
			)), pods[i].Name)
		}
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	expectNoneBound(ctx, name)
}

// expectNoneBound expects that no pod of a waiting gang is bound to a node.
func expectNoneBound(ctx SpecContext, name string) {
	GinkgoHelper()
	for _, pod := range podsOfGang(ctx, Default, name) {
		Expect(pod.Spec.NodeName).To(BeEmpty(), fmt.Sprintf("pod %s of a gang that waits", pod.Name))
		Expect(pod.Status.ContainerStatuses).To(BeEmpty(), pod.Name)
	}
}

// letGangGo lets a gang train until it has succeeded. It first calls before, if given.
func letGangGo(ctx SpecContext, name string, before func()) {
	GinkgoHelper()
	By("letting gang " + name + " train to its end")
	if before != nil {
		before()
	}
	Eventually(func(g Gomega) { gangLearner(name).pause(ctx, g, 0) }).
		WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	expectJobSucceeded(ctx, gangNamespace, name)
}
