// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	allocatorcontroller "opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/scaleplan"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// patience is how long the watches may take under load.
const patience = testkit.Patience

var _ = Describe("The operator in its manager", func() {
	It("follows jobs by its watches", func(ctx SpecContext) {
		s := newSpace(ctx)
		earlier := newSpace(ctx)
		earlier.submitLegacy(ctx, "0").team(ctx)
		before := earlier.identities(ctx)
		registry := s.startManager(ctx)

		By("taking over a job of an earlier release")
		Eventually(earlier.reasons).WithContext(ctx).WithTimeout(patience).Should(ContainElement("Adopted"))
		Eventually(func(g Gomega, ctx context.Context) {
			var lists v2alpha1.MembershipList
			g.Expect(shared.api.List(ctx, &lists, client.InNamespace(earlier.name))).To(Succeed())
			g.Expect(lists.Items).To(HaveLen(1))
			g.Expect(lists.Items[0].Status.Slots).To(HaveLen(4))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(earlier.members(ctx)).To(ConsistOf(teamMembers()))
		Expect(earlier.identities(ctx)).To(Equal(before))
		earlier.expectStoredOwners(ctx)

		By("running a worker-led job to its end")
		s.submitWorkers(ctx, 1)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))
		s.end(ctx, "job-collector-1", 1)
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(s.job(ctx).Status.Restarts).To(BeEquivalentTo(1))
			g.Expect(s.phase(ctx)).To(Equal(v2alpha1.JobStarting))
			g.Expect(s.podNames(ctx)).To(HaveLen(3))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		for _, name := range s.podNames(ctx) {
			s.end(ctx, name, 0)
		}
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobSucceeded))
		Eventually(s.services).WithContext(ctx).WithTimeout(patience).Should(BeEmpty())
		Eventually(samples).WithArguments(registry, "jobs{").WithTimeout(patience).Should(
			HaveKeyWithValue("jobs{lifecycle=WorkerLed,phase=Succeeded}", BeNumerically(">=", 1)))
		Eventually(s.reasons).WithContext(ctx).WithTimeout(patience).Should(ContainElements(
			"SuccessfulCreate", "SuccessfulDelete", "JobStarting", "JobRunning", "JobRestarting", "JobSucceeded",
		))

		By("running a coordinator-led job whose AggregatorConfig comes late")
		Expect(shared.api.Delete(ctx, s.job(ctx), client.PropagationPolicy("Background"))).To(Succeed())
		for _, pod := range s.pods(ctx) {
			Expect(shared.api.Delete(ctx, &pod, client.GracePeriodSeconds(0))).To(Succeed())
		}
		s.submitLed(ctx, "")
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(ConsistOf("job-coordinator"))
		s.run(ctx)
		config := specs.Get[v2alpha1.AggregatorConfig](ctx, shared.api, s.name, "aggregator-config")
		Expect(shared.api.Delete(ctx, config)).To(Succeed())
		s.askForReplicas(ctx)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		Eventually(s.reasons).WithContext(ctx).WithTimeout(patience).Should(ContainElement("AggregatorConfigMissing"))
		config.ResourceVersion, config.UID = "", ""
		Expect(shared.api.Create(ctx, config)).To(Succeed())
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(5))
		s.run(ctx)
		s.end(ctx, "job-coordinator", 0)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobSucceeded))
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(ConsistOf("job-coordinator"))
	})
})

// startManager runs the operator as the program does until the spec ends.
func (s *space) startManager(ctx context.Context) *prometheus.Registry {
	return s.startManagerWith(ctx, shared.account)
}

// startManagerWith runs the operator with a configuration, for the jobs of the named namespaces. Without
// names it covers all namespaces.
func (s *space) startManagerWith(ctx context.Context, cluster *rest.Config, namespaces ...string) *prometheus.Registry {
	caches := controllers.CacheOptions()
	for _, namespace := range namespaces {
		caches.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:  shared.scheme,
		Cache:   caches,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Each spec has a separate manager.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	registry := prometheus.NewRegistry()
	Expect(Setup(context.WithoutCancel(ctx), mgr, Options{
		Registerer: registry, Drain: time.Nanosecond,
		AggregatorConfig: client.ObjectKey{Namespace: s.name, Name: "aggregator-config"},
	})).To(Succeed())
	Expect(scaleplan.Setup(context.WithoutCancel(ctx), mgr, scaleplan.Options{Registerer: registry})).To(Succeed())
	Expect(allocatorcontroller.Setup(mgr, allocatorcontroller.Options{Registerer: registry})).To(Succeed())
	Expect(samples(registry, "jobs{")).To(BeEmpty(), "who does not lead has no cache to count in")
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(running) }()
	DeferCleanup(func() {
		stop()
		Expect(<-stopped).To(Succeed())
	})
	return registry
}

func (s *space) phase(ctx context.Context) v2alpha1.Phase {
	return s.job(ctx).Status.Phase
}

// reasons returns the reasons of all Events in the namespace.
func (s *space) reasons(ctx context.Context) []string {
	list := specs.List[eventsv1.EventList](ctx, shared.api, client.InNamespace(s.name))
	var reasons []string
	for i := range list.Items {
		reasons = append(reasons, list.Items[i].Reason)
	}
	return reasons
}
