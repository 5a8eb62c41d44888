// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/telemetry"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// MaxNamespaces is the maximum number of namespaces that metrics name.
const MaxNamespaces = 1000

// namespaces are the values of the label of namespaces. Their number is bounded: those beyond the limit
// count as other. A namespace without jobs gives up its place if another one needs it.
type namespaces struct {
	limit int
	mutex sync.Mutex
	named map[string]bool
}

// label returns the label.
func (n *namespaces) label() telemetry.Label {
	return telemetry.Label{
		Name: "job_namespace", About: "the namespace of the jobs; other beyond the limit of namespaces",
		Bound: n.bound,
	}
}

// bound returns a namespace if it is named, or can be; otherwise other.
func (n *namespaces) bound(namespace string) string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.named[namespace] || namespace == telemetry.Other {
		return namespace
	}
	if len(n.named) >= n.limit {
		return telemetry.Other
	}
	n.named[namespace] = true
	return namespace
}

// unneeded returns the namespaces without jobs whose places others need.
func (n *namespaces) unneeded(present map[string]bool) []string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	missing := 0
	for namespace := range present {
		if !n.named[namespace] {
			missing++
		}
	}
	var without []string
	for namespace := range n.named {
		if !present[namespace] {
			without = append(without, namespace)
		}
	}
	slices.Sort(without)
	return without[:min(len(without), max(0, len(n.named)+missing-n.limit))]
}

// forget frees the place of a namespace.
func (n *namespaces) forget(namespace string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	delete(n.named, namespace)
}

// NamespaceOptions configure the metrics by namespace.
type NamespaceOptions struct {
	// Limit is how many namespaces are named; with 0 there are no such metrics, and stalled jobs are counted
	// as those of other namespaces.
	Limit int
	// Jobs lists the jobs, and Pods the pods in the cache.
	Jobs Lister
	Pods func() (*corev1.PodList, error)
	// GPU is the name of the resource of GPUs.
	GPU   corev1.ResourceName
	Clock clock.PassiveClock
}

// ByNamespace are the metrics of the jobs of a namespace.
type ByNamespace struct {
	telemetry.Set
	options    NamespaceOptions
	namespaces namespaces
	restarts   *prometheus.CounterVec
}

// NewByNamespace returns registered metrics.
func NewByNamespace(registerer prometheus.Registerer, options NamespaceOptions) (*ByNamespace, error) {
	m := &ByNamespace{options: options, namespaces: namespaces{limit: options.Limit, named: map[string]bool{}}}
	of := m.namespaces.label()
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_stalled_job_seconds", Unit: "seconds",
		Help: "How long the longest stalled job has been stalled (condition ReplicasStalled), by reason and, if metrics name namespaces, by " +
			"namespace; only the leader reports it.",
		Labels: []telemetry.Label{of, {Name: "reason", Values: stalledReasons()}},
	}, m.readStalled)
	if options.Limit > 0 {
		m.makeNamed(of)
	}
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics by namespace: %w", err)
	}
	return m, nil
}

// makeNamed creates the metrics that exist only if namespaces are named.
func (m *ByNamespace) makeNamed(of telemetry.Label) {
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_namespace_jobs", Unit: "jobs",
		Help:   "Existing jobs that are not terminating, by namespace and phase; only the leader reports it.",
		Labels: []telemetry.Label{of, ofPhase(phases()...)},
	}, m.readJobs)
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_namespace_waiting_jobs", Unit: "jobs",
		Help:   "Jobs that are neither suspended nor finished, and do not run yet or again, by namespace; only the leader reports it.",
		Labels: []telemetry.Label{of},
	}, m.readWaiting)
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_namespace_replicas", Unit: "replicas",
		Help: "Pods of jobs that occupy a node, by namespace; only the leader reports it.", Labels: []telemetry.Label{of},
	}, func(report telemetry.Tell) error {
		return m.readPods(report, func(*corev1.Pod) float64 { return 1 })
	})
	m.Read(telemetry.Metric{
		Name: "di_orchestrator_namespace_gpus", Unit: "gpus",
		Help: "GPUs that these pods request, by namespace; only the leader reports it.", Labels: []telemetry.Label{of},
	}, func(report telemetry.Tell) error { return m.readPods(report, m.gpusOf) })
	m.restarts = m.Counter(telemetry.Metric{
		Name: "di_orchestrator_namespace_restarts_total", Unit: "restarts",
		Help: "Restarts of jobs and of single replicas after failures, by namespace.", Labels: []telemetry.Label{of},
	})
}

