// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// measuredStarts is how many of the newest producers the start delay is measured by.
const measuredStarts = 20

// memories are what the process remembers of jobs.
type memories struct {
	mutex sync.Mutex
	jobs  map[types.NamespacedName]*memory
}

// memory is what the process remembers of a job. It only saves what a new leader learns again from the status.
type memory struct {
	uid       types.UID
	estimator *ratio.Estimator
	state     ratio.State
	starts    starts
	// requested is the number of producers at the last advice; -1 before the first.
	requested int32
	// nextAt is when the next decision is due. generation is that of the spec that was decided about.
	nextAt     time.Time
	generation int64
	// asked is the last answer of the API server about other masters.
	asked inquiry
	// writtenAt is when the status was last written.
	writtenAt time.Time
}

// of returns the memory of a job. It begins with the state in the status.
func (m *memories) of(key types.NamespacedName, job *v2alpha1.DIJob) *memory {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	known := m.jobs[key]
	if known == nil || known.uid != job.UID {
		var recorded *v2alpha1.RatioStatus
		if job.Status.Autoscaling != nil {
			recorded = job.Status.Autoscaling.Ratio
		}
		state := ratio.StateFrom(recorded)
		known = &memory{uid: job.UID, state: state, requested: -1, estimator: ratio.NewEstimator(ratio.DefaultEstimator(), state)}
		m.jobs[key] = known
	}
	return known
}

func (m *memories) forget(key types.NamespacedName) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.jobs, key)
}

// measurement is what a decision about a job depends on.
type measurement struct {
	job  *v2alpha1.DIJob
	rule *v2alpha1.RatioRule
	now  time.Time
	// roles is nil if the rule is invalid. estimator has learned the reports of the job.
	roles     *roles
	estimator *ratio.Estimator
	// isDue is set if a decision is due. The fields that follow are read only then.
	isDue bool
	// asked is the last answer of the API server about other masters.
	asked inquiry
	// isQueued is set if another job of the namespace is measured first.
	isQueued bool
	// obstacle is the reason why the size must stay, and message says more; "" if figures are complete.
	obstacle, message string
	figures           ratio.Measurement
	// starts is what is known of the starts of the producers now.
	starts starts
}

// hinder records why the size must stay.
func (m *measurement) hinder(reason string, cause error) {
	m.obstacle, m.message = reason, cause.Error()
}

// observe measures a job, as far as its decision needs it. It changes nothing. The time of the measurement is also set
// if there is an error.
func (r *Reconciler) observe(ctx context.Context, job *v2alpha1.DIJob, rule *v2alpha1.RatioRule, known memory) (measurement, error) {
	measured := measurement{job: job, rule: rule, now: r.clock.Now(), estimator: known.estimator, asked: known.asked, starts: known.starts}
	members, err := r.membershipOf(ctx, job)
	if err != nil {
		return measured, err
	}
	measured.roles, err = rolesOf(job, members, rule, r.maxPods)
	if err != nil {
		measured.isDue = true
		measured.hinder(v2alpha1.ReasonInvalidRule, err)
		return measured, nil
	}
	measured.estimator = known.estimator.Clone()
	measured.estimator.Learn(job.Status.Rates, measured.roles, measured.now)
	measured.figures = measured.estimator.Measure(job.Status.Rates, measured.roles, measured.roles.tasks(), measured.now)
	measured.isDue = known.generation != job.Generation || ratio.Defaults().IsDue(measured.figures, known.nextAt, measured.now)
	if !measured.isDue {
		return measured, nil
	}
	if err := r.observeMaster(ctx, &measured, members); err != nil || measured.obstacle != "" {
		return measured, err
	}
	return measured, r.observeFigures(ctx, &measured)
}

// observeFigures adds the answers of Prometheus, if the rule has queries, and the pods.
func (r *Reconciler) observeFigures(ctx context.Context, measured *measurement) error {
	job := measured.job
	if source := measured.rule.Prometheus; source != nil {
		figures, err := r.query(ctx, job, source, len(measured.roles.pools))
		switch {
		case errors.Is(err, errQuerying):
			measured.isQueued = true
			return nil
		case err != nil:
			measured.hinder(v2alpha1.ReasonWaitingForReports, err)
			return nil
		}
		measured.figures = figures
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{controllers.OwnerIndex: job.Name}); err != nil {
		return fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	own := controllers.PodsOf(job, pods.Items)
	measured.starts = measured.roles.survey(&measured.figures, own, measured.starts, measured.now)
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed && queueing.ForJob(job).Queue != "" {
		measured.roles.group(&measured.figures, job.Name, own)
	}
	return nil
}

// survey adds the pods of the pools to a measurement. It returns what is known of their starts.
func (r *roles) survey(measured *ratio.Measurement, pods []corev1.Pod, known starts, now time.Time) starts {
	next, newest := make(starts, len(known)), []*corev1.Pod(nil)
	for i := range r.pools {
		size := &measured.Pools[i]
		size.Requested, size.Running, size.Stuck = r.pools[i].requested, 0, 0
		for k := range pods {
			pod := &pods[k]
			if !r.pools[i].has(pod) || podstate.Terminating(pod) {
				continue
			}
			next[pod.UID] = known[pod.UID].next(pod, now)
			switch {
			case podstate.Ready(pod):
				size.Running++
			case podstate.Finished(pod) || isCrashing(pod) || next[pod.UID].isStuck(now):
				size.Stuck++
				continue
			}
			newest = append(newest, pod)
		}
		size.Running = min(size.Running, size.Requested)
		size.Stuck = min(size.Stuck, size.Requested-size.Running)
	}
	slices.SortFunc(newest, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for _, pod := range newest[:min(len(newest), measuredStarts)] {
		measured.StartDelays = append(measured.StartDelays, next[pod.UID].delay(pod, now))
	}
	return next
}

// has reports whether a pod is a replica of a pool. Pods of coordinator-led jobs are labeled with their role.
func (p *pool) has(pod *corev1.Pod) bool {
	if p.members != nil {
		return names.RoleOf(pod) == names.ReplicaType(p.kind)
	}
	return pod.Labels[names.LabelTaskName] == p.Task
}
