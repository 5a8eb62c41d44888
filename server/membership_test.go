// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("the membership of a job that holds state", func() {
	const name = "recsys"
	var namespace, base string
	var job *v2alpha1.DIJob

	// publish writes a membership as the operator does.
	publish := func(ctx context.Context, list v2alpha1.PublishedMembership) {
		GinkgoHelper()
		Expect(api.live.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
		now := metav1.Now()
		list.PublishedAt = &now
		job.Status.Replicas = 3
		job.Status.Scaling = &v2alpha1.ScalingStatus{Membership: &list}
		Expect(api.live.Status().Update(ctx, job)).To(Succeed())
		cacheKnows(ctx, job)
	}
	acks := func(ctx context.Context) *v2alpha1.MembershipAcks {
		GinkgoHelper()
		current := specs.Get[v2alpha1.DIJob](ctx, api.live, job.Namespace, job.Name)
		return current.Status.MembershipAcks
	}
	path := func() string { return base + "/v2alpha1/" + namespace + "." + name + "/membership" }

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		base = newServer(api.cached, func(options *server.Options) { options.Times.Watch = 50 * time.Millisecond })
		three := int32(3)
		job = newJob(ctx, namespace, name, v2alpha1.DIJobSpec{
			Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeNone, Name: "ps", Replicas: &three, Template: jobs.Serving(), Drain: &v2alpha1.Drain{}}},
		})
		Expect(api.live.Create(ctx, serviceAccount(namespace))).To(Succeed())
		for rank := range 3 {
			pod := names.WorkerPod(name, "ps", int32(rank))
			made := createPod(ctx, job, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name: pod, Labels: names.WorkerLabels(name, v2alpha1.TaskTypeNone, "ps", pod),
				Annotations: map[string]string{names.AnnotationRank: strconv.Itoa(rank)},
			}, Spec: corev1.PodSpec{ServiceAccountName: "worker", Containers: []corev1.Container{{Name: "a", Image: "a"}}}})
			made.Status.Phase, made.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.0.0.%d", rank+1)
			made.Status.PodIPs = []corev1.PodIP{{IP: made.Status.PodIP}}
			Expect(api.live.Status().Update(ctx, made)).To(Succeed())
			cacheKnows(ctx, made)
		}
	})

	It("lists the replicas by rank with their states", func(ctx SpecContext) {
		status, answer := call(ctx, http.MethodGet, path(), "")
		Expect(isLater(status, answer)).To(BeTrue(), "%d %s", status, answer)
		publish(ctx, v2alpha1.PublishedMembership{Version: 4, Active: "0-1", Leaving: "1", Acknowledge: 4})
		status, answer = call(ctx, http.MethodGet, path(), "")
		Expect(strconv.Itoa(status) + " " + answer).To(Equal(`200 {"success":true,"code":0,"message":"successfully get membership","data":{"version":4,"members":[` +
			`{"name":"recsys-ps-0","task":"ps","rank":0,"index":0,"address":"10.0.0.1:22270","state":"active"},` +
			`{"name":"recsys-ps-1","task":"ps","rank":1,"index":1,"address":"10.0.0.2:22270","state":"leaving"},` +
			`{"name":"recsys-ps-2","task":"ps","rank":2,"index":2,"address":"10.0.0.3:22270","state":"joining"}]}}`))
	})

	It("answers a watch that ends without a change with the version alone", func(ctx SpecContext) {
		publish(ctx, v2alpha1.PublishedMembership{Version: 4, Active: "0-2"})
		_, answer := call(ctx, http.MethodGet, path()+"?watch=true&version=4", "")
		Expect(answer).To(ContainSubstring(`"data":{"version":4,"members":null}`))
		_, answer = call(ctx, http.MethodGet, path()+"?watch=true&version=3", "")
		Expect(answer).To(ContainSubstring(`"state":"active"`))
		status, _ := call(ctx, http.MethodGet, path()+"?since=3", "")
		Expect(status).To(Equal(http.StatusBadRequest))
	})

	It("answers a watch as soon as another version is published", func(ctx SpecContext) {
		publish(ctx, v2alpha1.PublishedMembership{Version: 4, Active: "0-2"})
		served := start(ctx, server.Options{Times: server.Times{Request: testkit.Patience, Watch: testkit.Patience}})
		base = "http://" + served.addresses[0]
		answered := make(chan string, 1)
		go func() {
			_, answer, _ := tryCall(ctx, http.MethodGet, path()+"?watch=true&version=4", "")
			answered <- answer
		}()
		Consistently(answered, 100*time.Millisecond).ShouldNot(Receive())
		publish(ctx, v2alpha1.PublishedMembership{Version: 5, Active: "0-2", Leaving: "2", Acknowledge: 5})
		Eventually(answered).Should(Receive(ContainSubstring(`"version":5`)))
	})

	It("stores acknowledgements of many members in few writes", func(ctx SpecContext) {
		publish(ctx, v2alpha1.PublishedMembership{Version: 6, Active: "0-2", Leaving: "2", Acknowledge: 5})
		var all sync.WaitGroup
		for rank := range 3 {
			all.Go(func() {
				defer GinkgoRecover()
				_, answer := call(ctx, http.MethodPost, path()+"/ack", fmt.Sprintf(`{"version":6,"member":"recsys-ps-%d"}`, rank))
				Expect(answer).To(Equal(`{"success":true,"code":0,"message":"successfully acknowledge membership","data":{"version":6,"members":null}}`))
			})
		}
		all.Wait()
		Expect(acks(ctx)).To(Equal(&v2alpha1.MembershipAcks{Version: 5, Ranks: "0-2"}))
	})

	It("stores no acknowledgement that no change waits for", func(ctx SpecContext) {
		publish(ctx, v2alpha1.PublishedMembership{Version: 6, Active: "0-1", Leaving: "1", Acknowledge: 6})
		for _, body := range []string{`{"version":5,"member":"recsys-ps-0"}`, `{"version":6,"member":"recsys-ps-2"}`} {
			_, answer := call(ctx, http.MethodPost, path()+"/ack", body)
			Expect(answer).To(HavePrefix(`{"success":true`))
		}
		Expect(acks(ctx)).To(BeNil())
		status, answer := call(ctx, http.MethodPost, path()+"/ack", `{"version":9,"member":"recsys-ps-0"}`)
		Expect(isLater(status, answer)).To(BeTrue())
		status, _ = call(ctx, http.MethodPost, path()+"/ack", `{"version":"six"}`)
		Expect(status).To(Equal(http.StatusBadRequest))
	})

	It("stores a refusal, and the acknowledgement that follows", func(ctx SpecContext) {
		publish(ctx, v2alpha1.PublishedMembership{Version: 6, Active: "0-2", Leaving: "2", Acknowledge: 6})
		call(ctx, http.MethodPost, path()+"/ack", `{"version":6,"member":"recsys-ps-0","refuse":true,"reason":"`+strings.Repeat("x", 300)+`"}`)
		Expect(acks(ctx).Refused).To(Equal([]v2alpha1.MembershipRefusal{{Pod: "recsys-ps-0", Reason: strings.Repeat("x", 256)}}))
		call(ctx, http.MethodPost, path()+"/ack", `{"version":6,"member":"recsys-ps-0"}`)
		Expect(acks(ctx)).To(Equal(&v2alpha1.MembershipAcks{Version: 6, Ranks: "0"}))
	})

	It("lets a pod acknowledge only for itself", func(ctx SpecContext) {
		publish(ctx, v2alpha1.PublishedMembership{Version: 6, Active: "0-2", Leaving: "2", Acknowledge: 6})
		base = newServer(api.cached, func(options *server.Options) { options.Identity = "" })
		var pod corev1.Pod
		Expect(api.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "recsys-ps-0"}, &pod)).To(Succeed())
		token := tokenOf(ctx, &pod, names.ServerAudience)
		status, _ := call(ctx, http.MethodPost, path()+"/ack", `{"version":6,"member":"recsys-ps-1"}`, "Authorization", "Bearer "+token)
		Expect(status).To(Equal(http.StatusForbidden))
		Expect(acks(ctx)).To(BeNil())
		status, answer := call(ctx, http.MethodPost, path()+"/ack", `{"version":6}`, "Authorization", "Bearer "+token)
		Expect(status).To(Equal(http.StatusOK), answer)
		Expect(acks(ctx).Ranks).To(Equal("0"))
	})
})

