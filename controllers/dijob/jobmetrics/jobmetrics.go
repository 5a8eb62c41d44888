// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobmetrics defines the metrics of jobs.
package jobmetrics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/internal/telemetry"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// Metrics are the metrics of the job controller. They compare a committed status with the previous one, so
// each change counts once.
type Metrics struct {
	telemetry.Set
	finished        *prometheus.CounterVec
	restarts        *prometheus.CounterVec
	replicaRestarts *prometheus.CounterVec
	reschedules     *prometheus.CounterVec
	ends            *prometheus.CounterVec
	adjustments     *prometheus.CounterVec
	notRecorded     *prometheus.CounterVec
	created         *prometheus.HistogramVec
	firstReady      *prometheus.HistogramVec
	allReady        *prometheus.HistogramVec
	// ByNamespace counts restarts by namespace, too; nil for not.
	ByNamespace *ByNamespace
}

func ofLifecycle() telemetry.Label {
	return telemetry.Label{Name: "lifecycle", Values: []string{string(v2alpha1.LifecycleCoordinatorLed), string(v2alpha1.LifecycleWorkerLed)}}
}

func ofPhase(phases ...v2alpha1.Phase) telemetry.Label {
	label := telemetry.Label{Name: "phase"}
	for _, phase := range phases {
		label.Values = append(label.Values, string(phase))
	}
	return label
}

func ofReason() telemetry.Label {
	return telemetry.Label{Name: "reason", Values: state.FailureReasons()}
}

func ofTaskType() telemetry.Label {
	return telemetry.Label{Name: "task_type", Values: []string{
		string(v2alpha1.TaskTypeCoordinator), string(v2alpha1.TaskTypeLearner), string(v2alpha1.TaskTypeCollector),
		string(v2alpha1.TaskTypeEvaluator), string(v2alpha1.TaskTypeNone),
	}}
}

// New returns registered metrics.
func New(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	m.finished = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_jobs_finished_total", Help: "Jobs that have finished, by lifecycle and final phase.", Unit: "jobs",
		Labels: []telemetry.Label{ofLifecycle(), ofPhase(v2alpha1.JobSucceeded, v2alpha1.JobFailed)},
	})
	m.restarts = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_job_restarts_total", Unit: "restarts",
		Help:   "Restarts of whole jobs, by lifecycle and the reason of the pod's failure.",
		Labels: []telemetry.Label{ofLifecycle(), ofReason()},
	})
	m.replicaRestarts = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_replica_restarts_total", Unit: "restarts",
		Help:   "Restarts of single replicas by action RestartReplica, by task type and the reason of the pod's failure.",
		Labels: []telemetry.Label{ofTaskType(), ofReason()},
	})
	m.reschedules = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_job_reschedules_total", Help: "Reschedules of worker-led jobs: restarts for another placement, size or queue.", Unit: "starts",
	})
	m.ends = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_pod_failures_total", Unit: "pods",
		Help:   "Failed and disrupted pods of live jobs, by task type and reason.",
		Labels: []telemetry.Label{ofTaskType(), ofReason()},
	})
	m.adjustments = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_resource_adjustments_total", Unit: "changes",
		Help: "Changes of the resources of replicas, by reason: more memory after an out-of-memory kill, or smaller requests after a long wait.",
		Labels: []telemetry.Label{{Name: "reason", Values: []string{
			v2alpha1.OverrideOutOfMemory, v2alpha1.OverrideUnschedulable, v2alpha1.OverrideScalePlan,
		}}},
	})
	m.notRecorded = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_jobs_not_recorded_total", Unit: "jobs",
		Help: "Deleted jobs that were let go after history.requireTimeout, so that their end may be missing in the history.",
	})
	m.makeDelays()
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the controllers' metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) makeDelays() {
	// A delay is about a second if nodes have the image, and hours in a queue.
	buckets := []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 14400}
	const since = "Time from a job's creation (or its resumption or admission by Kueue, if it had never run) until "
	delay := func(name, until string) *prometheus.HistogramVec {
		return m.Histogram(telemetry.Metric{
			Name: "di_orchestrator_job_" + name + "_delay_seconds", Help: since + until, Unit: "seconds", Labels: []telemetry.Label{ofLifecycle()},
		}, buckets...)
	}
	m.created = delay("pods_created", "all its pods were created; of a coordinator-led job the coordinator.")
	m.firstReady = delay("first_pod_ready", "the first of its pods was ready; of a coordinator-led job until the coordinator ran.")
	m.allReady = delay("all_pods_ready", "all its pods were ready for the first time, so that it was Running; of a coordinator-led job until the coordinator ran. "+
		"Jobs that were restarted before are left out.")
}