// observeRestarts counts restarts of a job and of its replicas.
func (m *ByNamespace) observeRestarts(namespace string, count int) {
	if m != nil && m.restarts != nil && count > 0 {
		m.restarts.WithLabelValues(namespace).Add(float64(count))
	}
}

func stalledReasons() []string {
	return []string{
		v2alpha1.ReasonCrashLoop, v2alpha1.ReasonContainerStart, v2alpha1.ReasonContainerConfig, v2alpha1.ReasonImagePull,
		v2alpha1.ReasonMainContainerExited, v2alpha1.ReasonTerminating, v2alpha1.ReasonPodSetup, v2alpha1.ReasonUnschedulable,
	}
}

// jobs lists the jobs that the operator runs. It names their namespaces, as long as there is room.
func (m *ByNamespace) jobs() ([]*v2alpha1.DIJob, error) {
	list, err := m.options.Jobs()
	if err != nil {
		return nil, fmt.Errorf("listing the jobs: %w", err)
	}
	var jobs []*v2alpha1.DIJob
	present := map[string]bool{}
	for i := range list.Items {
		if job := &list.Items[i]; !state.IsLeftAlone(job) {
			jobs = append(jobs, job)
			present[job.Namespace] = true
		}
	}
	for _, unneeded := range m.namespaces.unneeded(present) {
		// The counter names it as long as it has its place.
		if m.restarts != nil {
			m.restarts.DeleteLabelValues(unneeded)
		}
		m.namespaces.forget(unneeded)
	}
	slices.SortFunc(jobs, func(a, b *v2alpha1.DIJob) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return jobs, nil
}

func (m *ByNamespace) readJobs(report telemetry.Tell) error {
	jobs, err := m.jobs()
	counts := map[[2]string]float64{}
	for _, job := range jobs {
		counts[[2]string{m.namespaces.bound(job.Namespace), phaseLabel(job.Status.Phase)}]++
	}
	for labels, count := range counts {
		report(count, labels[:]...)
	}
	return err
}

func (m *ByNamespace) readWaiting(report telemetry.Tell) error {
	jobs, err := m.jobs()
	counts := map[string]float64{}
	for _, job := range jobs {
		waits := 0.0
		if !ptr.Deref(job.Spec.Suspend, false) && !state.IsFinished(&job.Status) && job.Status.Phase != v2alpha1.JobRunning {
			waits = 1
		}
		counts[m.namespaces.bound(job.Namespace)] += waits
	}
	for namespace, count := range counts {
		report(count, namespace)
	}
	return err
}

// readPods reports the sum of a value of the pods of jobs that occupy a node.
func (m *ByNamespace) readPods(report telemetry.Tell, value func(*corev1.Pod) float64) error {
	list, err := m.options.Pods()
	if err != nil {
		return fmt.Errorf("listing the pods: %w", err)
	}
	sums := map[string]float64{}
	for i := range list.Items {
		if pod := &list.Items[i]; len(controllers.OwnerUID(pod)) > 0 && pod.Spec.NodeName != "" && !podstate.Finished(pod) {
			sums[m.namespaces.bound(pod.Namespace)] += value(pod)
		}
	}
	for namespace, sum := range sums {
		report(sum, namespace)
	}
	return nil
}

func (m *ByNamespace) gpusOf(pod *corev1.Pod) float64 {
	gpus := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[m.options.GPU]
	return gpus.AsApproximateFloat64()
}

// readStalled reports the longest time of a stalled job.
func (m *ByNamespace) readStalled(report telemetry.Tell) error {
	jobs, err := m.jobs()
	longest := map[[2]string]float64{}
	for _, job := range jobs {
		stalled := conditions.Find(&job.Status, v2alpha1.ConditionReplicasStalled)
		if stalled == nil || stalled.Status != corev1.ConditionTrue || stalled.LastTransitionTime == nil {
			continue
		}
		reason := stalled.Reason
		if !slices.Contains(stalledReasons(), reason) {
			reason = telemetry.Other
		}
		key := [2]string{m.namespaces.bound(job.Namespace), reason}
		longest[key] = max(longest[key], m.options.Clock.Since(stalled.LastTransitionTime.Time).Seconds())
	}
	for labels, seconds := range longest {
		report(seconds, labels[:]...)
	}
	return err
}
