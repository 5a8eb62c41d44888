// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// addresses gives each pod of the specs a separate loopback address, from which a client of this process
// can call.
type addresses struct{ last atomic.Int32 }

// given are the addresses of all specs. Two specs must not use the same address, because it would then
// belong to two pods.
var given addresses

func (a *addresses) next() string {
	n := a.last.Add(1)
	return fmt.Sprintf("127.9.%d.%d", n/200, n%200+1)
}

var _ = Describe("who may call", func() {
	var namespace string
	var job *v2alpha1.DIJob

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		Expect(api.live.Create(ctx, serviceAccount(namespace))).To(Succeed())
		job = newTrainer(ctx, namespace)
	})

	serve := func(mode auth.Mode) string {
		GinkgoHelper()
		return newServer(api.cached, func(options *server.Options) { options.Identity = mode })
	}
	list := func() string {
		return "/v1alpha1/replicas?namespace=" + namespace + "&coordinator=" + names.CoordinatorPod(trainer)
	}
	post := fmt.Sprintf(`{"namespace":"%%s","coordinator":%q,"collectors":{"replicas":1}}`, names.CoordinatorPod(trainer))

	// at runs a pod at an address. The pod belongs to the job, or to none.
	at := func(ctx context.Context, owner *v2alpha1.DIJob, address string, change func(*corev1.Pod)) *corev1.Pod {
		GinkgoHelper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
			Spec: corev1.PodSpec{ServiceAccountName: "worker", Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
		if owner != nil {
			pod.Namespace = owner.Namespace
			pod.OwnerReferences = jobs.Owner(owner)
		}
		pod.Status.Phase = corev1.PodRunning
		if change != nil {
			change(pod)
		}
		phase := pod.Status.Phase
		Expect(api.live.Create(ctx, pod)).To(Succeed())
		pod.Status.Phase = phase
		pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
		Expect(api.live.Status().Update(ctx, pod)).To(Succeed())
		cacheKnows(ctx, pod)
		return pod
	}

	Context("by address", func() {
		It("lets the job's own pods read and write", func(ctx SpecContext) {
			base, address := serve(auth.ModeEnforce), given.next()
			at(ctx, job, address, nil)
			Expect(status(callFrom(ctx, address, http.MethodGet, base+list(), ""))).To(Equal(http.StatusOK))
			Expect(status(callFrom(ctx, address, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace)))).To(Equal(http.StatusOK))
			Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(1))
		})

		It("asks the API server once in a while about an unknown address, however often it calls", func(ctx SpecContext) {
			var asked atomic.Int32
			counting := interceptor.NewClient(api.own, interceptor.Funcs{
				List: func(ctx context.Context, through client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if _, arePods := list.(*corev1.PodList); arePods {
						asked.Add(1)
					}
					return through.List(ctx, list, options...)
				},
			})
			base, address := newServer(api.cached, func(options *server.Options) {
				options.Identity, options.APIReader = auth.ModeLegacy, counting
			}), given.next()
			for range 10 {
				Expect(status(callFrom(ctx, address, http.MethodGet, base+list(), ""))).To(Equal(http.StatusOK))
			}
			Expect(asked.Load()).To(BeEquivalentTo(1))

			By("knowing it once the cache does")
			at(ctx, newJob(ctx, namespace, "other", coordinatorLed()), address, nil)
			Expect(status(callFrom(ctx, address, http.MethodGet, base+list(), ""))).To(Equal(http.StatusForbidden))
		})

		It("waits for an address that is not known yet", func(ctx SpecContext) {
			base, address := newServer(api.cached, func(options *server.Options) {
				options.Identity, options.Times.Address = auth.ModeEnforce, testkit.Patience
			}), given.next()
			answered := make(chan int, 1)
			go func() {
				defer GinkgoRecover()
				answered <- status(callFrom(ctx, address, http.MethodGet, base+list(), ""))
			}()
			Consistently(answered, 300*time.Millisecond).ShouldNot(Receive())
			at(ctx, job, address, nil)
			Eventually(answered).Should(Receive(Equal(http.StatusOK)))
		})
	})

	// refusal is a refused caller with the expected refusal.
	type refusal struct {
		whose string
		want  int
		// from is the address of the caller. token is its token.
		from, token string
	}
	strangers := func(ctx context.Context) []refusal {
		GinkgoHelper()
		other := newJob(ctx, namespace, "other", coordinatorLed())
		namesake := newJob(ctx, specs.Namespace(ctx, api.live), trainer, coordinatorLed())
		hostNetwork := func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }
		ended := func(phase corev1.PodPhase) func(*corev1.Pod) {
			return func(pod *corev1.Pod) { pod.Status.Phase = phase }
		}
		var all []refusal
		byAddress := func(whose string, want int, run func(address string)) {
			address := given.next()
			run(address)
			all = append(all, refusal{whose: whose, want: want, from: address})
		}
		byAddress("an unknown address", 401, func(string) {})
		byAddress("a pod of no job", 403, func(a string) { at(ctx, nil, a, nil) })
		byAddress("a pod of another job", 403, func(a string) { at(ctx, other, a, nil) })
		byAddress("a pod of a job of the same name in another namespace", 403, func(a string) { at(ctx, namesake, a, nil) })
		elsewhere := specs.Namespace(ctx, api.live)
		byAddress("a pod of another namespace that says it is the job's", 403, func(a string) {
			at(ctx, job, a, func(pod *corev1.Pod) { pod.Namespace = elsewhere })
		})
		byAddress("a pod of no job on its node's network", 401, func(a string) { at(ctx, nil, a, hostNetwork) })
		byAddress("a pod of another job on its node's network", 403, func(a string) { at(ctx, other, a, hostNetwork) })
		byAddress("a pod of the job that succeeded", 401, func(a string) { at(ctx, job, a, ended(corev1.PodSucceeded)) })
		byAddress("a pod of the job that failed", 401, func(a string) { at(ctx, job, a, ended(corev1.PodFailed)) })
		byAddress("a pod of another job that has the address of one of the job that ended", 403, func(a string) {
			at(ctx, job, a, ended(corev1.PodSucceeded))
			at(ctx, other, a, nil)
		})
		byAddress("one of two pods at an address", 401, func(a string) {
			at(ctx, job, a, nil)
			at(ctx, nil, a, nil)
		})
		byToken := func(whose string, want int, token string) {
			// The token takes precedence over the address, which belongs to a pod of the job.
			all = append(all, refusal{whose: whose, want: want, from: given.next(), token: token})
			at(ctx, job, all[len(all)-1].from, nil)
		}
		pod := func() *corev1.Pod { return at(ctx, job, given.next(), nil) }
		byToken("no token", 401, " ")
		byToken("a token that is none", 401, "none")
		byToken("a token of a pod of another job", 403, tokenOf(ctx, at(ctx, other, given.next(), nil), names.ServerAudience))
		byToken("a token of a pod of a job of the same name in another namespace", 403, func() string {
			Expect(api.live.Create(ctx, serviceAccount(namesake.Namespace))).To(Succeed())
			return tokenOf(ctx, at(ctx, namesake, given.next(), nil), names.ServerAudience)
		}())
		byToken("a token of another audience", 401, tokenOf(ctx, pod(), "https://kubernetes.default.svc"))
		byToken("a token of a user without role", 403, tokenOf(ctx, serviceAccount(namespace), names.ServerAudience))
		gone := pod()
		byToken("a token of a pod that was deleted", 401, tokenOf(ctx, gone, names.ServerAudience))
		Expect(api.live.Delete(ctx, gone, client.GracePeriodSeconds(0))).To(Succeed())
		over := pod()
		byToken("a token of a pod that ended", 401, tokenOf(ctx, over, names.ServerAudience))
		over.Status.Phase = corev1.PodSucceeded
		Expect(api.live.Status().Update(ctx, over)).To(Succeed())
		cacheKnows(ctx, over)
		return all
	}

	DescribeTable("refuses every sender that is not surely a pod of the job, and changes nothing",
		func(ctx SpecContext, method, path, rest string) {
			open := newServer(api.cached) + "/v1alpha1/replicas"
			_, created := call(ctx, http.MethodPost, open, fmt.Sprintf(post, namespace))
			collector := podOf(urlsIn(created, names.ReplicaTypeCollector)[0])
			before := membershipOf(ctx, job)
			base := newServer(api.cached, func(options *server.Options) {
				options.Identity, options.Times.Address = auth.ModeEnforce, 100*time.Millisecond
			})
			body := fmt.Sprintf(`{"namespace":%q,"coordinator":%q,%s}`, namespace, names.CoordinatorPod(trainer), strings.ReplaceAll(rest, "COLLECTOR", collector))
			all := strangers(ctx)
			got := make(chan string, len(all))
			for _, stranger := range all {
				go func() {
					defer GinkgoRecover()
					var headers []string
					if stranger.token != "" {
						headers = []string{"Authorization", "Bearer " + stranger.token}
					}
					code := status(callFrom(ctx, stranger.from, method, base+path, body, headers...))
					got <- fmt.Sprintf("%s: %d", stranger.whose, code)
				}()
			}
			for range all {
				var answered string
				Eventually(got).Should(Receive(&answered))
				i := slices.IndexFunc(all, func(stranger refusal) bool { return answered == fmt.Sprintf("%s: %d", stranger.whose, stranger.want) })
				Expect(i).To(BeNumerically(">=", 0), answered)
			}
			Expect(membershipOf(ctx, job)).To(Equal(before))
		},
		Entry("POST", http.MethodPost, "/v1alpha1/replicas", `"collectors":{"replicas":2}`),
		Entry("DELETE", http.MethodDelete, "/v1alpha1/replicas", `"collectors":{"replicas":1}`),
		Entry("/failed", http.MethodPost, "/v1alpha1/replicas/failed", `"collectors":["COLLECTOR"]`),
	)

	It("makes an address that sends many invalid tokens wait, and no other", func(ctx SpecContext) {
		base, flood, begun := serve(auth.ModeEnforce), given.next(), time.Now()
		pod := at(ctx, job, given.next(), nil)
		good := tokenOf(ctx, pod, names.ServerAudience)
		var refused atomic.Int32
		var group sync.WaitGroup
		for i := range 200 {
			group.Go(func() {
				dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(flood)}}
				through := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+list(), http.NoBody)
				if err != nil {
					return
				}
				request.Header.Set("Authorization", fmt.Sprintf("Bearer worthless-%d", i))
				response, err := (&http.Client{Transport: through}).Do(request)
				if err != nil {
					return
				}
				_ = response.Body.Close()
				if response.StatusCode == http.StatusUnauthorized {
					refused.Add(1)
				}
			})
		}
		Expect(status(callFrom(ctx, given.next(), http.MethodGet, base+list(), "", "Authorization", "Bearer "+good))).To(Equal(http.StatusOK))
		group.Wait()
		Expect(refused.Load()).To(BeEquivalentTo(200))
		// A hundred at once and twenty a second take five seconds, on a slow machine more. Concurrent
		// callers may count a moment twice, so it can take less.
		Expect(time.Since(begun)).To(BeNumerically(">=", 2*time.Second))
	})

	It("refuses the token of a pod that was deleted, also where it was good a moment ago", func(ctx SpecContext) {
		base, pod := serve(auth.ModeEnforce), at(ctx, job, given.next(), nil)
		token := tokenOf(ctx, pod, names.ServerAudience)
		send := func() int {
			return status(call(ctx, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace), "Authorization", "Bearer "+token))
		}
		Expect(send()).To(Equal(http.StatusOK))
		Expect(api.live.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(func() error {
			return api.cached.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{})
		}).Should(MatchError(apierrors.IsNotFound, "not found"))
		before := membershipOf(ctx, job)
		Expect(send()).To(Equal(http.StatusUnauthorized))
		Expect(membershipOf(ctx, job)).To(Equal(before))
	})

	Context("by token", func() {
		// A token counts regardless of the address.
		withToken := func(ctx context.Context, token, method, url, body string) (int, string) {
			GinkgoHelper()
			return call(ctx, method, url, body, "Authorization", "Bearer "+token)
		}

		It("lets the job's own pods, and no other job's", func(ctx SpecContext) {
			base := serve(auth.ModeEnforce)
			own := tokenOf(ctx, at(ctx, job, given.next(), nil), names.ServerAudience)
			other := tokenOf(ctx, at(ctx, newJob(ctx, namespace, "other", coordinatorLed()), given.next(), nil), names.ServerAudience)
			Expect(status(withToken(ctx, own, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace)))).To(Equal(http.StatusOK))
			code, answer := withToken(ctx, other, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace))
			Expect(code).To(Equal(http.StatusForbidden))
			Expect(answer).To(ContainSubstring(`may not create dijobs/replicas of group diengine.opendilab.org in namespace \"` + namespace + `\"`))
			Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(1))
		})

		It("keeps a caller waiting while the API server cannot be asked about its token", func(ctx SpecContext) {
			failures := 2
			flaky := interceptor.NewClient(api.own, interceptor.Funcs{
				Create: func(ctx context.Context, through client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if _, isReview := object.(*authenticationv1.TokenReview); isReview && failures > 0 {
						failures--
						return apierrors.NewServiceUnavailable("starting")
					}
					return through.Create(ctx, object, options...)
				},
			})
			// Writes use the flaky client. Reads use the cache.
			served := specs.Must(server.New(server.Options{
				Client: readFrom{flaky, api.cached}, APIReader: api.own, Cache: api.cache, Log: GinkgoLogr,
			}))
			url := listen(served.Handler())
			own := tokenOf(ctx, at(ctx, job, given.next(), nil), names.ServerAudience)
			Expect(status(withToken(ctx, own, http.MethodGet, url+list(), ""))).To(Equal(http.StatusOK))
			Expect(failures).To(BeZero())
		})

		It("does not take what one token of a user may for what another may, whose scope is another", func(ctx SpecContext) {
			const scopes = "scopes.example.com"
			scoped := interceptor.NewClient(api.own, interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					switch review := object.(type) {
					case *authenticationv1.TokenReview:
						review.Status = authenticationv1.TokenReviewStatus{
							Authenticated: true, Audiences: []string{names.ServerAudience},
							User: authenticationv1.UserInfo{Username: "jane", Extra: map[string]authenticationv1.ExtraValue{scopes: {review.Spec.Token}}},
						}
					case *authorizationv1.SubjectAccessReview:
						review.Status.Allowed = review.Spec.Extra[scopes][0] == "all"
					}
					return nil
				},
			})
			base := newServer(readFrom{scoped, api.cached}, func(options *server.Options) { options.Identity = auth.ModeEnforce })
			Expect(status(withToken(ctx, "all", http.MethodGet, base+list(), ""))).To(Equal(http.StatusOK))
			Expect(status(withToken(ctx, "none", http.MethodGet, base+list(), ""))).To(Equal(http.StatusForbidden))
		})

		It("lets a user do what its roles say", func(ctx SpecContext) {
			base := serve(auth.ModeEnforce)
			allow(ctx, namespace, "get", "list")
			token := tokenOf(ctx, serviceAccount(namespace), names.ServerAudience)
			Expect(status(withToken(ctx, token, http.MethodGet, base+list(), ""))).To(Equal(http.StatusOK))
			Expect(status(withToken(ctx, token, http.MethodGet, base+"/v1alpha1/replicas?namespace="+namespace, ""))).To(Equal(http.StatusOK))
			Expect(status(withToken(ctx, token, http.MethodGet, base+"/v1alpha1/replicas", ""))).To(Equal(http.StatusForbidden))
			Expect(status(withToken(ctx, token, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace)))).To(Equal(http.StatusForbidden))
			worker := newJob(ctx, namespace, "worker-led", v2alpha1.DIJobSpec{
				Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Name: "collector", Template: jobs.Serving()}},
			})
			Expect(status(withToken(ctx, token, http.MethodPost, base+"/v2alpha1/"+namespace+"."+worker.Name+"/replicas", `{"replicas":1}`))).To(Equal(http.StatusForbidden))
		})
	})

	It("shows of all jobs those that the caller may see", func(ctx SpecContext) {
		base, address := serve(auth.ModeEnforce), given.next()
		at(ctx, job, address, nil)
		newJob(ctx, namespace, "other", coordinatorLed())
		code, answer := callFrom(ctx, address, http.MethodGet, base+"/v1alpha1/replicas", "")
		Expect(code).To(Equal(http.StatusOK))
		Expect(answer).To(ContainSubstring(names.CoordinatorPod(trainer)))
		Expect(answer).NotTo(ContainSubstring(names.CoordinatorPod("other")))
	})

	It("lets unidentified callers in where earlier releases are taken over, and refuses pods of other jobs all the same", func(ctx SpecContext) {
		base, foreign := serve(auth.ModeLegacy), given.next()
		at(ctx, newJob(ctx, namespace, "other", coordinatorLed()), foreign, nil)
		Expect(status(callFrom(ctx, given.next(), http.MethodGet, base+list(), ""))).To(Equal(http.StatusOK))
		Expect(status(callFrom(ctx, foreign, http.MethodGet, base+list(), ""))).To(Equal(http.StatusForbidden))
	})
})

