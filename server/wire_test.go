// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// gpuTemplate returns a pod template whose main container requests two of a resource.
func gpuTemplate(gpu corev1.ResourceName) string {
	return strings.Replace(template, `"image":"di"`, fmt.Sprintf(`"image":"di","resources":{"limits":{%q:2}}`, string(gpu)), 1)
}

// newNode creates a node with the given number of GPUs, counted by a separate resource.
func newNode(ctx context.Context, gpu corev1.ResourceName, gpus string) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	Expect(api.live.Create(ctx, node)).To(Succeed())
	node.Status.Allocatable = corev1.ResourceList{gpu: resource.MustParse(gpus)}
	Expect(api.live.Status().Update(ctx, node)).To(Succeed())
	cacheKnows(ctx, node)
	DeferCleanup(func(ctx SpecContext) { Expect(api.live.Delete(ctx, node)).To(Succeed()) })
}

// counting returns an option that counts GPUs by the resource.
func counting(gpu corev1.ResourceName) func(*server.Options) {
	return func(options *server.Options) { options.GPUResource = gpu }
}

var _ = Describe("the v1 protocol, to the letter", func() {
	var namespace, base string

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		base = newServer(api.cached) + "/v1alpha1/replicas"
		newAggregatorConfig(ctx)
	})

	body := func(rest string) string {
		return fmt.Sprintf(`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator",%s}`, namespace, rest)
	}
	// ask sends a request that succeeds, and returns the answer.
	ask := func(ctx context.Context, method, url, content string) string {
		GinkgoHelper()
		status, answer := call(ctx, method, url, content)
		Expect(status).To(Equal(http.StatusOK), answer)
		return answer
	}

	DescribeTable("cuts a learner by the usual number of GPUs of a node",
		func(ctx SpecContext, gpu corev1.ResourceName, nodes []string, gpus int, cut []int32) {
			for _, node := range nodes {
				newNode(ctx, gpu, node)
			}
			job := newTrainer(ctx, namespace)
			ask(ctx, http.MethodPost, newServer(api.cached, counting(gpu))+replicas, body(fmt.Sprintf(`"learners":{"replicas":1,"gpus":%d}`, gpus)))
			Expect(membershipOf(ctx, job).Spec.Members[0].DDPGPUs).To(Equal(cut))
		},
		Entry("the larger of two as frequent", corev1.ResourceName("b.test/gpu"), []string{"4", "4", "4", "8", "8", "8"}, 10, []int32{8, 2}),
	)

	DescribeTable("decides on an aggregator by the GPUs that the learner gets",
		func(ctx SpecContext, learners string, cut []int32) {
			const gpu = corev1.ResourceName("f.test/gpu")
			spec := coordinatorLed()
			spec.Tasks[2].Template = jobs.Raw(gpuTemplate(gpu))
			job := newJob(ctx, namespace, trainer, spec)
			newMembership(ctx, job)
			newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
			ask(ctx, http.MethodPost, newServer(api.cached, counting(gpu))+replicas, body(`"learners":`+learners))
			Expect(membershipOf(ctx, job).Spec.Members[0].DDPGPUs).To(Equal(cut))
		},
		Entry("the template's where none are asked for", `{"replicas":1}`, []int32{2}),
		Entry("those asked for as a string", `{"replicas":1,"gpus":"4"}`, []int32{4}),
	)

	It("serves both paths, with query keys in any case", func(ctx SpecContext) {
		newTrainer(ctx, namespace)
		created := ask(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`))
		collector := podOf(urlsIn(created, names.ReplicaTypeCollector)[0])
		for _, version := range []string{"/v1alpha1", "/v1alpha2"} {
			at := strings.Replace(base, "/v1alpha1", version, 1)
			one := ask(ctx, http.MethodGet, at+"?NAMESPACE="+namespace+"&Coordinator=cartpole-dqn-coordinator", "{}")
			Expect(one).To(Equal(strings.Replace(created, "create", "get", 1)))
			Expect(ask(ctx, http.MethodGet, at+"?nameSpace="+namespace+"&NAME="+collector, "{}")).To(ContainSubstring(`"replicaType":"collector"`))
			status, _ := call(ctx, http.MethodGet, at+"?Namespace="+namespace+"&AGGREGATOR=nope", "{}")
			Expect(status).To(Equal(http.StatusNotFound))
			ask(ctx, http.MethodPost, at+"/failed", body(`"collectors":[]`))
			ask(ctx, http.MethodDelete, at, body(`"collectors":{"replicas":0}`))
		}
	})

	It("distinguishes names in /failed that may be the job's from foreign ones, and accepts URLs", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		url := urlsIn(ask(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`)), names.ReplicaTypeCollector)[0]
		for _, role := range []string{"collector", "learner", "aggregator", "ddp-learner"} {
			answer := ask(ctx, http.MethodPost, base+"/failed", body(fmt.Sprintf(`"learners":["cartpole-dqn-%s-zzzzz"]`, role)))
			Expect(answer).To(ContainSubstring(`"collectors":[],"learners":[]`))
		}
		for _, foreign := range []string{"other-collector-zzzzz", "cartpole-dqn-collector-zzzzzz", "cartpole-dqn-zzzzz"} {
			status, _ := call(ctx, http.MethodPost, base+"/failed", body(fmt.Sprintf(`"collectors":[%q,%q]`, podOf(url), foreign)))
			Expect(status).To(Equal(http.StatusNotFound), foreign)
		}
		Expect(membershipOf(ctx, job).Spec.Members[0].FailureReports).To(BeZero())
		ask(ctx, http.MethodPost, base+"/failed", body(fmt.Sprintf(`"collectors":[%q]`, url)))
		Expect(membershipOf(ctx, job).Spec.Members[0].FailureReports).To(BeEquivalentTo(1))
	})

	It("answers 404 for the pods of a job that is gone", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		cacheKnows(ctx, newPod(ctx, job, "cartpole-dqn-aggregator-bcdfg", names.ReplicaTypeAggregator))
		Expect(api.live.Delete(ctx, job)).To(Succeed())
		Eventually(func() error { return api.cached.Get(ctx, client.ObjectKeyFromObject(job), job) }).ShouldNot(Succeed())
		for _, query := range []string{"coordinator=cartpole-dqn-coordinator", "aggregator=cartpole-dqn-aggregator-bcdfg", "name=cartpole-dqn-coordinator"} {
			status, _ := call(ctx, http.MethodGet, base+"?namespace="+namespace+"&"+query, "{}")
			Expect(status).To(Equal(http.StatusNotFound), query)
		}
		status, _ := call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`))
		Expect(status).To(Equal(http.StatusNotFound))
	})

	DescribeTable("does not know other methods",
		func(ctx SpecContext, method, path string) {
			status, _ := call(ctx, method, strings.TrimSuffix(base, replicas)+path, "{}")
			Expect(status).To(Equal(http.StatusNotImplemented))
		},
		Entry(nil, http.MethodPut, "/v1alpha1/replicas"),
		Entry(nil, http.MethodPatch, "/v1alpha2/replicas"),
		Entry(nil, http.MethodDelete, "/v1alpha1/replicas/failed"),
		Entry(nil, http.MethodPost, "/healthz"),
	)
})

var _ = Describe("An aggregator's own list", func() {
	var namespace, base, aggregator string
	var job *v2alpha1.DIJob
	var pod *corev1.Pod
	var learners []*corev1.Pod

	// own returns the answer to the aggregator.
	own := func(ctx context.Context) []string {
		GinkgoHelper()
		status, answer := call(ctx, http.MethodGet, base+"?namespace="+namespace+"&aggregator="+aggregator, "{}")
		Expect(status).To(Equal(http.StatusOK), answer)
		return urlsIn(answer, names.ReplicaTypeDDPLearner)
	}
	ask := func(ctx context.Context, method, content string) {
		GinkgoHelper()
		status, answer := call(ctx, method, base, fmt.Sprintf(`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator",%s}`, namespace, content))
		Expect(status).To(Equal(http.StatusOK), answer)
		cacheKnows(ctx, membershipOf(ctx, job))
	}

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		base = newServer(api.cached) + replicas
		newAggregatorConfig(ctx)
		job = newTrainer(ctx, namespace)
		ask(ctx, http.MethodPost, `"learners":{"replicas":1,"gpus":20}`)
		pod, learners = buildUnit(ctx, job)
		aggregator = pod.Name
	})

	It("stays as it is when its unit is removed, drained and deleted under it", func(ctx SpecContext) {
		before := own(ctx)
		Expect(before).To(HaveLen(20))
		ask(ctx, http.MethodDelete, `"learners":{"replicas":1}`)
		Expect(own(ctx)).To(Equal(before))

		By("draining it, which it learns last")
		Expect(api.live.Delete(ctx, pod)).To(Succeed())
		for _, learner := range learners {
			Expect(api.live.Delete(ctx, learner)).To(Succeed())
			Eventually(func() error { return api.cached.Get(ctx, client.ObjectKeyFromObject(learner), &corev1.Pod{}) }).ShouldNot(Succeed())
			Expect(own(ctx)).To(Equal(before))
		}
	})

	It("stays as it is when the list of replicas is lost", func(ctx SpecContext) {
		before := own(ctx)
		list := membershipOf(ctx, job)
		Expect(api.live.Delete(ctx, list)).To(Succeed())
		Eventually(func() error { return api.cached.Get(ctx, client.ObjectKeyFromObject(list), list) }).ShouldNot(Succeed())
		Expect(own(ctx)).To(Equal(before))
		Expect(api.live.Delete(ctx, learners[1])).To(Succeed())
		Eventually(func() error { return api.cached.Get(ctx, client.ObjectKeyFromObject(learners[1]), &corev1.Pod{}) }).ShouldNot(Succeed())
		Expect(own(ctx)).To(Equal(before))
	})
})

