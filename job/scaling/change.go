// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/workload"
)

// Change is what a plan changes in a job.
type Change struct {
	// Replicas are the new counts, by task, of tasks whose number the plan sets.
	Replicas map[string]int32
	// Indexes are the new indexes, by task, of tasks for which the plan names pods.
	Indexes map[string][]int32
	// Resources are all resources of the job that differ from its templates, including those of the
	// plan.
	Resources []v2alpha1.ResourceOverride
	// Migrate are the pods to replace by pods with the same resources.
	Migrate []string
	// Message describes the change for people.
	Message string
}

// maxOverrides is the maximum number of recorded resource overrides of a job.
const maxOverrides = 4096

// Read returns what a plan changes in a job of at most maxPods pods. It returns the problems for which the
// plan is refused, none if it can be executed. The members are those of a coordinator-led job, nil if they
// are unknown.
func Read(plan *v2alpha1.ScalePlan, job *v2alpha1.DIJob, members *v2alpha1.Membership, maxPods int32) (Change, []string) {
	if problem := refuseJob(plan, job); problem != "" {
		return Change{}, []string{problem}
	}
	r := newReader(plan, job)
	r.readTasks()
	if state.IsCoordinatorLed(job) {
		r.members = members
		r.countMembers()
		r.readMembers(maxPods)
	} else {
		r.readNames()
		r.readMigrations()
		if len(r.problems) == 0 {
			r.checkCounts(maxPods)
		}
	}
	r.change.Message = r.describe()
	return r.change, r.problems
}

// refuseJob returns why no plan can be executed on a job now, "" if one can.
func refuseJob(plan *v2alpha1.ScalePlan, job *v2alpha1.DIJob) string {
	if state.IsFinished(&job.Status) {
		return fmt.Sprintf("spec.job: job %s has finished", plan.Spec.Job)
	}
	return ""
}

// reader reads one plan.
type reader struct {
	plan *v2alpha1.ScalePlan
	job  *v2alpha1.DIJob
	// members are those of a coordinator-led job, nil if they are unknown.
	members  *v2alpha1.Membership
	counts   sizing.Counts
	elastic  int
	change   Change
	problems []string
	// sets are the indexes of tasks' replicas, and isNamed the tasks for which the plan names pods.
	sets    map[int]map[int32]bool
	isNamed map[int]bool
}

func newReader(plan *v2alpha1.ScalePlan, job *v2alpha1.DIJob) *reader {
	r := &reader{
		plan: plan, job: job, counts: sizing.Wanted(job), elastic: names.ElasticTask(&job.Spec),
		sets: map[int]map[int32]bool{}, isNamed: map[int]bool{},
	}
	r.change.Replicas, r.change.Indexes = map[string]int32{}, map[string][]int32{}
	if scaling := job.Status.Scaling; scaling != nil {
		r.change.Resources = scaling.Resources
	}
	return r
}

func (r *reader) refuse(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *reader) readTasks() {
	for i := range r.plan.Spec.Tasks {
		scale := &r.plan.Spec.Tasks[i]
		task := taskNamed(r.job, scale.Name)
		if task < 0 {
			r.refuse("spec.tasks[%d].name: %q: must be a task of job %s", i, scale.Name, r.job.Name)
			continue
		}
		if scale.Replicas != nil {
			r.change.Replicas[scale.Name] = *scale.Replicas
		}
		r.override(v2alpha1.ResourceOverride{Task: scale.Name, Resources: scale.Resources})
	}
}

// readNames computes the indexes of tasks of which the plan launches or removes pods by name.
func (r *reader) readNames() {
	launched := map[string]bool{}
	for i, pod := range r.plan.Spec.Launch {
		task, index, found := r.replicaOf(fmt.Sprintf("spec.launch[%d]", i), pod)
		switch {
		case !found:
		case r.indexes(task)[index]:
			r.refuse("spec.launch[%d]: %q: exists already", i, pod)
		case index >= limits.Replicas:
			r.refuse("spec.launch[%d]: %q: the index must be below %d", i, pod, limits.Replicas)
		default:
			r.indexes(task)[index], launched[pod], r.isNamed[task] = true, true, true
		}
	}
	for i, pod := range r.plan.Spec.Remove {
		task, index, found := r.replicaOf(fmt.Sprintf("spec.remove[%d]", i), pod)
		switch {
		case !found:
		case !r.indexes(task)[index] || launched[pod]:
			r.refuse("spec.remove[%d]: %q: must be a pod of the job that the plan does not launch", i, pod)
		default:
			delete(r.indexes(task), index)
			r.isNamed[task] = true
		}
	}
	for task := range r.isNamed {
		name := r.nameOf(task)
		indexes := slices.Sorted(maps.Keys(r.indexes(task)))
		if wanted, isSet := r.change.Replicas[name]; isSet && int(wanted) != len(indexes) {
			r.refuse("spec.tasks: %s of task %s: must be %d, the number that results from launch and remove, or absent",
				english.Plural(int(wanted), "replica", ""), name, len(indexes))
		}
		r.change.Indexes[name], r.change.Replicas[name] = indexes, int32(len(indexes))
	}
}

