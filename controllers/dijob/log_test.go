// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap/zapcore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
)

var _ = Describe("The log", func() {
	It("says in each line about a job which job it is", func(ctx SpecContext) {
		s := newWorkers(ctx, 1)
		logger, lines := testkit.ObserveLog()
		// controller-runtime passes the same logger to a reconcile.
		logged := log.IntoContext(ctx, logger.WithValues("namespace", s.name, "name", "job"))
		pass := func() {
			for range 5 {
				_, err := s.operator.Reconcile(logged, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.name, Name: "job"}})
				Expect(err).NotTo(HaveOccurred())
			}
		}
		pass()
		s.run(ctx)
		pass()
		s.end(ctx, "job-learner-0", 1)
		pass()
		job := s.job(ctx)
		Expect(lines.All()).NotTo(BeEmpty())
		var told []string
		for _, line := range lines.All() {
			Expect(line.ContextMap()).To(And(
				HaveKeyWithValue("namespace", s.name), HaveKeyWithValue("name", "job"),
				HaveKeyWithValue("uid", string(job.UID)), HaveKeyWithValue("lifecycle", "WorkerLed"),
			), line.Message)
			if line.Level == zapcore.InfoLevel {
				told = append(told, line.Message)
			}
		}
		Expect(told).To(ContainElements("Job phase changed", "Pod failed or was disrupted"))
		Expect(lines.FilterMessage("Reconciled job").Len()).To(Equal(15), "each pass has a line for those who debug")
		before := any(v2alpha1.Phase(""))
		for _, line := range lines.FilterMessage("Job phase changed").All() {
			Expect(line.ContextMap()).To(And(HaveKeyWithValue("phaseBefore", before), Not(HaveKeyWithValue("phase", before))),
				"a phase is told once, when it changes")
			before = line.ContextMap()["phase"]
		}
	})
})

var _ = Describe("The allocator's metrics and log", func() {
	It("report rounds, decisions and the state of jobs", func(ctx SpecContext) {
		refuse := false
		r := newSpace(ctx).newRounds(failing(&refuse))
		logger, lines := testkit.ObserveLog()
		logged := log.IntoContext(ctx, logger)
		registry := r.registry
		node := r.newNode(ctx, "a", 4)
		r.submitElastic(ctx, "one", 1, 2)
		r.submitElastic(ctx, "two", 1, 1)
		r.next(logged, 0)
		Expect(samples(registry, "allocator_")).To(Equal(map[string]float64{
			"allocator_rounds_total{result=done}": 1, "allocator_rounds_total{result=failed}": 0,
			"allocator_round_duration_seconds{}":           1,
			"allocator_decisions_total{decision=placed}":   1,
			"allocator_decisions_total{decision=moved}":    0,
			"allocator_decisions_total{decision=resized}":  0,
			"allocator_decisions_total{decision=released}": 0,
			"allocator_jobs{state=placed}":                 1,
			"allocator_jobs{state=partial}":                0,
			"allocator_jobs{state=waiting}":                1,
			"allocator_nodes{state=open}":                  1,
			"allocator_nodes{state=closed}":                0,
			"allocator_restart_duration_seconds{}":         0,
			"allocator_unreadable_reports_total{}":         0,
			"allocator_policy_info{policy=fit}":            1,
		}))

		By("a round whose writes are refused")
		Expect(shared.api.Delete(ctx, node)).To(Succeed())
		r.newNode(ctx, "b", 4)
		refuse = true
		Expect(r.try(logged, time.Minute)).NotTo(Succeed())
		Expect(samples(registry, "allocator_")).To(And(
			HaveKeyWithValue("allocator_rounds_total{result=failed}", 1.0),
			HaveKeyWithValue("allocator_decisions_total{decision=moved}", 0.0),
		))
		refuse = false
		r.next(logged, time.Minute)
		Expect(samples(registry, "allocator_")).To(HaveKeyWithValue("allocator_decisions_total{decision=moved}", 1.0))

		for _, line := range lines.All() {
			if strings.HasPrefix(line.Message, "Allocation round finished") {
				continue
			}
			Expect(line.ContextMap()).To(And(HaveKeyWithValue("namespace", r.name), HaveKey("name"), HaveKey("uid"), HaveKey("lifecycle")), line.Message)
		}
		Expect(lines.FilterMessage("Changed the placement of a job").Len()).To(Equal(2))
	})
})
