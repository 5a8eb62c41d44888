// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
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
)

// addresses gives each pod of the specs a loopback address of its own, from
// which a client of this process can call.
type addresses struct{ last atomic.Int32 }

func (a *addresses) next() string {
	n := a.last.Add(1)
	return fmt.Sprintf("127.9.%d.%d", n/200, n%200+1)
}

var _ = Describe("who may call", func() {
	var given addresses
	var namespace string
	var job *v2alpha1.DIJob

	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		Expect(api.live.Create(ctx, serviceAccount(namespace))).To(Succeed())
		job = newTrainer(ctx, namespace)
	})

	serve := func(mode server.Mode) string {
		GinkgoHelper()
		served, err := server.New(server.Options{
			Client: api.cached, APIReader: api.live, Cache: api.cache, Log: GinkgoLogr, Identity: mode,
		})
		Expect(err).NotTo(HaveOccurred())
		listening := httptest.NewServer(served.Handler())
		DeferCleanup(listening.Close)
		return listening.URL
	}
	list := func() string {
		return "/v1alpha1/replicas?namespace=" + namespace + "&coordinator=" + names.CoordinatorPod(trainer)
	}
	post := fmt.Sprintf(`{"namespace":"%%s","coordinator":%q,"collectors":{"replicas":1}}`, names.CoordinatorPod(trainer))

	// at runs a pod of the job, or of none, at an address.
	at := func(ctx context.Context, owner *v2alpha1.DIJob, address string, change func(*corev1.Pod)) *corev1.Pod {
		GinkgoHelper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
			Spec: corev1.PodSpec{ServiceAccountName: "worker", Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
		if owner != nil {
			pod.Namespace = owner.Namespace
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v2alpha1.GroupVersion.WithKind("DIJob"))}
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
			base, address := serve(server.ModeEnforce), given.next()
			at(ctx, job, address, nil)
			Expect(status(callFrom(ctx, address, http.MethodGet, base+list(), ""))).To(Equal(http.StatusOK))
			Expect(status(callFrom(ctx, address, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace)))).To(Equal(http.StatusOK))
			Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(1))
		})

		DescribeTable("refuses whoever is not surely a pod of the job, and changes nothing",
			func(ctx SpecContext, want int, pod func(ctx context.Context, address string)) {
				base, address := serve(server.ModeEnforce), given.next()
				pod(ctx, address)
				within, cancel := context.WithTimeout(ctx, 40*time.Second)
				defer cancel()
				Expect(status(callFrom(within, address, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace)))).To(Equal(want))
				Expect(membershipOf(ctx, job).Spec.Members).To(BeEmpty())
			},
			Entry("a pod of no job", http.StatusForbidden, func(ctx context.Context, address string) { at(ctx, nil, address, nil) }),
			Entry("a pod of another job", http.StatusForbidden, func(ctx context.Context, address string) {
				at(ctx, newJob(ctx, namespace, "other", coordinatorLed()), address, nil)
			}),
			Entry("a pod of a job of the same name in another namespace", http.StatusForbidden, func(ctx context.Context, address string) {
				at(ctx, newJob(ctx, newNamespace(ctx), trainer, coordinatorLed()), address, nil)
			}),
			Entry("a pod of another namespace that says it is the job's", http.StatusForbidden, func(ctx context.Context, address string) {
				elsewhere := newNamespace(ctx)
				at(ctx, job, address, func(pod *corev1.Pod) { pod.Namespace = elsewhere })
			}),
		)

		It("waits for an address that is not known yet", func(ctx SpecContext) {
			base, address := serve(server.ModeEnforce), given.next()
			answered := make(chan int, 1)
			go func() {
				defer GinkgoRecover()
				answered <- status(callFrom(ctx, address, http.MethodGet, base+list(), ""))
			}()
			Consistently(answered, 300*time.Millisecond).ShouldNot(Receive())
			at(ctx, job, address, nil)
			Eventually(answered, 10*time.Second).Should(Receive(Equal(http.StatusOK)))
		})
	})

	// What cannot be told is waited for as long as a request may take, so these
	// share one wait.
	It("refuses addresses that stand for no single live pod", func(ctx SpecContext) {
		base := serve(server.ModeEnforce)
		hidden := map[string]string{"nobody's": given.next(), "a node's": given.next(), "a finished pod's": given.next(), "two pods'": given.next()}
		at(ctx, job, hidden["a node's"], func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })
		at(ctx, job, hidden["a finished pod's"], func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		at(ctx, job, hidden["two pods'"], nil)
		at(ctx, nil, hidden["two pods'"], nil)
		got := make(chan string, len(hidden))
		for whose, address := range hidden {
			go func() {
				defer GinkgoRecover()
				got <- fmt.Sprint(whose, " ", status(callFrom(ctx, address, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace))))
			}()
		}
		for range hidden {
			Eventually(got, 40*time.Second).Should(Receive(HaveSuffix(" 401")))
		}
		Expect(membershipOf(ctx, job).Spec.Members).To(BeEmpty())
	})

	Context("by token", func() {
		// Whoever comes with a token is not asked where from.
		withToken := func(ctx context.Context, token, method, url, body string) (int, string) {
			GinkgoHelper()
			return call(ctx, method, url, body, "Authorization", "Bearer "+token)
		}

		It("lets the job's own pods, and no other job's", func(ctx SpecContext) {
			base := serve(server.ModeEnforce)
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
			flaky := interceptor.NewClient(api.live, interceptor.Funcs{
				Create: func(ctx context.Context, through client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if _, isReview := object.(*authenticationv1.TokenReview); isReview && failures > 0 {
						failures--
						return apierrors.NewServiceUnavailable("starting")
					}
					return through.Create(ctx, object, options...)
				},
			})
			// What is written goes through the flaky client; what is read comes from the cache.
			served, err := server.New(server.Options{
				Client: readFrom{flaky, api.cached}, APIReader: api.live, Cache: api.cache, Log: GinkgoLogr,
			})
			Expect(err).NotTo(HaveOccurred())
			listening := httptest.NewServer(served.Handler())
			DeferCleanup(listening.Close)
			own := tokenOf(ctx, at(ctx, job, given.next(), nil), names.ServerAudience)
			Expect(status(withToken(ctx, own, http.MethodGet, listening.URL+list(), ""))).To(Equal(http.StatusOK))
			Expect(failures).To(BeZero())
		})

		It("refuses a token for another audience, of a pod that has finished, and none at all", func(ctx SpecContext) {
			base := serve(server.ModeEnforce)
			pod := at(ctx, job, given.next(), nil)
			Expect(status(withToken(ctx, tokenOf(ctx, pod, "https://kubernetes.default.svc"), http.MethodGet, base+list(), ""))).To(Equal(http.StatusUnauthorized))
			token := tokenOf(ctx, pod, names.ServerAudience)
			pod.Status.Phase = corev1.PodSucceeded
			Expect(api.live.Status().Update(ctx, pod)).To(Succeed())
			cacheKnows(ctx, pod)
			Expect(status(withToken(ctx, token, http.MethodGet, base+list(), ""))).To(Equal(http.StatusUnauthorized))
			Expect(status(withToken(ctx, "", http.MethodGet, base+list(), ""))).To(Equal(http.StatusUnauthorized))
		})

		It("lets a user do what its roles say", func(ctx SpecContext) {
			base := serve(server.ModeEnforce)
			allow(ctx, namespace, "get", "list")
			token := tokenOf(ctx, serviceAccount(namespace), names.ServerAudience)
			Expect(status(withToken(ctx, token, http.MethodGet, base+list(), ""))).To(Equal(http.StatusOK))
			Expect(status(withToken(ctx, token, http.MethodGet, base+"/v1alpha1/replicas?namespace="+namespace, ""))).To(Equal(http.StatusOK))
			Expect(status(withToken(ctx, token, http.MethodGet, base+"/v1alpha1/replicas", ""))).To(Equal(http.StatusForbidden))
			Expect(status(withToken(ctx, token, http.MethodPost, base+"/v1alpha1/replicas", fmt.Sprintf(post, namespace)))).To(Equal(http.StatusForbidden))
			worker := newJob(ctx, namespace, "worker-led", v2alpha1.DIJobSpec{
				Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Name: "collector", Template: raw(template)}},
			})
			Expect(status(withToken(ctx, token, http.MethodPost, base+"/v2alpha1/"+namespace+"."+worker.Name+"/replicas", `{"replicas":1}`))).To(Equal(http.StatusForbidden))
		})
	})

	It("shows of all jobs those that the caller may see", func(ctx SpecContext) {
		base, address := serve(server.ModeEnforce), given.next()
		at(ctx, job, address, nil)
		newJob(ctx, namespace, "other", coordinatorLed())
		code, answer := callFrom(ctx, address, http.MethodGet, base+"/v1alpha1/replicas", "")
		Expect(code).To(Equal(http.StatusOK))
		Expect(answer).To(ContainSubstring(names.CoordinatorPod(trainer)))
		Expect(answer).NotTo(ContainSubstring(names.CoordinatorPod("other")))
	})

	It("lets unidentified callers in where earlier releases are taken over, and refuses pods of other jobs all the same", func(ctx SpecContext) {
		base, foreign := serve(server.ModeLegacy), given.next()
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
func callFrom(ctx context.Context, address, method, url, body string) (int, string) {
	GinkgoHelper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	through := &http.Transport{DialContext: dialer.DialContext}
	defer through.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	response, err := (&http.Client{Transport: through}).Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(content)
}

func serviceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"}}
}

// tokenOf returns a token of service account worker, bound to the pod if it is one.
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

// allow gives service account worker a role over the replicas of all jobs of
// its namespace.
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