func (r *reader) readMigrations() {
	for i := range r.plan.Spec.Migrate {
		migration := &r.plan.Spec.Migrate[i]
		at := fmt.Sprintf("spec.migrate[%d].pod", i)
		task, index, found := r.replicaOf(at, migration.Pod)
		isEmpty := migration.Resources.CPU == nil && migration.Resources.Memory == nil
		switch {
		case !found:
		case !r.indexes(task)[index]:
			r.refuse("%s: %q: must be a pod of the job that the plan does not remove", at, migration.Pod)
		case isEmpty && r.job.Spec.Preemptible:
			r.refuse("%s: %q: the allocator chooses the nodes of a preemptible job: a migration needs resources", at, migration.Pod)
		case isEmpty:
			r.change.Migrate = append(r.change.Migrate, migration.Pod)
		default:
			r.override(v2alpha1.ResourceOverride{Task: r.nameOf(task), Index: &index, Resources: migration.Resources})
		}
	}
	r.checkOverrides()
}

func (r *reader) checkOverrides() {
	if len(r.change.Resources) > maxOverrides {
		r.refuse("spec: the job would have %d replicas or tasks with other resources than their templates: must be at most %d", len(r.change.Resources), maxOverrides)
	}
}

// checkCounts checks the counts that result from the plan.
func (r *reader) checkCounts(maxPods int32) {
	counts := slices.Clone(r.counts.ByTask)
	for name, count := range r.change.Replicas {
		task := taskNamed(r.job, name)
		if indexes, isNamed := r.change.Indexes[name]; isNamed {
			r.checkIndexes(name, indexes)
		}
		if counts[task] != count {
			r.checkWriter(task, name)
		}
		counts[task] = count
	}
	if r.elastic >= 0 && r.job.Spec.Elastic != nil {
		r.checkBounds(counts[r.elastic])
	}
	switch total := limits.Total(counts...); {
	case total > int64(maxPods):
		r.refuse("spec: %d pods: must be at most %d, the maximum number of pods of a job here", total, maxPods)
	case total == 0:
		r.refuse("spec: the job would have no pod: suspend it instead")
	}
	slices.Sort(r.problems)
}

// checkWriter refuses counts that another part of the operator decides.
func (r *reader) checkWriter(task int, name string) {
	if r.job.Spec.Preemptible {
		r.refuse("spec: replicas of task %s: the allocator sizes a preemptible job: change spec.elastic of the job instead", name)
	}
	if names.FollowsRatio(&r.job.Spec, task) {
		r.refuse("spec: replicas of task %s: they follow spec.autoscale.ratio of the job", name)
	}
}

// checkIndexes refuses gaps between the indexes of jobs whose pods are addressed by their position.
func (r *reader) checkIndexes(name string, indexes []int32) {
	isRefused := r.job.Spec.Preemptible || len(r.job.Spec.ClusterSpec) > 0
	if isRefused && !ranks.IsDense(indexes) {
		r.refuse("spec: task %s would have replicas %s: must be without gaps in a job with clusterSpec or preemptible: launch the lowest names and remove the highest ones",
			name, ranks.FormatRun(indexes))
	}
}

func (r *reader) checkBounds(count int32) {
	name, bounds := r.nameOf(r.elastic), r.job.Spec.Elastic
	if _, isSet := r.change.Replicas[name]; !isSet {
		return
	}
	if least := bounds.MinReplicas; least != nil && count < *least {
		r.refuse("spec: %s of task %s: must be at least %d, the job's spec.elastic.minReplicas", english.Plural(int(count), "replica", ""), name, *least)
	}
	if most := bounds.MaxReplicas; most != nil && count > *most {
		r.refuse("spec: %s of task %s: must be at most %d, the job's spec.elastic.maxReplicas", english.Plural(int(count), "replica", ""), name, *most)
	}
}

