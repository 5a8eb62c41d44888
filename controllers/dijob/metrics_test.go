// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/dijob/jobmetrics"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// measure gives the operator metrics and returns them.
func (s *space) measure() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	metrics := specs.Must(jobmetrics.New(registry))
	s.operator.metrics = metrics
	return registry
}

// samples returns the values of all counters and the counts of histograms, by name and labels. It selects
// names with the prefix.
func samples(registry prometheus.Gatherer, prefix string) map[string]float64 {
	GinkgoHelper()
	families := specs.Must(registry.Gather())
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			key := strings.TrimPrefix(family.GetName(), "di_orchestrator_") + "{" + strings.Join(labels, ",") + "}"
			if strings.HasPrefix(key, prefix) {
				found[key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return found
}

var _ = Describe("The metrics of jobs", func() {
	It("count what a worker-led job went through, once each", func(ctx SpecContext) {
		s := newSpace(ctx)
		registry := s.measure()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
			onFailure(v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyRestartReplica, OnExitCodes: exitCodes(v2alpha1.ExitCodesIn, 7)})(spec)
			spec.Elastic = &v2alpha1.Elastic{OnResize: v2alpha1.OnResizeRestart}
		})
		s.start(ctx)
		Expect(samples(registry, "")).To(Equal(map[string]float64{
			"job_pods_created_delay_seconds{lifecycle=WorkerLed}": 1, "job_first_pod_ready_delay_seconds{lifecycle=WorkerLed}": 1, "job_all_pods_ready_delay_seconds{lifecycle=WorkerLed}": 1,
			"job_reschedules_total{}":   0,
			"jobs_not_recorded_total{}": 0,
		}))
		s.report(ctx, "job-collector-0", evictedStatus)
		s.start(ctx)
		s.report(ctx, "job-collector-0", exited(7))
		s.start(ctx)
		s.report(ctx, "job-collector-0", oomStatus)
		s.report(ctx, "job-learner-0", exited(1))
		s.start(ctx)
		s.change(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Elastic.Replicas = ptr.To(int32(1)) })
		s.start(ctx)
		s.endAll(ctx)
		Expect(samples(registry, "")).To(Equal(map[string]float64{
			"job_pods_created_delay_seconds{lifecycle=WorkerLed}":      1,
			"job_first_pod_ready_delay_seconds{lifecycle=WorkerLed}":   1,
			"job_all_pods_ready_delay_seconds{lifecycle=WorkerLed}":    1,
			"pod_failures_total{reason=Evicted,task_type=collector}":   1,
			"pod_failures_total{reason=Error,task_type=collector}":     1,
			"pod_failures_total{reason=OOMKilled,task_type=collector}": 1,
			"pod_failures_total{reason=Error,task_type=learner}":       1,
			"replica_restarts_total{reason=Error,task_type=collector}": 1,
			"job_restarts_total{lifecycle=WorkerLed,reason=Error}":     1,
			"job_reschedules_total{}":                                  1,
			"jobs_not_recorded_total{}":                                0,
			"jobs_finished_total{lifecycle=WorkerLed,phase=Succeeded}": 1,
		}))
		problems := specs.Must(testutil.GatherAndLint(registry))
		Expect(problems).To(BeEmpty())
	})

	It("count what a coordinator-led job went through", func(ctx SpecContext) {
		s := newSpace(ctx)
		registry := s.measure()
		s.submitLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		s.end(ctx, "job-coordinator", 7)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(samples(registry, "")).To(Equal(map[string]float64{
			"job_pods_created_delay_seconds{lifecycle=CoordinatorLed}":    1,
			"job_first_pod_ready_delay_seconds{lifecycle=CoordinatorLed}": 1,
			"job_all_pods_ready_delay_seconds{lifecycle=CoordinatorLed}":  1,
			"pod_failures_total{reason=Error,task_type=coordinator}":      1,
			"jobs_finished_total{lifecycle=CoordinatorLed,phase=Failed}":  1,
			"job_reschedules_total{}":                                     0,
			"jobs_not_recorded_total{}":                                   0,
		}))
	})

	It("count nothing of a status that could not be written", func(ctx SpecContext) {
		s := newWorkers(ctx, 1)
		s.start(ctx)
		s.end(ctx, "job-learner-0", 1)
		refused := 0
		s.operator = s.newOperator(intercept(func(verb string, _ client.Object, write func() error) error {
			if verb == patchesStatus && refused < 3 {
				refused++
				return errors.New("no")
			}
			return write()
		}))
		registry := s.measure()
		for range 3 {
			Expect(s.reconcile(ctx)).NotTo(Succeed())
		}
		Expect(samples(registry, "")).To(Equal(map[string]float64{"job_reschedules_total{}": 0, "jobs_not_recorded_total{}": 0}))
		Expect(s.settle(ctx)).To(Succeed())
		Expect(samples(registry, "job_restarts")).To(Equal(map[string]float64{"job_restarts_total{lifecycle=WorkerLed,reason=Error}": 1}))
	})

	It("do not take for a restart what a status from a backup learns of pods", func(ctx SpecContext) {
		s := newWorkers(ctx, 3)
		s.start(ctx)
		s.end(ctx, "job-learner-0", 1)
		s.start(ctx)
		job := s.job(ctx)
		job.Status.Restarts = 0
		Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
		registry := s.measure()
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Restarts).To(BeEquivalentTo(1))
		Expect(samples(registry, "job_restarts")).To(BeEmpty())
	})

	It("measure from when a job is made, or resumed, until it runs", func(ctx SpecContext) {
		s := newSpace(ctx)
		at := s.clock()
		registry := s.measure()
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Suspend = ptr.To(true) })
		Expect(s.settle(ctx)).To(Succeed())
		*at = at.Add(10 * time.Hour)
		s.suspend(ctx, false)
		Expect(s.settle(ctx)).To(Succeed())
		*at = at.Add(10 * time.Second)
		s.report(ctx, "job-learner-0", `{phase: Running, conditions: [{type: Ready, status: "True"}]}`)
		Expect(s.settle(ctx)).To(Succeed())
		*at = at.Add(15 * time.Second)
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
		sums := map[string]float64{}
		families := specs.Must(registry.Gather())
		for _, family := range families {
			sums[family.GetName()] = family.GetMetric()[0].GetHistogram().GetSampleSum()
		}
		Expect(sums).To(HaveKeyWithValue("di_orchestrator_job_pods_created_delay_seconds", BeNumerically("<", 2)))
		Expect(sums).To(HaveKeyWithValue("di_orchestrator_job_first_pod_ready_delay_seconds", BeNumerically("~", 10, 2)))
		Expect(sums).To(HaveKeyWithValue("di_orchestrator_job_all_pods_ready_delay_seconds", BeNumerically("~", 25, 2)))
	})
})