// CountNotRecorded counts a deleted job that was let go before the history had recorded its end.
func (m *Metrics) CountNotRecorded() { m.notRecorded.WithLabelValues().Inc() }

// Observe counts the changes from a job's status to a committed one.
func (m *Metrics) Observe(job *v2alpha1.DIJob, outcome *lifecycle.Outcome, now time.Time) {
	before, after, led := &job.Status, &outcome.Status, lifecycleOf(job)
	if !state.IsFinished(before) && state.IsFinished(after) {
		m.finished.WithLabelValues(led, string(after.Phase)).Inc()
	}
	for _, ended := range outcome.Failures {
		m.ends.WithLabelValues(string(ended.TaskType), ended.Reason).Inc()
	}
	for _, restarted := range outcome.ReplicaRestarts {
		m.replicaRestarts.WithLabelValues(string(restarted.TaskType), restarted.Reason).Inc()
	}
	m.ByNamespace.observeRestarts(job.Namespace, len(outcome.ReplicaRestarts))
	for _, reason := range outcome.Adjustments {
		m.adjustments.WithLabelValues(reason).Inc()
	}
	// A failure whose status was lost appears in neither phase.
	switch {
	case after.Phase == v2alpha1.JobRestarting && after.Restarts > before.Restarts && len(outcome.Failures) > 0:
		m.restarts.WithLabelValues(led, outcome.Failures[0].Reason).Inc()
		m.ByNamespace.observeRestarts(job.Namespace, 1)
	case after.Phase == v2alpha1.JobRescheduling && after.Reschedules > before.Reschedules:
		m.reschedules.WithLabelValues().Inc()
	}
	m.observeLaunch(job, after, now)
}

// observeLaunch observes how long a job took to create its pods and to run. If a state ended before the
// job ran, it is measured again.
func (m *Metrics) observeLaunch(job *v2alpha1.DIJob, after *v2alpha1.DIJobStatus, now time.Time) {
	before, led := &job.Status, lifecycleOf(job)
	if state.HasRun(before) || after.Restarts > 0 || after.Reschedules > 0 {
		return
	}
	delay := now.Sub(state.ActiveSince(job, now)).Seconds()
	runs := state.HasRun(after)
	if before.Phase != v2alpha1.JobStarting && (after.Phase == v2alpha1.JobStarting || runs) {
		m.created.WithLabelValues(led).Observe(delay)
	}
	if before.ReadyReplicas == 0 && (after.ReadyReplicas > 0 || runs) {
		m.firstReady.WithLabelValues(led).Observe(delay)
	}
	if runs {
		m.allReady.WithLabelValues(led).Observe(delay)
	}
}

func lifecycleOf(job *v2alpha1.DIJob) string {
	return string(cmp.Or(job.Spec.Lifecycle, v2alpha1.LifecycleWorkerLed))
}

// Lister lists the jobs in the cache.
type Lister func() (*v2alpha1.DIJobList, error)

