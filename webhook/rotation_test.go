// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/certs/record"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// rotation is a cluster with several replicas behind one address, and a client that calls them all
// the time.
type rotation struct {
	*cluster
	balancer *balancer
	caller   *caller
}

// start starts a replica and forwards calls to it when it is ready.
func (r *rotation) start(ctx context.Context, name string) *replica {
	GinkgoHelper()
	return r.startAs(ctx, webhook.Options{Replica: name})
}

func (r *rotation) startAs(ctx context.Context, options webhook.Options) *replica {
	GinkgoHelper()
	options.URL = "https://" + r.balancer.address
	started := r.serve(ctx, options)
	r.balancer.add(started)
	started.pass(ctx, 10*time.Second, started.isReady)
	return started
}

// kill stops a replica while no call is in flight.
func (r *rotation) kill(ctx context.Context, killed *replica) {
	GinkgoHelper()
	r.caller.rest.Lock()
	defer r.caller.rest.Unlock()
	r.balancer.remove(killed)
	killed.stop()
	Eventually(func() int { return r.balancer.opened(killed) }).WithContext(ctx).Should(BeZero())
}

// ask requests a rotation, like the command.
func (r *rotation) ask(ctx context.Context, request string) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: webhook.AuthoritySecret}}
	Expect(r.Patch(ctx, secret, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, record.AnnotationRotate, request)))).To(Succeed())
}

// isMet returns nil once the authority was replaced for a request.
func (r *rotation) isMet(ctx context.Context, request string) func() error {
	return func() error {
		if rotated := r.authority(ctx).Annotations[record.AnnotationRotated]; rotated != request {
			return fmt.Errorf("the last request that was met is %q", rotated)
		}
		return nil
	}
}

// rotate requests a rotation and waits until the new authority is published beside the old one and
// the API server has observed it.
func (r *rotation) rotate(ctx context.Context, request string) (before, after []byte) {
	GinkgoHelper()
	before = r.authority(ctx).Data[corev1.TLSCertKey]
	r.ask(ctx, request)
	Eventually(r.isMet(ctx, request)).WithContext(ctx).Should(Succeed())
	secret := r.authority(ctx)
	Expect(secret.Annotations).NotTo(HaveKey(record.AnnotationRotate))
	after = secret.Data[corev1.TLSCertKey]
	Expect(after).NotTo(Equal(before))
	Expect(bytes.HasPrefix(secret.Data[certs.PreviousKey], before)).To(BeTrue(), "the old one is remembered")
	Eventually(r.published(ctx, before, after)).WithContext(ctx).Should(Succeed())
	r.awaitLearned(ctx, r.caller)
	return before, after
}

// published returns nil if exactly these authorities are published everywhere.
func (r *rotation) published(ctx context.Context, all ...[]byte) func() error {
	return func() error {
		bundles, err := r.caller.bundles(ctx)
		if err != nil {
			return err
		}
		for place, bundle := range bundles {
			if count := bytes.Count(bundle, []byte("BEGIN")); count != len(all) {
				return fmt.Errorf("%s has %d authorities, want %d", place, count, len(all))
			}
			for _, one := range all {
				if !bytes.Contains(bundle, bytes.TrimSpace(one)) {
					return fmt.Errorf("%s lacks an authority", place)
				}
			}
		}
		return nil
	}
}

// serves returns nil if a replica serves with an authority.
func serves(ctx context.Context, by *replica, authority []byte) func() error {
	return func() error { return shake(ctx, by.address, authority) }
}

// heard returns the time of a replica's last heartbeat.
func (r *rotation) heard(ctx context.Context, name string, now time.Time) time.Time {
	GinkgoHelper()
	for _, replica := range record.Replicas(r.authority(ctx), now) {
		if replica.Name == name {
			return replica.At
		}
	}
	return time.Time{}
}

// mortal is the connection of a replica to the API server that breaks after a number of writes. The
// replica keeps serving until it is stopped.
type mortal struct {
	mutex sync.Mutex
	// left is the remaining number of writes; it is negative if there is no limit.
	left int
	dead chan struct{}
}

func newMortal() *mortal { return &mortal{left: -1, dead: make(chan struct{})} }

// doom breaks the connection after a number of further writes.
func (m *mortal) doom(writes int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.left = writes
}

// isDead reports whether the connection is broken.
func (m *mortal) isDead() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

func (m *mortal) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		if m.isDead() {
			return nil, errors.New("the replica is dead")
		}
		response, err := next.RoundTrip(request)
		if err == nil && request.Method != http.MethodGet && response.StatusCode < http.StatusBadRequest {
			m.mutex.Lock()
			if m.left--; m.left == 0 {
				close(m.dead)
			}
			m.mutex.Unlock()
		}
		return response, err
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

