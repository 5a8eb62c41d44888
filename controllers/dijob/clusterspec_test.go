// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"encoding/json"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("A job whose frameworks read a cluster spec", func() {
	It("tells all that run the same, also when it was resized and when it has restarted", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submit(ctx, v2alpha1.DIJobSpec{
			ClusterSpec: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow, v2alpha1.ClusterSpecTorch},
			Tasks: []v2alpha1.Task{
				{Type: v2alpha1.TaskTypeNone, Name: "chief", Template: podTemplate()},
				{Type: v2alpha1.TaskTypeNone, Name: "worker", Replicas: ptr.To(int32(2)), Template: podTemplate()},
			},
			Elastic: &v2alpha1.Elastic{Task: "worker"},
			FailurePolicy: &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{
				{Action: v2alpha1.FailurePolicyRestartReplica, Tasks: []string{"worker"}},
			}},
		})
		s.expectCluster(ctx, 2)

		By("growing")
		Expect(s.kubectl(ctx, "scale", "dijob/job", "--replicas=4")).To(Succeed())
		s.expectCluster(ctx, 4)
		Expect(s.job(ctx).Status.Reschedules).To(BeEquivalentTo(1))

		By("restarting a replica alone")
		before := s.seats(ctx)
		s.end(ctx, "job-worker-1", 1)
		s.expectCluster(ctx, 4)
		Expect(s.seats(ctx)).To(And(HaveKeyWithValue("job-chief-0", before["job-chief-0"]), HaveKeyWithValue("job-worker-2", before["job-worker-2"])))
		Expect(s.seats(ctx)["job-worker-1"]).NotTo(Equal(before["job-worker-1"]))
	})
})

// expectCluster runs a job of a chief and the given number of workers, and compares the cluster specs of
// its pods.
func (s *space) expectCluster(ctx context.Context, workers int) {
	GinkgoHelper()
	s.start(ctx)
	domain := ".di-job." + s.job(ctx).Namespace + ".svc.cluster.local"
	var addresses []string
	for index := range workers {
		addresses = append(addresses, "job-worker-"+strconv.Itoa(index)+domain+":22270")
	}
	pods := s.pods(ctx)
	Expect(pods).To(HaveLen(1 + workers))
	for i := range pods {
		told := variablesOf(ctx, &pods[i])
		task, index, rank := "chief", 0, 0
		if pods[i].Labels[names.LabelTaskName] == "worker" {
			var err error
			index, err = strconv.Atoi(pods[i].Annotations[names.AnnotationTaskRank])
			Expect(err).NotTo(HaveOccurred())
			task, rank = "worker", index+1
		}
		Expect(told).To(And(
			HaveKeyWithValue("MASTER_ADDR", "job-chief-0"+domain), HaveKeyWithValue("MASTER_PORT", "10314"),
			HaveKeyWithValue("WORLD_SIZE", strconv.Itoa(1+workers)), HaveKeyWithValue("RANK", strconv.Itoa(rank)),
		), pods[i].Name)
		config := specs.Must(json.Marshal(map[string]any{
			"cluster": map[string][]string{"chief": {"job-chief-0" + domain + ":22270"}, "worker": addresses},
			"task":    map[string]any{"type": task, "index": index}, "environment": "cloud",
		}))
		Expect(told["TF_CONFIG"]).To(MatchJSON(config), pods[i].Name)
	}
}

// variablesOf returns the environment of a pod's first container as its program reads it.
func variablesOf(ctx context.Context, pod *corev1.Pod) map[string]string {
	GinkgoHelper()
	return specs.Must(testkit.Environment(ctx, shared.api, pod, 0))
}