// override adds resources of the plan. Those of a whole task also apply to replicas with resources of their
// own. Only a replica that needed more memory keeps it.
func (r *reader) override(next v2alpha1.ResourceOverride) {
	if next.Resources.CPU == nil && next.Resources.Memory == nil {
		return
	}
	next.Reason = v2alpha1.OverrideScalePlan
	if workload.IsWhole(&next) {
		r.change.Resources = withoutOwn(r.change.Resources, &next)
	}
	r.change.Resources = workload.SetOverride(r.change.Resources, next)
}

// withoutOwn returns overrides without those of a task's replicas that an override of the task replaces.
func withoutOwn(overrides []v2alpha1.ResourceOverride, next *v2alpha1.ResourceOverride) []v2alpha1.ResourceOverride {
	var kept []v2alpha1.ResourceOverride
	for i := range overrides {
		override := *overrides[i].DeepCopy()
		if override.Task == next.Task && !workload.IsWhole(&override) {
			needsMore := override.Reason == v2alpha1.OverrideOutOfMemory && override.Resources.Memory != nil && next.Resources.Memory != nil &&
				override.Resources.Memory.Cmp(*next.Resources.Memory) > 0
			if next.Resources.Memory != nil && !needsMore {
				override.Resources.Memory = nil
			}
			if next.Resources.CPU != nil {
				override.Resources.CPU = nil
			}
		}
		if override.Resources.CPU != nil || override.Resources.Memory != nil {
			kept = append(kept, override)
		}
	}
	return kept
}

// replicaOf returns the replica that has a pod's name.
func (r *reader) replicaOf(at, pod string) (task int, index int32, found bool) {
	for i := range r.job.Spec.Tasks {
		index, isOf := ranks.IndexOf(r.job.Name, r.nameOf(i), pod)
		if isOf && names.WorkerPod(r.job.Name, r.nameOf(i), index) == pod {
			return i, index, true
		}
	}
	r.refuse("%s: %q: must be the name of a pod of the job, %s-TASK-INDEX", at, pod, r.job.Name)
	return 0, 0, false
}

// indexes returns the set of the indexes of a task's replicas, according to the plan as read so far.
func (r *reader) indexes(task int) map[int32]bool {
	if set := r.sets[task]; set != nil {
		return set
	}
	recorded := ""
	if scaling := r.job.Status.Scaling; scaling != nil {
		recorded = scaling.Indexes[r.nameOf(task)]
	}
	set := map[int32]bool{}
	for _, index := range ranks.Indexes(recorded, min(r.counts.ByTask[task], limits.Replicas)) {
		set[index] = true
	}
	r.sets[task] = set
	return set
}

func (r *reader) nameOf(task int) string {
	return names.TaskName(&r.job.Spec.Tasks[task])
}

func taskNamed(job *v2alpha1.DIJob, name string) int {
	return slices.IndexFunc(job.Spec.Tasks, func(task v2alpha1.Task) bool { return names.TaskName(&task) == name })
}

// describe describes the change for people.
func (r *reader) describe() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.change.Replicas)) {
		if task := taskNamed(r.job, name); task >= 0 {
			parts = append(parts, fmt.Sprintf("%d -> %s of task %s", r.counts.ByTask[task], english.Plural(int(r.change.Replicas[name]), "replica", ""), name))
		}
	}
	for i := range r.plan.Spec.Tasks {
		scale := &r.plan.Spec.Tasks[i]
		if text := workload.FormatResources(scale.Resources); text != "" {
			parts = append(parts, fmt.Sprintf("%s for task %s", text, scale.Name))
		}
	}
	for _, list := range []struct {
		verb string
		pods []string
	}{{"launch", r.plan.Spec.Launch}, {"remove", r.plan.Spec.Remove}, {"migrate", podsOf(r.plan.Spec.Migrate)}} {
		if len(list.pods) > 0 {
			parts = append(parts, list.verb+" "+state.Few(list.pods, ", "))
		}
	}
	return state.Few(parts, "; ")
}

func podsOf(migrations []v2alpha1.PodMigration) []string {
	pods := make([]string, len(migrations))
	for i := range migrations {
		pods[i] = migrations[i].Pod
	}
	return pods
}
