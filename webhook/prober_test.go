// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// probing is a prober whose clock and election a spec controls, and whose calls fail while the spec
// says so.
type probing struct {
	admissionprobe.Prober
	clock    *testclock.FakeClock
	recorder *events.FakeRecorder
	registry *prometheus.Registry
	fail     func() error
	// done has an item for each finished probe.
	done chan struct{}
}

func startProbing(ctx context.Context, elected bool) *probing {
	GinkgoHelper()
	p := &probing{
		clock: testclock.NewFakeClock(time.Now()), recorder: events.NewFakeRecorder(10), registry: prometheus.NewRegistry(),
		done: make(chan struct{}), fail: func() error { return nil },
	}
	live := specs.Must(client.NewWithWatch(api.Config, client.Options{}))
	p.Prober = admissionprobe.Prober{
		Namespace: "default", Interval: time.Minute, Clock: p.clock, Recorder: p.recorder, IsElected: func() bool { return elected }, Log: GinkgoLogr, Reader: live,
		API: interceptor.NewClient(live, interceptor.Funcs{
			Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
				// The spec changes the result of a probe before it releases the probe.
				<-p.done
				if err := p.fail(); err != nil {
					return err
				}
				return next.Create(ctx, object, options...)
			},
		}),
	}
	Expect(p.Register(p.registry)).To(Succeed())
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- p.Start(running) }()
	DeferCleanup(func() {
		stop()
		close(p.done)
		Expect(<-stopped).To(Succeed())
	})
	return p
}

// once releases one probe, and waits until it is counted.
func (p *probing) once() {
	GinkgoHelper()
	before := p.count("")
	p.done <- struct{}{}
	Eventually(func() float64 { return p.count("") }).Should(Equal(before + 1))
	Eventually(p.clock.HasWaiters).Should(BeTrue())
	p.clock.Step(time.Minute)
}

// count returns the number of probes with a result, "" for all.
func (p *probing) count(result string) float64 {
	GinkgoHelper()
	families := specs.Must(p.registry.Gather())
	total := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "di_orchestrator_probes_total" && (result == "" || metric.GetLabel()[0].GetValue() == result) {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return total
}

func (p *probing) ok() float64 {
	GinkgoHelper()
	families := specs.Must(p.registry.Gather())
	for _, family := range families {
		if family.GetName() == "di_orchestrator_probe_ok" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

var _ = Describe("The probe of the way through the API server", func() {
	It("tells once that jobs are not admitted, and once that they are again", func(ctx SpecContext) {
		p := startProbing(context.WithoutCancel(ctx), true)
		p.once()
		Expect(p.count("ok")).To(Equal(1.0))
		Expect(p.ok()).To(Equal(1.0))

		p.fail = func() error { return errors.New(`Internal error occurred: failed calling webhook "x": refused`) }
		p.once()
		Expect(p.recorder.Events).To(BeEmpty(), "one failure alone is in the metrics")
		for range 3 {
			p.once()
		}
		Eventually(p.recorder.Events).Should(Receive(ContainSubstring("Warning AdmissionProbeFailed")))
		Expect(p.count("webhook")).To(Equal(4.0))
		Expect(p.ok()).To(Equal(0.0))

		p.fail = func() error { return nil }
		for range 3 {
			p.once()
		}
		Eventually(p.recorder.Events).Should(Receive(ContainSubstring("Normal AdmissionProbeSucceeded")))
		Expect(p.recorder.Events).To(BeEmpty())
	})

	It("tells by metrics alone where another operator is elected", func(ctx SpecContext) {
		p := startProbing(context.WithoutCancel(ctx), false)
		p.fail = func() error { return errors.New("conversion webhook for diengine.opendilab.org failed") }
		for range 4 {
			p.once()
		}
		Expect(p.count("conversion")).To(Equal(4.0))
		Expect(p.recorder.Events).To(BeEmpty())
	})

	It("tells what fails by what a real API server answers", func(ctx SpecContext) {
		By("an operator that may not create jobs")
		user := rest.CopyConfig(api.Config)
		user.Impersonate.UserName = "nobody"
		forbidden := specs.Must(client.New(user, client.Options{}))
		Expect(admissionprobe.Classify(admissionprobe.Probe(ctx, forbidden, "default"))).To(Equal("forbidden"))

		By("an API server that nobody answers at")
		nowhere := &rest.Config{Host: "https://127.0.0.1:1"}
		unreachable := specs.Must(client.New(nowhere, client.Options{Mapper: c.RESTMapper()}))
		Expect(admissionprobe.Classify(admissionprobe.Probe(ctx, unreachable, "default"))).To(Equal("unreachable"))

		By("a webhook that does not answer")
		bare := specs.Must(testkit.StartAPI(ctx))
		DeferCleanup(bare.Stop)
		lonely := specs.Must(client.New(bare.Config, client.Options{}))
		Expect(lonely.Patch(ctx, specs.Definition(webhook.CRD), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"Webhook",`+
			`"webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/convert"}}}}}`)))).To(Succeed())
		Eventually(func() string { return admissionprobe.Classify(admissionprobe.Probe(ctx, lonely, "default")) }).Should(Equal("conversion"))

		By("a version that is not served")
		empty := specs.Must(testkit.StartBareAPI())
		DeferCleanup(empty.Stop)
		without := specs.Must(client.New(empty.Config, client.Options{}))
		Expect(admissionprobe.Classify(admissionprobe.Probe(ctx, without, "default"))).To(Equal("not-served"))
	})
})
