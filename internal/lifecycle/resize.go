// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// resize is a task whose desired count changed.
type resize struct {
	task     string
	from, to int32
}

// IsResized reports whether the desired counts of a worker-led job changed. The job's
// managed fields tell who changed them and when; the cache drops these, so the caller
// must read them live.
func IsResized(observed Observed) bool {
	job := observed.Job
	if IsCoordinatorLed(job) || IsLeftAlone(job) || IsFinished(&job.Status) || job.Spec.Preemptible {
		return false
	}
	wanted := wantedCounts(job)
	if observed.excess(&wanted) != nil {
		return false
	}
	return isContested(job, wanted.spec) || len(findResizes(observed, &wanted)) > 0
}

// isContested reports whether both the counts of the spec and the total of the status
// were written since the last reconcile.
func isContested(job *v2alpha1.DIJob, spec map[string]int32) bool {
	scaling := job.Status.Scaling
	return scaling != nil && job.Status.Replicas > 0 && job.Status.Replicas != scaling.LastReplicas && !maps.Equal(scaling.SpecReplicas, spec)
}

// findResizes compares the desired counts with those that were acted on last. A
// preemptible job is sized by its allocation, which the rule for reschedules covers.
func findResizes(observed Observed, wanted *counts) []resize {
	job := observed.Job
	before := formerCounts(observed, wanted)
	if job.Spec.Preemptible || before == nil {
		return nil
	}
	now := map[string]int32{}
	for task := range before {
		now[task] = 0
	}
	for i := range job.Spec.Tasks {
		now[names.TaskName(&job.Spec.Tasks[i])] = wanted.byTask[i]
	}
	var found []resize
	for _, task := range slices.Sorted(maps.Keys(now)) {
		if before[task] != now[task] {
			found = append(found, resize{task: task, from: before[task], to: now[task]})
		}
	}
	return found
}

// formerCounts returns the counts that were acted on last, by task name; nil if there
// are none, or they are unknown.
func formerCounts(observed Observed, wanted *counts) map[string]int32 {
	job := observed.Job
	elastic := names.ElasticTask(&job.Spec)
	scaling := job.Status.Scaling
	if scaling == nil {
		return countsOfPods(observed, wanted, elastic)
	}
	before, total := maps.Clone(scaling.SpecReplicas), int32(0)
	for _, count := range before {
		total += count
	}
	if elastic >= 0 && before != nil {
		before[names.TaskName(&job.Spec.Tasks[elastic])] += scaling.LastReplicas - total
	}
	return before
}

// countsOfPods is for a job whose record of the counts is lost, for example because a
// client built for v1.1.3 updated the status and dropped the fields that it does not
// know. The pods then show only whether the elastic task was resized.
func countsOfPods(observed Observed, wanted *counts, elastic int) map[string]int32 {
	job := observed.Job
	if elastic < 0 || job.Status.Replicas == 0 {
		return nil
	}
	before := map[string]int32{}
	for i := range job.Spec.Tasks {
		if i != elastic {
			before[names.TaskName(&job.Spec.Tasks[i])] = wanted.byTask[i]
		}
	}
	task := names.TaskName(&job.Spec.Tasks[elastic])
	for _, pod := range observed.Pods {
		if pod.Labels[names.LabelTaskName] == task && !podstate.Terminating(pod) {
			before[task]++
		}
	}
	if before[task] == 0 {
		return nil
	}
	return before
}

// reportResizes records one event for all tasks that were resized.
func (p *plan) reportResizes() {
	texts := make([]string, len(p.resizes))
	for i, resize := range p.resizes {
		texts[i] = p.describe(resize)
	}
	if len(texts) == 0 {
		return
	}
	message := few(texts, "; ")
	p.event(corev1.EventTypeNormal, v2alpha1.ReasonResized, message)
	if len(p.Pods) > 0 && p.whyRestarted(p.status()) == "" && !IsSuspended(p.Job) {
		conditions.Set(p.status(), v2alpha1.ConditionResizing, corev1.ConditionTrue, v2alpha1.ReasonResized, message, p.Now)
	}
}

// endResize clears the condition of a resize once exactly the desired pods exist and are
// ready.
func (p *plan) endResize() {
	const condition = v2alpha1.ConditionResizing
	if conditions.IsTrue(p.status(), condition) && (IsFinished(p.status()) || IsSuspended(p.Job) || p.hasNoExcess() && p.isAllReady()) {
		conditions.Clear(p.status(), condition, p.Now)
	}
}

// hasNoExcess reports whether every pod belongs to a desired replica.
func (p *plan) hasNoExcess() bool {
	desired := make(map[string]bool, len(p.assignment.Replicas))
	for i := range p.assignment.Replicas {
		desired[p.assignment.Replicas[i].Pod] = true
	}
	return !slices.ContainsFunc(p.Pods, func(pod *corev1.Pod) bool { return !desired[pod.Name] })
}

// describe describes how a task was resized, and by whom.
func (in *input) describe(resize resize) string {
	text := fmt.Sprintf("%d -> %d replicas of task %s", resize.from, resize.to, resize.task)
	if in.isElastic(resize.task) && in.counts.asked != resize.to {
		text += fmt.Sprintf(" (%d asked for)", in.counts.asked)
	}
	return text + ", " + in.writerOf(resize).String()
}

func (in *input) isElastic(task string) bool {
	elastic := names.ElasticTask(&in.Job.Spec)
	return elastic >= 0 && names.TaskName(&in.Job.Spec.Tasks[elastic]) == task
}

// writerOf returns who last wrote the field that resized a task.
func (in *input) writerOf(resize resize) writer {
	job, elastic := in.Job, in.isElastic(resize.task)
	var before map[string]int32
	if job.Status.Scaling != nil {
		before = job.Status.Scaling.SpecReplicas
	}
	switch {
	case elastic && in.counts.byStatus:
		return statusWriter(job)
	case elastic && before[resize.task] != in.counts.spec[resize.task]:
		return elasticWriter(job, names.ElasticTask(&job.Spec))
	case !maps.Equal(before, in.counts.spec):
		return tasksWriter(job)
	}
	return boundsWriter(job, resize.to)
}
