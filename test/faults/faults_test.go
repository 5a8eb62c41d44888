// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// calls are concurrent calls of clients.
type calls struct {
	group  sync.WaitGroup
	errors chan error
	done   atomic.Int32
}

func newCalls() *calls { return &calls{errors: make(chan error, 1000)} }

// call starts a call concurrently with the spec.
func (c *calls) call(do func() error) {
	c.group.Go(func() {
		if err := do(); err != nil {
			c.errors <- err
		}
		c.done.Add(1)
	})
}

// wait returns when all calls have ended. It expects that none failed.
func (c *calls) wait() {
	GinkgoHelper()
	c.group.Wait()
	Expect(c.errors).NotTo(Receive())
}

// apiAddress returns the address of the API server.
func apiAddress() string {
	return strings.Trim(strings.TrimPrefix(shared.account.Host, "https:"), "/")
}

var _ = Describe("A deployed client", func() {
	It("outlives ten seconds without API server", func(ctx SpecContext) {
		outlive(ctx, func(ctx context.Context, url string) outage {
			jobs, known := make([]*trainer, 4), make([][]string, 4)
			for i := range jobs {
				jobs[i] = newTrainer(ctx).run(ctx)
				known[i] = jobs[i].collect(ctx, jobs[i].client(url), 3)
			}
			return outage{
				want: "3 collectors",
				list: func() (string, error) {
					got, err := jobs[0].client(url).OfCoordinator(ctx)
					return fmt.Sprintf("%d collectors", len(got.Collectors)), err
				},
				writes: []func() error{
					func() error {
						_, err := jobs[1].client(url).Create(ctx, diserver.Resources{Replicas: 2}, diserver.Resources{Replicas: 1})
						return err
					},
					func() error { _, err := jobs[2].client(url).Delete(ctx, 1, 0); return err },
					func() error { return jobs[3].client(url).ReportFailed(ctx, diserver.Failed{Collectors: known[3][:1]}) },
				},
				check: func() {
					GinkgoHelper()
					jobs[0].expect(ctx, 3, 0)
					jobs[1].expect(ctx, 6, 0)
					jobs[2].expect(ctx, 2, 0)
					jobs[3].expect(ctx, 3, 1)
				},
			}
		})
	})

	It("never sees its list go backwards on a server whose watch was broken", func(ctx SpecContext) {
		way := newProxy(ctx, apiAddress())
		behind := newServer(ctx, "https://"+way.Address(), server.Times{BrokenWatch: time.Nanosecond}).waitReady()
		ahead := newServer(ctx, shared.account.Host, server.Times{}).waitReady()
		job := newTrainer(ctx).run(ctx)
		for members := 1; members <= 2; members++ {
			Expect(job.client(behind.url).OfCoordinator(ctx)).To(HaveField("Collectors", HaveLen(members-1)))
			way.Set(proxy.Cut)
			Eventually(func() error { return behind.Ready(nil) }).ShouldNot(Succeed(), "the server does not know yet that its watches are broken")
			_, err := job.client(ahead.url).Create(ctx, diserver.Resources{Replicas: 1, CPUs: strconv.Itoa(members)}, diserver.Resources{})
			Expect(err).NotTo(HaveOccurred())
			all := newCalls()
			all.call(func() error {
				got, err := job.client(behind.url).OfCoordinator(ctx)
				for diserver.IsLater(err) {
					got, err = job.client(behind.url).OfCoordinator(ctx)
				}
				if err == nil && len(got.Collectors) != members {
					err = fmt.Errorf("got %v, want %d collectors", got.Collectors, members)
				}
				return err
			})
			Consistently(all.done.Load, "100ms").Should(BeZero())
			way.Set(proxy.Open)
			all.wait()
		}
	})

	It("gets all that it asks for of two servers when many ask at once", func(ctx SpecContext) {
		one, two := newServer(ctx, shared.account.Host, server.Times{}), newServer(ctx, shared.account.Host, server.Times{})
		job := newTrainer(ctx).run(ctx)
		all := newCalls()
		const writers, rounds = 8, 3
		for writer := range writers {
			by := job.client([]*running{one.waitReady(), two.waitReady()}[writer%2].url)
			all.call(func() error {
				for round := range rounds {
					// Each request differs, so that none counts as a repeat.
					if _, err := by.Create(ctx, diserver.Resources{Replicas: 2, CPUs: strconv.Itoa(1 + writer*rounds + round)}, diserver.Resources{}); err != nil {
						return err
					}
				}
				_, err := by.Delete(ctx, 1, 0)
				return err
			})
		}
		all.wait()
		job.expect(ctx, writers*(2*rounds-1), 0)
	})

	It("is answered by the next server when one is stopped under it", func(ctx SpecContext) {
		first := newServer(ctx, shared.account.Host, server.Times{}).waitReady()
		second := newServer(ctx, shared.account.Host, server.Times{}).waitReady()
		service := newProxy(ctx, strings.TrimPrefix(first.url, "http://"))
		url := "http://" + service.Address()
		job := newTrainer(ctx).run(ctx)
		job.collect(ctx, job.client(url), 1)
		all := newCalls()
		var asked atomic.Int32
		enough := make(chan struct{})
		for writer := range 4 {
			by := job.client(url)
			all.call(func() error {
				for round := 0; ; round++ {
					asked.Add(1)
					if _, err := by.Create(ctx, diserver.Resources{Replicas: 1, CPUs: fmt.Sprintf("%dm", 2+writer+10*round)}, diserver.Resources{}); err != nil {
						return err
					}
					select {
					case <-enough:
						return nil
					default:
					}
				}
			})
		}
		members := func() int { return len(job.members(ctx)) }
		Eventually(members).Should(BeNumerically(">", 8))
		service.Lead(strings.TrimPrefix(second.url, "http://"))
		first.stop()
		Eventually(members).Should(BeNumerically(">", members()+8))
		close(enough)
		all.wait()
		job.expect(ctx, 1+int(asked.Load()), 0)
	})

	It("is not answered before the server knows what there is", func(ctx SpecContext) {
		way := newProxy(ctx, apiAddress())
		before := newTrainer(ctx).run(ctx)
		way.Set(proxy.BlackHole)
		var cold *running
		made := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(made)
			cold = newServer(ctx, "https://"+way.Address(), server.Times{})
		}()
		Consistently(made, "500ms").ShouldNot(BeClosed())
		way.Set(proxy.Open)
		Eventually(made).Should(BeClosed())
		all := newCalls()
		all.call(func() error { _, err := before.client(cold.url).OfCoordinator(ctx); return err })
		all.wait()

		By("knowing what was made a moment ago")
		late := newTrainer(ctx)
		config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: names.AggregatorConfig}}
		config.Spec.Aggregator.Template = jobs.Template()
		Expect(client.IgnoreAlreadyExists(shared.live.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}}))).To(Succeed())
		late.run(ctx)
		Expect(shared.live.Create(ctx, config)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(shared.live.Delete(ctx, config)).To(Succeed()) })
		_, err := late.client(cold.url).Create(ctx, diserver.Resources{Replicas: 1}, diserver.Resources{Replicas: 1, GPUs: "2"})
		Expect(err).NotTo(HaveOccurred())
		Expect(late.members(ctx)).To(HaveLen(2))

		By("waiting for a Membership that the operator makes again")
		job := newTrainer(ctx).run(ctx)
		Expect(shared.live.Delete(ctx, &v2alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Namespace: job.key.Namespace, Name: job.key.Name}})).To(Succeed())
		job.collect(ctx, job.client(cold.url), 2)
		job.expect(ctx, 2, 0)
	})

	It("is answered once when the API server's answer is lost on its way to the server", func(ctx SpecContext) {
		way := newGateway(shared.account)
		served := newServer(ctx, way.url, server.Times{}).waitReady()
		job := newTrainer(ctx).run(ctx)
		by := job.client(served.url)
		way.lost.Store(1)
		pods := job.collect(ctx, by, 3)
		way.lost.Store(1)
		_, err := by.Delete(ctx, 1, 0)
		Expect(err).NotTo(HaveOccurred())
		way.lost.Store(1)
		Expect(by.ReportFailed(ctx, diserver.Failed{Collectors: pods[:1]})).To(Succeed())
		Expect(way.lost.Load()).To(BeZero())
		job.expect(ctx, 2, 1)
	})

	It("waits while the API server cannot be asked who it is and what it may", func(ctx SpecContext) {
		way := newGateway(shared.account)
		served := newServer(ctx, way.url, server.Times{}).waitReady()
		job := newTrainer(ctx).run(ctx)
		token := tokenOf(ctx, job.key.Namespace)
		for _, resource := range []string{"tokenreviews", "subjectaccessreviews"} {
			way.refuse(resource)
			before := way.refused.Load()
			all := newCalls()
			by := job.client(served.url, "Authorization", "Bearer "+token)
			all.call(func() error {
				_, err := by.Create(ctx, diserver.Resources{Replicas: 1, CPUs: strconv.Itoa(len(resource))}, diserver.Resources{})
				return err
			})
			Eventually(way.refused.Load).Should(BeNumerically(">", before+2))
			Expect(all.done.Load()).To(BeZero())
			way.refuse("nothing")
			all.wait()
			// A server caches the results of reviews for a while.
			served = newServer(ctx, way.url, server.Times{}).waitReady()
		}
		job.expect(ctx, 2, 0)
	})
})

