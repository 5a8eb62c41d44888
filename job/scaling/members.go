// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/workload"
)

// The replicas of a coordinator-led job are the members of its Membership, which have slots instead of
// indexes. A plan changes that list, as a request to di-server does. Without the list a plan is checked
// only by its form: the job checks it again when it takes it.

// countMembers sets the counts to those of the members; the tasks of other types keep their pod.
func (r *reader) countMembers() {
	for i := range r.job.Spec.Tasks {
		r.counts.ByTask[i] = 1
		if kind := r.job.Spec.Tasks[i].Type; isOfMembers(kind) {
			r.counts.ByTask[i] = 0
			if r.members != nil {
				r.counts.ByTask[i] = membership.Count(&r.members.Spec, kind)
			}
		}
	}
}

// isOfMembers reports whether the replicas of a task are members.
func isOfMembers(kind v2alpha1.TaskType) bool {
	return kind == v2alpha1.TaskTypeCollector || kind == v2alpha1.TaskTypeLearner
}

// readMembers reads the pods that a plan names, and checks the counts.
func (r *reader) readMembers(maxPods int32) {
	for i := range r.plan.Spec.Tasks {
		name := r.plan.Spec.Tasks[i].Name
		if task := taskNamed(r.job, name); task >= 0 && !isOfMembers(r.job.Spec.Tasks[task].Type) {
			r.refuse("spec.tasks[%d].name: %q: must be a task of collectors or learners in a coordinator-led job", i, name)
		}
	}
	if len(r.plan.Spec.Launch) > 0 {
		r.refuse("spec.launch: must be absent for a coordinator-led job, whose pods the operator names: set replicas of the task")
	}
	removed := map[string]bool{}
	for i, pod := range r.plan.Spec.Remove {
		if member := r.memberOf(fmt.Sprintf("spec.remove[%d]", i), pod); member != nil {
			removed[member.Slot] = true
		}
	}
	for i := range r.plan.Spec.Migrate {
		migration := &r.plan.Spec.Migrate[i]
		at := fmt.Sprintf("spec.migrate[%d].pod", i)
		member := r.memberOf(at, migration.Pod)
		switch {
		case member == nil:
		case removed[member.Slot]:
			r.refuse("%s: %q: must be a pod of the job that the plan does not remove", at, migration.Pod)
		case migration.Resources.CPU == nil && migration.Resources.Memory == nil:
			r.change.Migrate = append(r.change.Migrate, migration.Pod)
		default:
			id := workload.MemberID(r.job, member)
			override := id.Override()
			override.Resources = migration.Resources
			r.override(override)
		}
	}
	r.checkOverrides()
	if len(r.problems) == 0 && r.members != nil {
		r.countRemoved(removed)
		r.checkMembers(maxPods)
	}
}

// memberOf returns the member that a pod's name stands for; nil if there is none, or the list is unknown.
func (r *reader) memberOf(at, pod string) *v2alpha1.Member {
	if !membership.IsReplicaName(r.job.Name, pod) {
		r.refuse("%s: %q: must be the name of a collector, a learner or an aggregator of the job, %s-ROLE-SUFFIX", at, pod, r.job.Name)
		return nil
	}
	if r.members == nil {
		return nil
	}
	member, role := membership.Find(r.job.Name, &r.members.Spec, &r.members.Status, pod)
	if member == nil || role == names.ReplicaTypeDDPLearner {
		r.refuse("%s: %q: must be the current pod of a member, and of a learner of several GPUs that of its aggregator", at, pod)
		return nil
	}
	return member
}

// countRemoved sets the counts of tasks whose members the plan removes by name.
func (r *reader) countRemoved(removed map[string]bool) {
	left := map[string]int32{}
	for i := range r.members.Spec.Members {
		if member := &r.members.Spec.Members[i]; removed[member.Slot] {
			name := names.NameOfType(&r.job.Spec, member.Task)
			if _, isKnown := left[name]; !isKnown {
				left[name] = membership.Count(&r.members.Spec, member.Task)
			}
			left[name]--
		}
	}
	for name, count := range left {
		if wanted, isSet := r.change.Replicas[name]; isSet && wanted != count {
			r.refuse("spec.tasks: %s of task %s: must be %d, the number that results from remove, or absent", english.Plural(int(wanted), "replica", ""), name, count)
		}
		r.change.Replicas[name] = count
	}
}

// checkMembers checks the counts that result from the plan.
func (r *reader) checkMembers(maxPods int32) {
	counts := map[v2alpha1.TaskType]int32{}
	pods := int64(1)
	for i := range r.job.Spec.Tasks {
		task := &r.job.Spec.Tasks[i]
		if !isOfMembers(task.Type) {
			continue
		}
		name, present := names.TaskName(task), r.counts.ByTask[i]
		wanted, isSet := r.change.Replicas[name]
		if !isSet {
			wanted = present
		}
		if wanted != present {
			r.checkWriter(i, name)
		}
		if wanted > present && present == 0 {
			r.refuse("spec: %s of task %s: must be 0, because the job has none whose resources they could have: its coordinator requests the first one",
				english.Plural(int(wanted), "replica", ""), name)
		}
		counts[task.Type] = wanted
		pods += r.podsOf(task.Type, wanted)
	}
	switch total := limits.Total(counts[v2alpha1.TaskTypeCollector], counts[v2alpha1.TaskTypeLearner]); {
	case total > limits.Members:
		r.refuse("spec: %d members: must be at most %d", total, limits.Members)
	case pods > int64(maxPods):
		r.refuse("spec: %d pods: must be at most %d, the maximum number of pods of a job here", pods, maxPods)
	}
	slices.Sort(r.problems)
}

// podsOf returns how many pods a number of members has at most. New members are like the newest one.
func (r *reader) podsOf(task v2alpha1.TaskType, count int32) int64 {
	var pods, newest int64
	for i := range r.members.Spec.Members {
		if member := &r.members.Spec.Members[i]; member.Task == task && count > 0 {
			newest = 1 + int64(len(member.DDPGPUs))
			pods += newest
			count--
		}
	}
	return pods + newest*int64(count)
}

// resizeOf returns the change of members that a record and its plan describe.
func resizeOf(job *v2alpha1.DIJob, record *v2alpha1.PlanRecord, plan *v2alpha1.ScalePlan, maxMembers int32) membership.Resize {
	given := 0
	resize := membership.Resize{
		Namespace: job.Namespace, Job: job.Name, Remove: plan.Spec.Remove, Replicas: map[v2alpha1.TaskType]int32{}, MaxMembers: maxMembers,
		ID: names.PlanManager(record.UID),
		// A repeated attempt gives the same names.
		Random: func(int) string {
			given++
			return names.Suffix(record.UID, strconv.Itoa(given))
		},
	}
	for i := range job.Spec.Tasks {
		if count, isSet := record.Replicas[names.TaskName(&job.Spec.Tasks[i])]; isSet {
			resize.Replicas[job.Spec.Tasks[i].Type] = count
		}
	}
	return resize
}