var _ = Describe("Replacing the authority while jobs are read and written all the time", func() {
	It("fails no call, waits for a replica that is slow, and goes on where replicas are killed in between", func(ctx SpecContext) {
		r := &rotation{cluster: newCluster(ctx), balancer: newBalancer(ctx)}
		r.caller = &caller{api: r, address: r.balancer.address}
		first, second := r.start(ctx, "first"), r.start(ctx, "second")
		Eventually(func() error { return admissionprobe.Probe(ctx, r, metav1.NamespaceDefault) }).WithContext(ctx).Should(Succeed())
		r.caller.job = specs.Job("v1alpha1", metav1.NamespaceDefault, "kept", "spec: {coordinator: {template: {spec: {containers: [{name: di-container, image: a}]}}}}")
		Expect(r.Create(ctx, r.caller.job.DeepCopy())).To(Succeed())
		stop := r.caller.start(ctx)

		By("replacing it")
		before, after := r.rotate(ctx, "one")
		Expect(serves(ctx, first, before)()).To(Succeed(), "nothing is served yet that API servers may not know")
		Expect(serves(ctx, second, before)()).To(Succeed())
		r.caller.more(ctx, 5)

		By("one replica following, the other being slow")
		first.pass(ctx, 10*time.Second, serves(ctx, first, after))
		Expect(serves(ctx, second, before)()).To(Succeed())
		// At the next heartbeat of the first replica, it has checked since the previous one whether
		// the old authority can be removed.
		for range 2 {
			last := r.heard(ctx, "first", first.clock.Now())
			first.pass(ctx, time.Minute, func() error {
				if !r.heard(ctx, "first", first.clock.Now()).After(last) {
					return errors.New("was not heard of again")
				}
				return nil
			})
		}
		Expect(r.published(ctx, before, after)()).To(Succeed(), "the slow one still serves by the old one")
		r.caller.more(ctx, 5)

		By("the slow one following, too")
		second.pass(ctx, 10*time.Second, serves(ctx, second, after))
		first.pass(ctx, 10*time.Second, r.published(ctx, after))
		r.caller.more(ctx, 5)

		By("replicas being killed between the steps")
		before, after = r.rotate(ctx, "two")
		Expect(serves(ctx, first, before)()).To(Succeed())
		r.kill(ctx, second)
		third := r.start(ctx, "third")
		Expect(serves(ctx, third, after)()).To(Succeed(), "who starts serves by what is new")
		Expect(r.published(ctx, before, after)()).To(Succeed())
		r.caller.more(ctx, 5)
		r.kill(ctx, first)
		r.start(ctx, "fourth")
		third.pass(ctx, 10*time.Second, r.published(ctx, after))
		r.caller.more(ctx, 5)
		GinkgoWriter.Printf("rounds of calls while the authority was replaced twice: %d\n", r.caller.calls.Load())

		Expect(stop()).NotTo(HaveOccurred())
	})

	It("comes to its end, after whichever write of an operator that is killed", func(ctx SpecContext) {
		r := &rotation{cluster: newCluster(ctx), balancer: newBalancer(ctx)}
		r.caller = &caller{api: r, address: r.balancer.address}
		// The others wait an hour of this clock for each killed replica. The clock runs faster
		// than API servers observe publications, so that no calls are made meanwhile.
		clock := testclock.NewFakeClock(time.Now().Add(-48 * time.Hour))
		survivor := r.startAs(ctx, webhook.Options{Replica: "survivor", Clock: clock})
		Eventually(func() error { return admissionprobe.Probe(ctx, r, metav1.NamespaceDefault) }).WithContext(ctx).Should(Succeed())
		r.caller.job = specs.Job("v1alpha1", metav1.NamespaceDefault, "kept", "spec: {coordinator: {template: {spec: {containers: [{name: di-container, image: a}]}}}}")
		Expect(r.Create(ctx, r.caller.job.DeepCopy())).To(Succeed())

		for writes, killed := 1, true; killed; writes++ {
			By(fmt.Sprintf("killing an operator after %d writes", writes))
			life := newMortal()
			config := rest.CopyConfig(r.environment.Config)
			config.Wrap(life.wrap)
			doomed := r.startAs(ctx, webhook.Options{Replica: fmt.Sprintf("doomed-%d", writes), Clock: clock, Config: config})
			life.doom(writes)
			request := fmt.Sprintf("request-%d", writes)
			r.ask(ctx, request)
			ends := func() error {
				if life.isDead() {
					return nil
				}
				if err := r.isMet(ctx, request)(); err != nil {
					return err
				}
				return r.published(ctx, r.authority(ctx).Data[corev1.TLSCertKey])()
			}
			survivor.pass(ctx, 10*time.Second, ends)
			killed = life.isDead()
			r.kill(ctx, doomed)
			if killed && writes%2 == 0 {
				// The client repeats its request, because it did not receive an answer.
				request += "-again"
				r.ask(ctx, request)
			}
			survivor.pass(ctx, 20*time.Minute, func() error {
				if err := r.isMet(ctx, request)(); err != nil {
					return err
				}
				return r.published(ctx, r.authority(ctx).Data[corev1.TLSCertKey])()
			})
			Eventually(func() error { return r.caller.call(ctx) }).WithContext(ctx).Should(Succeed(), "it can be called at the end")
			Expect(writes).To(BeNumerically("<", 30), "a rotation has no such number of writes")
		}
	})
})