// outage is what clients do during an outage of the API server.
type outage struct {
	// list requests a job's replicas. want is the only correct answer.
	list func() (string, error)
	want string
	// writes are calls that wait until the outage ends and then check the result.
	writes []func() error
	check  func()
}

// outlive makes the API server unreachable for two servers concurrently: one connection is cut, one is
// a black hole. Clients of the jobs from begin make calls meanwhile.
func outlive(ctx context.Context, begin func(ctx context.Context, url string) outage) {
	GinkgoHelper()
	var outages sync.WaitGroup
	for _, kind := range []proxy.State{proxy.Cut, proxy.BlackHole} {
		way := newProxy(ctx, apiAddress())
		served := newServer(ctx, "https://"+way.Address(), server.Times{Call: 2 * time.Second, BrokenWatch: 3 * time.Second}).waitReady()
		during := begin(ctx, served.url)
		outages.Go(func() {
			defer GinkgoRecover()
			during.outlive(kind, way, served)
		})
	}
	outages.Wait()
}

func (o *outage) outlive(kind proxy.State, way *proxy.Proxy, served *running) {
	GinkgoHelper()
	all, polled, stop := newCalls(), atomic.Int32{}, make(chan struct{})
	all.call(func() error { return o.poll(&polled, stop) })
	Eventually(polled.Load).Should(BeNumerically(">", 3))

	way.Set(kind)
	for _, write := range o.writes {
		all.call(write)
	}
	begun := time.Now()
	Eventually(func() error { return served.Ready(nil) }).ShouldNot(Succeed(), "the server is still ready")
	before := polled.Load()
	Consistently(func() []any {
		return []any{len(all.errors), all.done.Load()}
	}, max(10*time.Second-time.Since(begun), time.Second), "100ms").Should(Equal([]any{0, int32(0)}), string(kind))
	// One request may have been in flight.
	Expect(polled.Load()).To(BeNumerically("<=", before+1), "polls were answered though the watches are broken")
	before = polled.Load()
	way.Set(proxy.Open)
	Eventually(polled.Load).Should(BeNumerically(">", before+3))
	Eventually(func() error { return served.Ready(nil) }).Should(Succeed())
	close(stop)
	all.wait()
	o.check()
}

// poll requests the list repeatedly. The answer must never change.
func (o *outage) poll(polled *atomic.Int32, stop <-chan struct{}) error {
	for {
		switch got, err := o.list(); {
		case diserver.IsLater(err):
		case err != nil:
			return err
		case got != o.want:
			return fmt.Errorf("got %s, want %s", got, o.want)
		default:
			polled.Add(1)
		}
		select {
		case <-stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tokenOf returns the token of a user with all permissions on the jobs of a namespace.
func tokenOf(ctx context.Context, namespace string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user"}}
	Expect(shared.live.Create(ctx, account)).To(Succeed())
	Expect(shared.live.Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs/replicas"}, Verbs: []string{"*"}}},
	})).To(Succeed())
	Expect(shared.live.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "user"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "user"}},
	})).To(Succeed())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{names.ServerAudience}}}
	Expect(shared.live.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}
