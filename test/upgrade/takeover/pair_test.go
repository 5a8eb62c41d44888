// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/proxy"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

var _ = Describe("Two operators", func() {
	It("take v0.2.2 over once between them, though each is killed after each of its writes", func(ctx SpecContext) {
		p := newPlane(ctx)
		release := legacy.V022()
		left := specs.Must(release.Install(ctx, p.api, jobs, 10))
		p.runDeployments(ctx)
		before := p.read(ctx, "v1alpha1")
		p.install(ctx)
		p.serve(ctx)

		p.startPair(ctx).seeToEnd(ctx)
		p.expectTakenOver(ctx)
		p.awaitAdopted(ctx)
		expectKept(before, p.read(ctx, "v1alpha1"))
		p.expectAlive(ctx, left)
		Expect(p.tooEarly()).To(BeEmpty())

		p.mu.Lock()
		defer p.mu.Unlock()
		Expect(p.leaders).To(HaveLen(2), "both were elected in turn")
		Expect(p.strangers).To(BeEmpty(), "who is not elected does nothing to jobs")
		Expect(onceOnly(p.writes)).To(Equal(map[string]int{
			"PUT /apis/apiextensions.k8s.io/v1/customresourcedefinitions/aggregatorconfigs.diengine.opendilab.org": 1,
			// One write adds a version, and another serves it.
			"PUT /apis/apiextensions.k8s.io/v1/customresourcedefinitions/dijobs.diengine.opendilab.org":                        2,
			"DELETE /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/di-mutating-webhook-configuration":     1,
			"DELETE /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/di-validating-webhook-configuration": 1,
			"PUT /apis/apps/v1/namespaces/di-system/deployments/di-operator/scale":                                             1,
			"PUT /apis/apps/v1/namespaces/di-system/deployments/di-webhook/scale":                                              1,
			"PUT /apis/apps/v1/namespaces/di-system/deployments/di-server/scale":                                               1,
		}))
	}, SpecTimeout(specTimeout))
})

// onceOnly counts the writes that must happen only once: those that change objects of the earlier
// release.
func onceOnly(writes []string) map[string]int {
	counts := map[string]int{}
	for _, at := range writes {
		own := strings.Contains(at, "/secrets") || strings.Contains(at, "/endpointslices/") || strings.Contains(at, "configurations/di-orchestrator-")
		if !own && !strings.HasPrefix(at, "PATCH") {
			counts[at]++
		}
	}
	return counts
}

// pair contains two operators of one installation, each with webhooks, by name.
type pair struct {
	*plane
	ways map[string]*gateway
	// addresses are the addresses of the webhooks.
	addresses map[string]string
	// runs are the running programs. The ledger's lock guards writes.
	runs map[string]*programs
	// killed receives each death.
	killed chan death
}

// death is the kill of an operator after a write.
type death struct {
	who string
	was *programs
}

// startPair starts two operators. Each is killed after each of its writes for the takeover. The API
// server reaches any of them that serves, as through a Service.
func (p *plane) startPair(ctx context.Context) *pair {
	GinkgoHelper()
	started := &pair{
		plane: p, ways: map[string]*gateway{}, runs: map[string]*programs{}, addresses: map[string]string{}, killed: make(chan death, 1000),
	}
	p.mu.Lock()
	p.writes, p.always = nil, started.kill
	p.mu.Unlock()
	for _, who := range []string{"one", "other"} {
		started.addresses[who] = freeAddress(ctx)
		started.ways[who] = newGateway(p.environment.Config, p.ledger, who)
	}
	service := specs.Must(proxy.New(ctx, p.address, slices.Collect(maps.Values(started.addresses))...))
	DeferCleanup(service.Close)
	for who := range started.ways {
		started.restart(ctx, who)
	}
	return started
}

// kill kills, once, an operator that has written. The caller holds the ledger's lock.
func (p *pair) kill(who string) {
	killed, lives := p.runs[who]
	if !lives {
		// The operator had two writes in flight.
		return
	}
	delete(p.runs, who)
	_ = killed.kill()
	p.killed <- death{who, killed}
}

func (p *pair) restart(ctx context.Context, who string) {
	GinkgoHelper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[who] = p.ways[who].startPrograms(ctx, p.addresses[who], p.address, "operator: {probeInterval: 0s}", "--leader-elect")
}

// seeToEnd restarts killed operators until the takeover is done and both run.
func (p *pair) seeToEnd(ctx context.Context) {
	GinkgoHelper()
	for deaths := 0; ; deaths++ {
		Expect(deaths).To(BeNumerically("<", 100))
		Eventually(ctx, func() bool { return len(p.killed) > 0 || p.isDone(ctx) }).Should(BeTrue())
		if len(p.killed) == 0 {
			break
		}
		p.revive(ctx, <-p.killed)
	}
	p.mu.Lock()
	p.always = nil
	p.mu.Unlock()
	for len(p.killed) > 0 {
		p.revive(ctx, <-p.killed)
	}
}

// revive restarts a killed operator. It first releases the dead operator's lease, as would happen
// when it expires, so that the other operator, if it runs, can acquire it before.
func (p *pair) revive(ctx context.Context, found death) {
	GinkgoHelper()
	if p.elected() == found.who {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "di-orchestrator-operator"}}
		Expect(client.IgnoreNotFound(p.api.Delete(ctx, lease))).To(Succeed())
		Eventually(ctx, func() bool { return p.elected() != found.who || len(p.killed) > 0 }).Should(BeTrue())
	}
	p.restart(ctx, found.who)
}