var _ = Describe("the membership of a coordinator-led job that holds state", func() {
	It("is served by rank as to a worker-led job, and acknowledged by each replica", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, api.live)
		base := newServer(api.cached, func(options *server.Options) { options.Times.Watch = 50 * time.Millisecond })
		spec := coordinatorLed()
		spec.Tasks[2].Drain = &v2alpha1.Drain{}
		job := newJob(ctx, namespace, trainer, spec)
		newMembership(ctx, job)
		pods := map[names.ReplicaType]string{
			names.ReplicaTypeCoordinator: names.CoordinatorPod(trainer), names.ReplicaTypeLearner: trainer + "-learner-x7rkd", names.ReplicaTypeDDPLearner: trainer + "-ddp-learner-x7rkd",
		}
		for role, name := range pods {
			made := newPod(ctx, job, name, role)
			if role != names.ReplicaTypeDDPLearner {
				made.Annotations = map[string]string{names.AnnotationRank: map[names.ReplicaType]string{names.ReplicaTypeCoordinator: "0", names.ReplicaTypeLearner: "1"}[role]}
				Expect(api.live.Update(ctx, made)).To(Succeed())
			}
			made.Status.Phase, made.Status.PodIP, made.Status.PodIPs = corev1.PodRunning, "10.0.1.1", []corev1.PodIP{{IP: "10.0.1.1"}}
			Expect(api.live.Status().Update(ctx, made)).To(Succeed())
			cacheKnows(ctx, made)
		}
		path := base + "/v1alpha1/membership"
		query := "?namespace=" + namespace + "&coordinator=" + names.CoordinatorPod(trainer)
		Expect(isLater(call(ctx, http.MethodGet, path+query, ""))).To(BeTrue())

		now := metav1.Now()
		job.Status.Scaling = &v2alpha1.ScalingStatus{Membership: &v2alpha1.PublishedMembership{Version: 4, Active: "0-1", Leaving: "1", Acknowledge: 4, PublishedAt: &now}}
		Expect(api.live.Status().Update(ctx, job)).To(Succeed())
		cacheKnows(ctx, job)
		status, answer := call(ctx, http.MethodGet, path+query+"&watch=true&version=3", "")
		Expect(strings.ReplaceAll(strconv.Itoa(status)+" "+answer, namespace, "NS")).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully get membership","data":{"version":4,"members":[` +
				`{"name":"cartpole-dqn-coordinator","task":"coordinator","rank":0,"index":0,"address":"cartpole-dqn-coordinator.NS:22270","state":"active"},` +
				`{"name":"cartpole-dqn-learner-x7rkd","task":"learner","rank":1,"index":1,"address":"cartpole-dqn-learner-x7rkd.NS:22270","state":"leaving"}]}}`))
		_, answer = call(ctx, http.MethodGet, path+query+"&watch=true&version=4", "")
		Expect(answer).To(ContainSubstring(`"data":{"version":4,"members":null}`))
		status, _ = call(ctx, http.MethodGet, path+query+"&since=4", "")
		Expect(status).To(Equal(http.StatusBadRequest))

		acknowledge := func(member, rest string) (int, string) {
			return call(ctx, http.MethodPost, path+"/ack", fmt.Sprintf(`{"namespace":%q,"coordinator":%q,"version":4,"member":%q%s}`,
				namespace, names.CoordinatorPod(trainer), member, rest))
		}
		status, answer = acknowledge(pods[names.ReplicaTypeLearner], "")
		Expect(strconv.Itoa(status) + answer).To(Equal(`200{"success":true,"code":0,"message":"successfully acknowledge membership","data":{"version":4,"members":null}}`))
		status, answer = acknowledge(pods[names.ReplicaTypeCoordinator], `,"refuse":true,"reason":"busy"`)
		Expect(strconv.Itoa(status) + answer).To(HavePrefix(`200{"success":true`))
		status, _ = acknowledge(pods[names.ReplicaTypeDDPLearner], "")
		Expect(status).To(Equal(http.StatusNotFound), "the aggregator is the member")
		Expect(api.live.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
		Expect(job.Status.MembershipAcks).To(Equal(&v2alpha1.MembershipAcks{
			Version: 4, Ranks: "1", Refused: []v2alpha1.MembershipRefusal{{Pod: pods[names.ReplicaTypeCoordinator], Reason: "busy"}},
		}))

		By("refusing jobs that hold no state")
		other := specs.Namespace(ctx, api.live)
		newTrainer(ctx, other)
		status, _ = call(ctx, http.MethodGet, path+"?namespace="+other+"&coordinator="+names.CoordinatorPod(trainer), "")
		Expect(status).To(Equal(http.StatusConflict))
	})
})
