// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// callCounter counts the API calls of a server.
type callCounter struct{ calls atomic.Int32 }

// serve returns the URL of a server in a mode, whose calls are counted.
func (c *callCounter) serve(mode auth.Mode, changes ...func(*server.Options)) string {
	GinkgoHelper()
	counted := interceptor.NewClient(api.own, interceptor.Funcs{
		Get: func(ctx context.Context, through client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			c.calls.Add(1)
			return through.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, through client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			c.calls.Add(1)
			return through.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, through client.WithWatch, object client.Object, options ...client.CreateOption) error {
			c.calls.Add(1)
			return through.Create(ctx, object, options...)
		},
	})
	return newServer(readFrom{counted, api.cached}, append([]func(*server.Options){func(options *server.Options) {
		options.Identity, options.APIReader = mode, counted
	}}, changes...)...)
}

// podAt runs a pod at an address. The pod belongs to a job, or to none.
func podAt(ctx context.Context, namespace string, owner *v2alpha1.DIJob, address string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
		Spec:       corev1.PodSpec{ServiceAccountName: serviceAccount(namespace).Name, Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	if owner != nil {
		pod.OwnerReferences = jobs.Owner(owner)
	}
	Expect(api.live.Create(ctx, pod)).To(Succeed())
	pods.Run(pod, address)
	Expect(api.live.Status().Update(ctx, pod)).To(Succeed())
	cacheKnows(ctx, pod)
	return pod
}

// question is a request that its sender may not make.
type question struct{ method, path, body string }

// questions are about objects that exist and objects that do not.
func questions(namespace, name string) []question {
	coordinator := names.CoordinatorPod(name)
	who := fmt.Sprintf(`{"namespace":%q,"coordinator":%q`, namespace, coordinator)
	worker := "/v2alpha1/" + namespace + "." + name
	return []question{
		{http.MethodGet, replicas + "?namespace=" + namespace + "&coordinator=" + coordinator, ""},
		{http.MethodGet, replicas + "?namespace=" + namespace + "&aggregator=" + name + "-aggregator-abcde", ""},
		{http.MethodGet, replicas + "?namespace=" + namespace + "&name=" + coordinator, ""},
		{http.MethodPost, replicas, who + `,"collectors":{"replicas":1}}`},
		{http.MethodDelete, replicas, who + `,"collectors":{"replicas":1}}`},
		{http.MethodPost, replicas + "/failed", who + `,"collectors":["a"]}`},
		{http.MethodPost, strings.TrimSuffix(replicas, "/replicas") + "/profilings", who + `,"data":{"a":1}}`},
		{http.MethodGet, worker + "/replicas", ""},
		{http.MethodPost, worker + "/replicas", `{"replicas":1}`},
		{http.MethodDelete, worker + "/replicas", `{"replicas":1}`},
		{http.MethodPost, worker + "/profilings", `{"a":1}`},
	}
}

var _ = Describe("strangers", func() {
	var namespace string
	var job *v2alpha1.DIJob

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		job = newTrainer(ctx, namespace)
		cacheKnows(ctx, job)
		cacheKnows(ctx, podNamed(namespace, names.CoordinatorPod(trainer)))
	})

	It("cost the API server next to nothing, for any request", func(ctx SpecContext) {
		elsewhere := specs.Namespace(ctx, api.live)
		other := newJob(ctx, elsewhere, "other", coordinatorLed())
		froms := []string{given.next(), given.next(), given.next()}
		podAt(ctx, elsewhere, nil, froms[0])
		podAt(ctx, elsewhere, other, froms[1])
		podAt(ctx, namespace, newJob(ctx, namespace, "other", coordinatorLed()), froms[2])
		var counted callCounter
		base := counted.serve(auth.ModeEnforce)
		for i := range 30 {
			name := trainer
			if i%2 == 1 {
				name = fmt.Sprintf("made-up-%d", i)
			}
			for n, asked := range questions(namespace, name) {
				code, _ := callFrom(ctx, froms[(i+n)%len(froms)], asked.method, base+asked.path, asked.body)
				Expect(code).To(Equal(http.StatusForbidden), "%+v", asked)
			}
		}
		Expect(counted.calls.Load()).To(BeNumerically("<=", 10))
	})

	It("are answered the same about what is there and what is not", func(ctx SpecContext) {
		elsewhere := specs.Namespace(ctx, api.live)
		for whose, owner := range map[string]*v2alpha1.DIJob{"no job": nil, "another job": newJob(ctx, elsewhere, "other", coordinatorLed())} {
			from := given.next()
			podAt(ctx, elsewhere, owner, from)
			suspended := newJob(ctx, namespace, "suspended-"+from[len(from)-1:], coordinatorLed())
			base := newServer(api.cached, func(options *server.Options) { options.Identity = auth.ModeEnforce })
			answers := map[string]string{}
			for _, of := range []struct{ namespace, name string }{
				{namespace, trainer}, {namespace, "none"}, {"none", "none"}, {namespace, suspended.Name}, {"kube-system", "etcd"},
			} {
				for _, asked := range questions(of.namespace, of.name) {
					code, answer := callFrom(ctx, from, asked.method, base+asked.path, asked.body)
					answers[fmt.Sprint(code, " ", answer)] = fmt.Sprint(asked)
				}
			}
			Expect(answers).To(HaveLen(1), whose)
		}
	})

	It("are refused before their body is read", func(ctx SpecContext) {
		from := given.next()
		podAt(ctx, namespace, nil, from)
		base := newServer(api.cached, func(options *server.Options) { options.Identity = auth.ModeEnforce })
		for _, asked := range questions(namespace, trainer) {
			if asked.method == http.MethodGet {
				continue
			}
			code, _ := callFrom(ctx, from, asked.method, base+asked.path, "no JSON")
			Expect(code).To(Equal(http.StatusForbidden), "%+v", asked)
		}
	})

	It("that are unknown cost next to nothing where they are admitted", func(ctx SpecContext) {
		var counted callCounter
		base, from := counted.serve(auth.ModeLegacy, func(options *server.Options) { options.Times.Request = testkit.Patience }), given.next()
		Expect(status(callFrom(ctx, from, http.MethodGet, base+replicas, ""))).To(Equal(http.StatusOK))
		for range 30 {
			for _, asked := range questions(namespace, "made-up") {
				if asked.method == http.MethodGet {
					Expect(status(callFrom(ctx, from, asked.method, base+asked.path, asked.body))).To(Equal(http.StatusNotFound), "%+v", asked)
				}
			}
		}
		Expect(counted.calls.Load()).To(BeNumerically("<=", 10))
	})
})

