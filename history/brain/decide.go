// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package brain

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
)

const (
	// maxGrowth and maxShrink are how many times more, or less, than its template a replica requests by the past.
	maxGrowth, maxShrink = 4, 16
	// nearBelow and nearAbove are the shares of the need between which a request stays.
	nearBelow, nearAbove = 0.99, 1.01
	// maxMigrations bounds the replicas that a plan names, as a ScalePlan does.
	maxMigrations = 2_000
	// The granularity of requests: 10 millicores and 1 MiB.
	cpuGrain    = 10
	memoryGrain = 1 << 20
)

// decision is what the past decides about a job now.
type decision struct {
	*Optimizer
	job   *optimizer.Job
	peaks map[string]optimizer.Resources
	// refuted are the resources of tasks that the job used more of than the past says.
	refuted []string
}

func (o *Optimizer) decide(job *optimizer.Job) *decision {
	return &decision{Optimizer: o, job: job, peaks: optimizer.Peaks(job)}
}

// need returns what a replica of a task should request; 0 where nothing is known, or where the job itself has
// refuted it.
func (d *decision) need(task *optimizer.Task) optimizer.Resources {
	known := d.past.tasks[task.Name]
	if known == nil {
		return optimizer.Resources{}
	}
	ceiling, own := d.ceiling(), d.peaks[task.Name]
	one := func(name string, values []value, grain, used, template, most int64) int64 {
		want := need(values, grain)
		if want == 0 {
			return 0
		}
		if used >= want {
			d.refuted = append(d.refuted, name+" of "+task.Name)
			return 0
		}
		if template > 0 {
			want = max(min(want, times(template, maxGrowth)), template/maxShrink)
		}
		if most > 0 {
			want = min(want, most)
		}
		return want
	}
	return optimizer.Resources{
		CPU:    one("CPU", known.cpu, cpuGrain, own.CPU, task.Template.CPU, ceiling.CPU),
		Memory: one("memory", known.memory, memoryGrain, own.Memory, task.Template.Memory, ceiling.Memory),
	}
}

// ceiling returns the maximum requests of one replica.
func (d *decision) ceiling() optimizer.Resources {
	return d.settings.Max.Least(d.job.Limits.Ceiling())
}

// room returns how much the total requests of a job that executes a plan may grow.
func (d *decision) room(plan optimizer.Plan) optimizer.Resources {
	total, limit := optimizer.Total(d.job, plan), d.job.Limits.Job
	left := func(limit, total int64) int64 {
		if limit <= 0 {
			return math.MaxInt64 / 4
		}
		return max(limit-total, 0)
	}
	return optimizer.Resources{CPU: left(limit.CPU, total.CPU), Memory: left(limit.Memory, total.Memory)}
}

// first returns the first requests, and the number of workers. By the past come first those of tasks that it knows; the
// others are as in the local plan.
func (d *decision) first(other optimizer.Plan) optimizer.Plan {
	plan, room, isLearned := optimizer.Plan{}, d.room(optimizer.Plan{}), false
	for i := range d.job.Tasks {
		task := &d.job.Tasks[i]
		need := d.need(task)
		want := optimizer.Resources{
			CPU:    moved(task.Requests.CPU, need.CPU, room.CPU, task.Replicas),
			Memory: moved(task.Requests.Memory, need.Memory, room.Memory, task.Replicas),
		}
		isLearned = isLearned || need != (optimizer.Resources{})
		for _, change := range other.Tasks {
			if change.Name == task.Name && need == (optimizer.Resources{}) {
				want = change.Requests
			}
		}
		if task.Replicas > 0 && want != (optimizer.Resources{}) {
			set(&plan, task, want)
			room.CPU -= growth(task.Requests.CPU, want.CPU, task.Replicas)
			room.Memory -= growth(task.Requests.Memory, want.Memory, task.Replicas)
		}
	}
	count := d.resize(&plan)
	switch {
	case isLearned || count != "":
		plan.Reason = "CREATE: by " + d.past.source() + count
	case d.past.obstacle != "":
		plan.Reason = other.Reason + "; " + d.past.obstacle
	default:
		plan.Reason = fmt.Sprintf("%s; the history has %d similar jobs, of the %d that it needs", other.Reason, len(d.past.jobs), minJobs)
	}
	if len(d.refuted) > 0 {
		plan.Reason += "; the job uses more than they did: " + strings.Join(d.refuted, ", ")
	}
	return plan
}

// moved returns the need, within the room of all replicas, unless the request is near; 0 to keep it.
func moved(request, need, room int64, replicas int32) int64 {
	isNear := float64(request) >= nearBelow*float64(need) && float64(request) <= nearAbove*float64(need)
	if need == 0 || isNear {
		return 0
	}
	return min(need, request+room/int64(max(replicas, 1)))
}

// growth returns how much more all replicas request; 0 is no change.
func growth(request, want int64, replicas int32) int64 {
	if want == 0 {
		return 0
	}
	return (want - request) * int64(replicas)
}