// Cached lists the jobs of held shards in the cache. Without shards, these are all jobs in the leader's
// cache: a standby has no cache of jobs, and a list would start one.
func Cached(ctx context.Context, mgr ctrl.Manager, held *sharding.Held) Lister {
	return func() (*v2alpha1.DIJobList, error) {
		list := &v2alpha1.DIJobList{}
		err := listCached(ctx, mgr, held, list)
		list.Items = slices.DeleteFunc(list.Items, func(job v2alpha1.DIJob) bool { return !held.Has(client.ObjectKeyFromObject(&job)) })
		return list, err
	}
}

// CachedPods lists the pods of these jobs.
func CachedPods(ctx context.Context, mgr ctrl.Manager, held *sharding.Held) func() (*corev1.PodList, error) {
	return func() (*corev1.PodList, error) {
		list := &corev1.PodList{}
		err := listCached(ctx, mgr, held, list)
		list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
			owner := controllers.OwnerName(&pod)
			return len(owner) == 0 || !held.Has(types.NamespacedName{Namespace: pod.Namespace, Name: owner[0]})
		})
		return list, err
	}
}

func listCached(ctx context.Context, mgr ctrl.Manager, held *sharding.Held, list client.ObjectList) error {
	if held != nil {
		return mgr.GetClient().List(ctx, list, client.UnsafeDisableDeepCopy)
	}
	select {
	case <-mgr.Elected():
		return mgr.GetClient().List(ctx, list, client.UnsafeDisableDeepCopy)
	default:
		return nil
	}
}

// NewCounts returns the metric of the number of jobs in each phase.
func NewCounts(list Lister) *telemetry.Set {
	counts := &telemetry.Set{}
	counts.Read(telemetry.Metric{
		Name: "di_orchestrator_jobs", Unit: "jobs",
		Help:   "Existing jobs that are not terminating, by lifecycle and phase; only the leader reports it.",
		Labels: []telemetry.Label{ofLifecycle(), ofPhase(phases()...)},
	}, func(report telemetry.Tell) error {
		jobs, err := list()
		if err != nil {
			return fmt.Errorf("listing the jobs: %w", err)
		}
		for labels, count := range countPhases(jobs) {
			report(float64(count), labels[:]...)
		}
		return nil
	})
	counts.Read(telemetry.Metric{
		Name: "di_orchestrator_jobs_waiting_for_history", Unit: "jobs",
		Help: "Deleted jobs that stay until the history has recorded their end, with history.require; only the leader reports it.",
	}, func(report telemetry.Tell) error {
		jobs, err := list()
		if err != nil {
			return fmt.Errorf("listing the jobs: %w", err)
		}
		waiting := 0
		for i := range jobs.Items {
			if job := &jobs.Items[i]; !job.DeletionTimestamp.IsZero() && state.HasHistoryFinalizer(job) {
				waiting++
			}
		}
		report(float64(waiting))
		return nil
	})
	return counts
}

// phases returns all phases.
func phases() []v2alpha1.Phase {
	return []v2alpha1.Phase{
		v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRunning, v2alpha1.JobRestarting, v2alpha1.JobRescheduling,
		v2alpha1.JobSucceeded, v2alpha1.JobFailed, v2alpha1.JobUnknown,
	}
}

// countPhases counts jobs by lifecycle and phase.
func countPhases(jobs *v2alpha1.DIJobList) map[[2]string]int {
	counts := map[[2]string]int{}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; !state.IsLeftAlone(job) {
			counts[[2]string{lifecycleOf(job), phaseLabel(job.Status.Phase)}]++
		}
	}
	return counts
}

// phaseLabel returns a phase as a label. It returns Pending before the first reconcile, and Unknown for an
// invalid phase that another controller may have written.
func phaseLabel(phase v2alpha1.Phase) string {
	switch phase {
	case "":
		return string(v2alpha1.JobPending)
	case v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRestarting, v2alpha1.JobRescheduling,
		v2alpha1.JobRunning, v2alpha1.JobSucceeded, v2alpha1.JobFailed:
		return string(phase)
	case v2alpha1.JobUnknown:
	}
	return string(v2alpha1.JobUnknown)
}
