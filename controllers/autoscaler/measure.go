// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

const (
	// stuckAfter is how long a producer must be unschedulable before the rule no longer counts on it.
	stuckAfter = 2 * time.Minute
	// measuredStarts is how many of the newest producers the start delay is measured by.
	measuredStarts = 20
)

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
	// requested is the number of producers at the last advice; -1 before the first.
	requested int32
	// nextAt is when the next decision is due. generation is that of the spec that was decided about.
	nextAt     time.Time
	generation int64
	// master is the other master of generation askedAbout, as of askedAt.
	master     string
	askedAt    time.Time
	askedAbout int64
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

// survey adds the pods of the pools to a measurement.
func (ro *roles) survey(measured *ratio.Measurement, pods []corev1.Pod, now time.Time) {
	var starts []*corev1.Pod
	for i := range ro.pools {
		size := &measured.Pools[i]
		size.Requested, size.Running, size.Stuck = ro.pools[i].requested, 0, 0
		for k := range pods {
			pod := &pods[k]
			if !ro.pools[i].has(pod) || podstate.Terminating(pod) {
				continue
			}
			switch {
			case podstate.Ready(pod):
				size.Running++
			case podstate.Finished(pod) || isStuck(pod, now):
				size.Stuck++
				continue
			}
			starts = append(starts, pod)
		}
		size.Running = min(size.Running, size.Requested)
		size.Stuck = min(size.Stuck, size.Requested-size.Running)
	}
	slices.SortFunc(starts, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for _, pod := range starts[:min(len(starts), measuredStarts)] {
		measured.StartDelays = append(measured.StartDelays, startDelay(pod, now))
	}
}

// has reports whether a pod is a replica of a pool. Pods of coordinator-led jobs are labeled with their role.
func (p *pool) has(pod *corev1.Pod) bool {
	if p.members != nil {
		return names.RoleOf(pod) == names.ReplicaType(p.kind)
	}
	return pod.Labels[names.LabelTaskName] == p.Task
}

// startDelay returns the time from the creation of a pod until it was ready, or its age.
func startDelay(pod *corev1.Pod, now time.Time) time.Duration {
	until := now
	if ready := conditions.OfPod(pod, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue {
		until = ready.LastTransitionTime.Time
	}
	return until.Sub(pod.CreationTimestamp.Time)
}

// isStuck reports whether a pod cannot start, so that the rule must not wait for it.
func isStuck(pod *corev1.Pod, now time.Time) bool {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	if scheduled != nil && scheduled.Status == corev1.ConditionFalse && now.Sub(scheduled.LastTransitionTime.Time) > stuckAfter {
		return true
	}
	main := podstate.MainContainer(pod)
	return main != nil && main.State.Waiting != nil && main.State.Waiting.Reason == podstate.CrashLoopBackOff
}