func status(code int, _ string) int { return code }

// readFrom is a client that reads from another.
type readFrom struct {
	client.Client
	reader client.Reader
}

func (r readFrom) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return r.reader.Get(ctx, key, object, options...)
}

func (r readFrom) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return r.reader.List(ctx, list, options...)
}

// callFrom calls from an address of this machine.
func callFrom(ctx context.Context, address, method, url, body string, headers ...string) (int, string) {
	GinkgoHelper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	through := &http.Transport{DialContext: dialer.DialContext}
	defer through.CloseIdleConnections()
	request := specs.Must(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Client{Transport: through}).Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	content := specs.Must(io.ReadAll(response.Body))
	return response.StatusCode, string(content)
}

func serviceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"}}
}

// tokenOf returns a token of service account worker. The token is bound to the holder if the holder is a
// pod.
func tokenOf(ctx context.Context, holder client.Object, audience string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{audience}, ExpirationSeconds: ptr.To[int64](600),
	}}
	if pod, isPod := holder.(*corev1.Pod); isPod {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	Expect(api.live.SubResource("token").Create(ctx, serviceAccount(holder.GetNamespace()), request)).To(Succeed())
	return request.Status.Token
}

// allow gives service account worker a role for the replicas of all jobs of its namespace.
func allow(ctx context.Context, namespace string, verbs ...string) {
	GinkgoHelper()
	Expect(api.live.Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "caller"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs/replicas"}, Verbs: verbs}},
	})).To(Succeed())
	Expect(api.live.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "caller"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "caller"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "worker"}},
	})).To(Succeed())
}
