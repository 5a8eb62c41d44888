// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

const adoptedUnit = trainer + "-aggregator-7hc88"

// newAdopted creates a job whose collector and unit an earlier release created. The names of its DDP
// learners do not follow from the aggregator's name.
func newAdopted(ctx context.Context, namespace string) *v2alpha1.DIJob {
	GinkgoHelper()
	job := newTrainer(ctx, namespace)
	list := membershipOf(ctx, job)
	list.Spec.Members = []v2alpha1.Member{
		{Slot: "collector-rz8jc", Task: v2alpha1.TaskTypeCollector, PodName: trainer + "-collector-rz8jc"},
		{
			Slot: "aggregator-7hc88", Task: v2alpha1.TaskTypeLearner, PodName: adoptedUnit,
			DDPGPUs: []int32{2, 1}, DDPPodNames: []string{trainer + "-ddp-learner-zzzzz", trainer + "-ddp-learner-bbbbb"},
		},
	}
	Expect(api.live.Update(ctx, list)).To(Succeed())
	inSlot := func(slot string, role names.ReplicaType, name string, port int32) {
		pod := createPod(ctx, job, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: names.ReplicaLabels(job.Name, role, name), Annotations: map[string]string{names.AnnotationSlot: slot},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: names.Container, Image: "di", Ports: []corev1.ContainerPort{{Name: names.Port, ContainerPort: port}},
			}}},
		})
		cacheKnows(ctx, pod)
	}
	inSlot("collector-rz8jc", names.ReplicaTypeCollector, trainer+"-collector-rz8jc", 1000)
	inSlot("aggregator-7hc88", names.ReplicaTypeAggregator, adoptedUnit, 2000)
	inSlot("aggregator-7hc88", names.ReplicaTypeDDPLearner, trainer+"-ddp-learner-zzzzz", 3000)
	inSlot("aggregator-7hc88", names.ReplicaTypeDDPLearner, trainer+"-ddp-learner-bbbbb", 4000)
	cacheKnows(ctx, list)
	return job
}

var _ = Describe("A job whose replicas an earlier release made", func() {
	It("is listed by the names and ports that its pods have", func(ctx SpecContext) {
		namespace, url := specs.Namespace(ctx, api.live), newServer(api.cached)
		newAdopted(ctx, namespace)
		_, answer := call(ctx, http.MethodGet, fmt.Sprintf("%s/v1alpha1/replicas?namespace=%s&coordinator=%s-coordinator", url, namespace, trainer), "")
		Expect(answer).To(And(
			ContainSubstring(`"collectors":["%s-collector-rz8jc.%s:1000"]`, trainer, namespace),
			ContainSubstring(`"learners":["%s.%s:2000"]`, adoptedUnit, namespace),
		))
		_, answer = call(ctx, http.MethodGet, fmt.Sprintf("%s/v1alpha1/replicas?namespace=%s&aggregator=%s", url, namespace, adoptedUnit), "")
		Expect(answer).To(ContainSubstring(`"learners":["%[1]s-ddp-learner-zzzzz.%[2]s:3000","%[1]s-ddp-learner-zzzzz.%[2]s:3001","%[1]s-ddp-learner-bbbbb.%[2]s:4000"]`,
			trainer, namespace))
	})

	It("replaces a unit whose DDP learner is reported", func(ctx SpecContext) {
		namespace, url := specs.Namespace(ctx, api.live), newServer(api.cached)
		job := newAdopted(ctx, namespace)
		status, answer := call(ctx, http.MethodPost, url+"/v1alpha1/replicas/failed", fmt.Sprintf(
			`{"namespace":%q,"coordinator":%q,"learners":[%q]}`, namespace, adoptedUnit, trainer+"-ddp-learner-bbbbb"))
		Expect(status).To(Equal(http.StatusOK), answer)
		Expect(urlsIn(answer, names.ReplicaTypeDDPLearner)).To(HaveLen(3))
		Expect(answer).NotTo(Or(ContainSubstring("zzzzz"), ContainSubstring("bbbbb")))
		Expect(membershipOf(ctx, job).Spec.Members[1].FailureReports).To(BeEquivalentTo(1))

		By("answering the old aggregator as before")
		cacheKnows(ctx, &v2alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: job.Name}})
		_, answer = call(ctx, http.MethodGet, fmt.Sprintf("%s/v1alpha1/replicas?namespace=%s&aggregator=%s", url, namespace, adoptedUnit), "")
		Expect(urlsIn(answer, names.ReplicaTypeDDPLearner)).To(HaveExactElements(
			HavePrefix(trainer+"-ddp-learner-zzzzz"), HavePrefix(trainer+"-ddp-learner-zzzzz"), HavePrefix(trainer+"-ddp-learner-bbbbb")))
	})
})