// set adds new requests of a task to a plan. Those of a whole task would replace those that a replica has of its own, so
// beside such replicas each other one is named.
func set(plan *optimizer.Plan, task *optimizer.Task, requests optimizer.Resources) {
	own := func(pod optimizer.Replica) bool { return pod.Requests != task.Requests }
	if !slices.ContainsFunc(task.Pods, own) {
		plan.Tasks = append(plan.Tasks, optimizer.TaskPlan{Name: task.Name, Requests: requests})
		return
	}
	for _, pod := range task.Pods {
		if !own(pod) && len(plan.Migrate) < maxMigrations {
			plan.Migrate = append(plan.Migrate, optimizer.Migration{Pod: pod.Pod, Requests: requests})
		}
	}
}

// resize adds the number of workers to a plan, and describes it.
func (d *decision) resize(plan *optimizer.Plan) string {
	want := d.past.workers(d.settings.SpeedRatio)
	at := slices.IndexFunc(d.job.Tasks, func(t optimizer.Task) bool {
		return t.Role == optimizer.RoleWorker && t.Replicas > 0 && t.Min < t.Max
	})
	if want == 0 || at < 0 {
		return ""
	}
	task := &d.job.Tasks[at]
	want = max(min(want, task.Max, task.Replicas+d.settings.WorkerStep), task.Min)
	change := slices.IndexFunc(plan.Tasks, func(t optimizer.TaskPlan) bool { return t.Name == task.Name })
	each, room := task.Requests, d.room(*plan)
	if change >= 0 && plan.Tasks[change].Requests.CPU > 0 {
		each.CPU = plan.Tasks[change].Requests.CPU
	}
	if change >= 0 && plan.Tasks[change].Requests.Memory > 0 {
		each.Memory = plan.Tasks[change].Requests.Memory
	}
	for _, one := range [][2]int64{{each.CPU, room.CPU}, {each.Memory, room.Memory}} {
		if one[0] > 0 {
			want = int32(min(int64(want), int64(task.Replicas)+one[1]/one[0]))
		}
	}
	if want == task.Replicas {
		return ""
	}
	if change < 0 {
		plan.Tasks = append(plan.Tasks, optimizer.TaskPlan{Name: task.Name})
		change = len(plan.Tasks) - 1
	}
	plan.Tasks[change].Replicas = &want
	return fmt.Sprintf("; %d of %s by the speeds that they reported", want, task.Name)
}

// recover returns a plan with more memory for tasks whose replicas were killed: at least what the local plan gives
// these, what similar replicas reached unless that did not suffice, and what the template has.
func (d *decision) recover(killed []optimizer.Replica, plan optimizer.Plan) optimizer.Plan {
	lost := map[string]int64{}
	for _, replica := range killed {
		lost[replica.Task] = max(lost[replica.Task], replica.Requests.Memory)
	}
	given := map[string]int64{}
	for _, migration := range plan.Migrate {
		given[migration.Pod] = migration.Requests.Memory
	}
	more, isLearned := optimizer.Plan{Migrate: plan.Migrate}, false
	room := d.room(plan).Memory
	for i := range d.job.Tasks {
		task := &d.job.Tasks[i]
		had := lost[task.Name]
		if had == 0 {
			continue
		}
		peak := d.peaks[task.Name]
		d.peaks[task.Name] = optimizer.Resources{CPU: peak.CPU, Memory: max(peak.Memory, had)}
		learned := d.need(task).Memory
		want := max(learned, min(task.Template.Memory, max(d.ceiling().Memory, had)))
		if added := missing(task, given, want); added > 0 && added <= room {
			raise(&more, task, given, want)
			room -= added
			isLearned = isLearned || want == learned
		}
	}
	more.Reason = plan.Reason
	if isLearned {
		more.Reason += "; at least what such replicas reached, by " + d.past.source()
	}
	if len(d.refuted) > 0 {
		more.Reason += "; the past did not suffice, and is ignored: " + strings.Join(d.refuted, ", ")
	}
	return more
}

// missing returns how much the memory of all replicas of a task grows if each has at least so much.
func missing(task *optimizer.Task, given map[string]int64, want int64) int64 {
	added := max(want-task.Requests.Memory, 0) * max(int64(task.Replicas)-int64(len(task.Pods)), 0)
	for _, pod := range task.Pods {
		added += max(want-max(pod.Requests.Memory, given[pod.Pod]), 0)
	}
	return added
}

// raise gives all replicas of a task at least so much memory, since each of them may be the next one to be killed.
func raise(plan *optimizer.Plan, task *optimizer.Task, given map[string]int64, want int64) {
	isWhole := !slices.ContainsFunc(task.Pods, func(pod optimizer.Replica) bool { return pod.Requests != task.Requests })
	needs := map[string]bool{}
	for _, pod := range task.Pods {
		needs[pod.Pod] = max(pod.Requests.Memory, given[pod.Pod]) < want
	}
	plan.Migrate = slices.DeleteFunc(slices.Clone(plan.Migrate), func(m optimizer.Migration) bool { return needs[m.Pod] })
	if isWhole {
		plan.Tasks = append(plan.Tasks, optimizer.TaskPlan{Name: task.Name, Requests: optimizer.Resources{Memory: want}})
		return
	}
	for _, pod := range task.Pods {
		if needs[pod.Pod] && len(plan.Migrate) < maxMigrations {
			plan.Migrate = append(plan.Migrate, optimizer.Migration{Pod: pod.Pod, Requests: optimizer.Resources{Memory: want}})
		}
	}
}

// times multiplies an amount, within what an integer holds.
func times(amount, factor int64) int64 { return min(amount, math.MaxInt64/4/factor) * factor }
