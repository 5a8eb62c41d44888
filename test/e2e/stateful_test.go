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
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

var _ = Describe("A job of parameter servers", Ordered, Label(autoscale), func() {
	const namespace, name = "stateful", "params"
	server := func(index int32) string { return names.WorkerPod(name, "ps", index) }
	worker := func(index int32) string { return names.WorkerPod(name, "worker", index) }

	// template runs a role of the workload.
	template := func(args ...string) v2alpha1.RawObject {
		encoded, err := json.Marshal(args)
		Expect(err).NotTo(HaveOccurred())
		return v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"spec":{"terminationGracePeriodSeconds":10,`+
			`"containers":[{"name":"di-container","image":"cartpole:dev","imagePullPolicy":"IfNotPresent","args":%s,`+
			`"ports":[{"name":"di-port","containerPort":22270}],`+
			`"readinessProbe":{"httpGet":{"path":"/healthz","port":"di-port"},"periodSeconds":1},`+
			`"resources":{"requests":{"cpu":"20m","memory":"32Mi"}}}]}}`, encoded)}}
	}
	pushed := func(ctx SpecContext, g Gomega, index int32) (count int64) {
		raw, err := driver{namespace, worker(index), names.DefaultWorkerPort}.request(core.CoreV1().RESTClient().Get(), "pushed").DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal(raw, &count)).To(Succeed())
		return count
	}
	uidOf := func(ctx SpecContext, g Gomega, pod string) types.UID {
		found, err := core.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return found.UID
	}
	// settled waits until exactly the ranks are members, and training continues.
	settled := func(ctx SpecContext, active string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			job := getJob(ctx, g, namespace, name)
			g.Expect(job.Status.Scaling).NotTo(BeNil())
			g.Expect(job.Status.Scaling.Membership).NotTo(BeNil())
			g.Expect(job.Status.Scaling.Membership.Active).To(Equal(active))
			g.Expect(job.Status.Scaling.Membership.Leaving).To(BeEmpty())
			g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		for index := range int32(2) {
			var before int64
			Eventually(func(g Gomega) { before = pushed(ctx, g, index) }).WithTimeout(patience).Should(Succeed())
			Eventually(func(g Gomega) { g.Expect(pushed(ctx, g, index)).To(BeNumerically(">", before+10)) }).WithTimeout(patience).Should(Succeed())
		}
	}

	It("loses no update and restarts no worker while a server is migrated and half of them are removed", func(ctx SpecContext) {
		makeNamespace(ctx, namespace)
		DeferCleanup(func(ctx SpecContext) {
			if CurrentSpecReport().Failed() {
				explain(ctx, namespace, []string{"get", "pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "scaleplans", "-o=yaml"},
					[]string{"get", "events"}, []string{"logs", server(0)}, []string{"logs", server(1)}, []string{"logs", worker(0)})
			}
		})
		submit(ctx, &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v2alpha1.DIJobSpec{
			BackoffLimit:   ptr.To(int32(0)),
			CleanPodPolicy: v2alpha1.CleanPodPolicyNone,
			SuccessPolicy:  &v2alpha1.SuccessPolicy{TargetTasks: []string{"worker"}},
			Tasks: []v2alpha1.Task{
				{Name: "worker", Type: v2alpha1.TaskTypeNone, Replicas: ptr.To(int32(2)), Template: template("pusher", "--wait", "--interval=10ms")},
				{Name: "ps", Type: v2alpha1.TaskTypeNone, Replicas: ptr.To(int32(4)), Template: template("paramserver"), Drain: &v2alpha1.Drain{}},
			},
		}})
		settled(ctx, "0-5")
		workers := []types.UID{uidOf(ctx, Default, worker(0)), uidOf(ctx, Default, worker(1))}

		By("migrating a server")
		before := uidOf(ctx, Default, server(1))
		submit(ctx, &v2alpha1.ScalePlan{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "migrate"},
			Spec:       v2alpha1.ScalePlanSpec{Job: name, Migrate: []v2alpha1.PodMigration{{Pod: server(1)}}},
		})
		Eventually(func(g Gomega) { g.Expect(uidOf(ctx, g, server(1))).NotTo(Equal(before)) }).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		settled(ctx, "0-5")

		By("halving the number of servers")
		job := getJob(ctx, Default, namespace, name)
		Expect(api.Patch(ctx, job, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/tasks/1/replicas","value":2}]`)))).To(Succeed())
		settled(ctx, "0-3")

		By("comparing what the workers pushed with what the servers counted")
		for index := range int32(2) {
			Eventually(func() error {
				return driver{namespace, worker(index), names.DefaultWorkerPort}.request(core.CoreV1().RESTClient().Post(), "finish").Do(ctx).Error()
			}).WithTimeout(patience).Should(Succeed())
		}
		expectJobSucceeded(ctx, namespace, name)
		for index := range int32(2) {
			Expect(logOf(ctx, namespace, worker(index))).To(MatchRegexp(`(?m)^result=complete pushed=(\d+) counted=`))
		}
		Expect([]types.UID{uidOf(ctx, Default, worker(0)), uidOf(ctx, Default, worker(1))}).To(Equal(workers), "no worker restarted")
		Expect(getJob(ctx, Default, namespace, name).Status.Restarts).To(BeZero())
		Expect(kubectlOutput(ctx, "get", "events", "--namespace="+namespace, "-o=jsonpath={.items[*].reason}")).To(ContainSubstring(v2alpha1.ReasonDrained))
		var pods corev1.PodList
		Expect(api.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
		Expect(pods.Items).To(HaveLen(4))
	})
})