// buildUnit creates the pods of the job's only member, a learner of several GPUs, as the operator does.
// The aggregator is on a node, so it exists until a kubelet reports its termination.
func buildUnit(ctx context.Context, job *v2alpha1.DIJob) (*corev1.Pod, []*corev1.Pod) {
	GinkgoHelper()
	var config v2alpha1.AggregatorConfig
	Expect(api.live.Get(ctx, client.ObjectKey{Namespace: "default", Name: "aggregator-config"}, &config)).To(Succeed())
	member := &membershipOf(ctx, job).Spec.Members[0]
	builder := workload.NewBuilder(job, workload.Settings{})
	aggregator := specs.Must(builder.Aggregator(&config, member, member.PodName))
	aggregator.Spec.NodeName = "node-a"
	Expect(api.live.Create(ctx, aggregator)).To(Succeed())
	cacheKnows(ctx, aggregator)
	pods := membership.DDPPodNames(job.Name, member, aggregator.Name)
	var learners []*corev1.Pod
	for i := range pods {
		learner := specs.Must(builder.DDPLearner(member, aggregator, pods, i))
		Expect(api.live.Create(ctx, learner)).To(Succeed())
		cacheKnows(ctx, learner)
		learners = append(learners, learner)
	}
	return aggregator, learners
}