var _ = Describe("pods that share their node's network", func() {
	var namespace, node string
	var job *v2alpha1.DIJob

	// sharing runs a pod on the node's network. The pod belongs to a job, or to none.
	sharing := func(ctx context.Context, owner *v2alpha1.DIJob) *corev1.Pod {
		GinkgoHelper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
			Spec:       corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}
		if owner != nil {
			pod.OwnerReferences = jobs.Owner(owner)
		}
		Expect(api.live.Create(ctx, pod)).To(Succeed())
		pods.Run(pod, node)
		Expect(api.live.Status().Update(ctx, pod)).To(Succeed())
		cacheKnows(ctx, pod)
		return pod
	}
	serve := func(change func(*server.Options)) string {
		GinkgoHelper()
		return newServer(api.cached, func(options *server.Options) {
			options.Identity, options.Times.Address = auth.ModeEnforce, 100*time.Millisecond
			change(options)
		})
	}

	BeforeEach(func(ctx SpecContext) {
		namespace, node = specs.Namespace(ctx, api.live), given.next()
		job = newTrainer(ctx, namespace)
		cacheKnows(ctx, job)
		cacheKnows(ctx, podNamed(namespace, names.CoordinatorPod(trainer)))
	})

	It("are known by their node's address, and for the jobs that have a pod there", func(ctx SpecContext) {
		sharing(ctx, nil)
		sharing(ctx, newJob(ctx, namespace, "other", coordinatorLed()))
		sharing(ctx, job)
		last := sharing(ctx, job)
		third := newJob(ctx, namespace, "third", coordinatorLed())
		newPod(ctx, third, names.CoordinatorPod("third"), names.ReplicaTypeCoordinator)
		base := serve(func(*server.Options) {})
		list := replicas + "?namespace=" + namespace
		body := fmt.Sprintf(`{"namespace":%q,"coordinator":%q,"collectors":{"replicas":1}}`, namespace, names.CoordinatorPod(trainer))
		Expect(status(callFrom(ctx, node, http.MethodPost, base+replicas, body))).To(Equal(http.StatusOK))
		Expect(status(callFrom(ctx, node, http.MethodGet, base+list+"&coordinator="+names.CoordinatorPod(trainer), ""))).To(Equal(http.StatusOK))
		Expect(status(callFrom(ctx, node, http.MethodGet, base+list+"&coordinator="+names.CoordinatorPod("third"), ""))).To(Equal(http.StatusForbidden))
		_, seen := callFrom(ctx, node, http.MethodGet, base+list, "")
		Expect(seen).To(ContainSubstring(names.CoordinatorPod(trainer)))
		Expect(seen).NotTo(ContainSubstring(names.CoordinatorPod("third")))

		By("ending its pods there")
		pods := specs.List[corev1.PodList](ctx, api.live, client.InNamespace(namespace))
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.HostNetwork && metav1.IsControlledBy(pod, job) {
				Expect(api.live.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
			}
		}
		Eventually(func() error { return api.cached.Get(ctx, client.ObjectKeyFromObject(last), &corev1.Pod{}) }).ShouldNot(Succeed())
		Eventually(func() int {
			return status(callFrom(ctx, node, http.MethodPost, base+replicas, body))
		}).Should(Equal(http.StatusForbidden))
	})

	It("are authenticated by a token alone where addresses are strict", func(ctx SpecContext) {
		sharing(ctx, job)
		base := serve(func(options *server.Options) { options.StrictAddresses = true })
		Expect(status(callFrom(ctx, node, http.MethodGet, base+replicas, ""))).To(Equal(http.StatusUnauthorized))
	})
})

var _ = Describe("a foreign pod that claims to be of a job", func() {
	It("is the job's, as rights on the pods of a namespace are rights on its jobs, and no other namespace's", func(ctx SpecContext) {
		namespace, elsewhere := specs.Namespace(ctx, api.live), specs.Namespace(ctx, api.live)
		job := newTrainer(ctx, namespace)
		cacheKnows(ctx, job)
		cacheKnows(ctx, podNamed(namespace, names.CoordinatorPod(trainer)))
		base := newServer(api.cached, func(options *server.Options) { options.Identity = auth.ModeEnforce })
		list := base + replicas + "?namespace=" + namespace + "&coordinator=" + names.CoordinatorPod(trainer)
		for from, want := range map[string]int{namespace: http.StatusOK, elsewhere: http.StatusForbidden} {
			address := given.next()
			podAt(ctx, from, job, address)
			Expect(status(callFrom(ctx, address, http.MethodGet, list, ""))).To(Equal(want))
		}
	})
})

var _ = Describe("a path that ends in a slash", func() {
	It("is ignored, and no client is misled", func(ctx SpecContext) {
		base := newServer(api.cached)
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			code, answer := call(ctx, method, base+replicas+"/", "", "X-Forwarded-Prefix", "/evil.example")
			Expect(code).To(Equal(http.StatusNotFound))
			Expect(answer).NotTo(ContainSubstring("evil"))
		}
	})
})

var _ = Describe("tokens that say themselves that they are not for di-server", func() {
	It("cost the API server nothing", func(ctx SpecContext) {
		var counted callCounter
		base := counted.serve(auth.ModeEnforce)
		claims := func(content string) string {
			return "e30." + base64.RawURLEncoding.EncodeToString([]byte(content)) + ".c2ln"
		}
		for _, token := range []string{
			claims(`{"aud":["https://kubernetes.default.svc"]}`), claims(`{"aud":"other"}`), claims(`{}`), claims(`{"aud":7}`),
			claims(`{"aud":["di-server"],"exp":1}`), claims(`[]`), "a.b!.c", strings.Repeat("a", 9<<10),
		} {
			code, _ := call(ctx, http.MethodGet, base+replicas, "", "Authorization", "Bearer "+token)
			Expect(code).To(Equal(http.StatusUnauthorized), token)
		}
		Expect(counted.calls.Load()).To(BeZero())
		By("asking once about one that may be")
		for range 20 {
			code, _ := call(ctx, http.MethodGet, base+replicas, "", "Authorization", "Bearer "+claims(`{"aud":["di-server"]}`))
			Expect(code).To(Equal(http.StatusUnauthorized))
		}
		Expect(counted.calls.Load()).To(BeNumerically("<=", 5))
	})
})

var _ = Describe("connections", func() {
	It("of one address are bounded, and no other address is affected", func(ctx SpecContext) {
		address := start(ctx, server.Options{Limits: server.Limits{ConnectionsPerAddress: 3}}).addresses[0]
		greedy := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(given.next())}}
		for range 3 {
			connection := specs.Must(greedy.DialContext(ctx, "tcp", address))
			DeferCleanup(connection.Close)
		}
		one, err := greedy.DialContext(ctx, "tcp", address)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(one.Close)
		_, err = one.Read(make([]byte, 1))
		Expect(err).To(HaveOccurred())
		Expect(status(callFrom(ctx, given.next(), http.MethodGet, "http://"+address+"/healthz", ""))).To(Equal(http.StatusOK))
	})
})
