// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package optimizer

import (
	"fmt"
	"math"
)

// maxAmount bounds the CPU in millicores, and the memory in bytes, that a plan may name.
const maxAmount = 1 << 50

// Check validates a plan of any optimizer and clamps it to the limits of the job:
//
//   - A plan that names an unknown task or pod, or one twice, or has a negative number, is refused.
//   - Replicas are clamped to the bounds of the task.
//   - Requests are clamped to the limits of a replica and to the largest node. They are not lowered below the
//     peak usage, nor at all while no usage is known.
//   - A plan that raises the total requests above the limit of the job is refused.
//
// What changes nothing is dropped.
func Check(plan Plan, job *Job) (Plan, error) {
	checked := Plan{Reason: text(plan.Reason)}
	if plan.Empty() {
		return checked, nil
	}
	peaks := Peaks(job)
	tasks := map[string]bool{}
	for i, change := range plan.Tasks {
		task := job.Task(change.Name)
		field := fmt.Sprintf("tasks[%d]", i)
		switch {
		case task == nil:
			return Plan{}, fmt.Errorf("%s.name is %.63q: must be a task of the job", field, change.Name)
		case tasks[change.Name]:
			return Plan{}, fmt.Errorf("%s.name is %q, which another item has too", field, change.Name)
		}
		tasks[change.Name] = true
		clamped, err := clampTask(change, task, job, peaks, field)
		if err != nil {
			return Plan{}, err
		}
		if clamped.Replicas != nil || clamped.Requests != (Resources{}) {
			checked.Tasks = append(checked.Tasks, clamped)
		}
	}
	migrations, err := checkMigrations(plan.Migrate, job, peaks)
	if err != nil {
		return Plan{}, err
	}
	checked.Migrate = migrations
	if err := checkTotal(checked, job); err != nil {
		return Plan{}, err
	}
	return checked, nil
}

func clampTask(change TaskPlan, task *Task, job *Job, peaks map[string]Resources, field string) (TaskPlan, error) {
	if replicas := change.Replicas; replicas != nil {
		if *replicas < 0 {
			return TaskPlan{}, fmt.Errorf("%s.replicas is %d: must not be negative", field, *replicas)
		}
		clamped := max(min(*replicas, task.Max), task.Min)
		change.Replicas = &clamped
		if clamped == task.Replicas {
			change.Replicas = nil
		}
	}
	requests, err := clampRequests(change.Requests, task.Requests, floor(task, job, peaks), job, field+".requests")
	change.Requests = requests
	return change, err
}

func checkMigrations(migrations []Migration, job *Job, peaks map[string]Resources) ([]Migration, error) {
	var checked []Migration
	moved := map[string]bool{}
	for i, migration := range migrations {
		replica, task := job.pod(migration.Pod)
		field := fmt.Sprintf("migrate[%d]", i)
		switch {
		case replica == nil:
			return nil, fmt.Errorf("%s.pod is %.253q: must be a pod of the job", field, migration.Pod)
		case moved[migration.Pod]:
			return nil, fmt.Errorf("%s.pod is %q, which another item has too", field, migration.Pod)
		}
		moved[migration.Pod] = true
		requests, err := clampRequests(migration.Requests, replica.Requests, floor(task, job, peaks), job, field+".requests")
		if err != nil {
			return nil, err
		}
		if requests != (Resources{}) {
			checked = append(checked, Migration{Pod: migration.Pod, Requests: requests})
		}
	}
	return checked, nil
}

// floor returns the requests below which a task must not shrink: the peak usage of the job, or else of its
// group. Where no usage is known, the present requests.
func floor(task *Task, job *Job, peaks map[string]Resources) Resources {
	known := peaks[task.Name]
	if job.History != nil {
		history := job.History.Peaks[task.Name]
		if known.CPU == 0 {
			known.CPU = history.CPU
		}
		if known.Memory == 0 {
			known.Memory = history.Memory
		}
	}
	if known.CPU == 0 {
		known.CPU = math.MaxInt64
	}
	if known.Memory == 0 {
		known.Memory = math.MaxInt64
	}
	return known.max(job.Limits.Floor)
}

func clampRequests(want, current, floor Resources, job *Job, field string) (Resources, error) {
	for _, one := range []struct {
		name   string
		amount int64
	}{{"cpu", want.CPU}, {"memory", want.Memory}} {
		if one.amount < 0 || one.amount > maxAmount {
			return Resources{}, fmt.Errorf("%s.%s is %d: must be between 0 and %d", field, one.name, one.amount, maxAmount)
		}
	}
	ceiling := job.Limits.Ceiling()
	return Resources{
		CPU:    clamp(want.CPU, current.CPU, floor.CPU, ceiling.CPU),
		Memory: clamp(want.Memory, current.Memory, floor.Memory, ceiling.Memory),
	}, nil
}

// clamp returns the amount that may be requested, and zero if it is the present one. A present amount outside
// the range may stay, and is never moved further out of it.
func clamp(want, current, floor, ceiling int64) int64 {
	switch {
	case want == 0:
		return 0
	case want < current:
		want = max(want, min(floor, current))
	case ceiling > 0:
		want = min(want, max(ceiling, current))
	}
	if want == current {
		return 0
	}
	return want
}

// Ceiling returns the maximum requests of one replica; zero where there is none.
func (l *Limits) Ceiling() Resources { return l.Replica.Least(l.Node) }

func checkTotal(plan Plan, job *Job) error {
	before, after := Total(job, Plan{}), Total(job, plan)
	limit := job.Limits.Job
	if limit.CPU > 0 && after.CPU > limit.CPU && after.CPU > before.CPU {
		return fmt.Errorf("the plan requests %d millicores in total: must be at most %d, the limit of the job", after.CPU, limit.CPU)
	}
	if limit.Memory > 0 && after.Memory > limit.Memory && after.Memory > before.Memory {
		return fmt.Errorf("the plan requests %d bytes of memory in total: must be at most %d, the limit of the job", after.Memory, limit.Memory)
	}
	return nil
}

// Total returns the total requests of a job that executes a plan.
func Total(job *Job, plan Plan) Resources {
	changes := map[string]TaskPlan{}
	for _, change := range plan.Tasks {
		changes[change.Name] = change
	}
	moved := map[string]Resources{}
	for _, migration := range plan.Migrate {
		moved[migration.Pod] = migration.Requests
	}
	var total Resources
	for i := range job.Tasks {
		task := &job.Tasks[i]
		change := changes[task.Name]
		replicas := task.Replicas
		if change.Replicas != nil {
			replicas = *change.Replicas
		}
		for at := range replicas {
			requests := task.Requests
			if int(at) < len(task.Pods) {
				requests = task.Pods[at].Requests
				requests = requests.with(change.Requests).with(moved[task.Pods[at].Pod])
			} else {
				requests = requests.with(change.Requests)
			}
			total.CPU = sum(total.CPU, requests.CPU)
			total.Memory = sum(total.Memory, requests.Memory)
		}
	}
	return total
}

// sum adds amounts, and stops at the maximum.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// with returns the resources with those of another that are not zero.
func (r Resources) with(other Resources) Resources {
	if other.CPU > 0 {
		r.CPU = other.CPU
	}
	if other.Memory > 0 {
		r.Memory = other.Memory
	}
	return r
}

// pod returns a replica by the name of its pod, and its task; nil if there is none.
func (j *Job) pod(name string) (*Replica, *Task) {
	for i := range j.Tasks {
		for at := range j.Tasks[i].Pods {
			if j.Tasks[i].Pods[at].Pod == name {
				return &j.Tasks[i].Pods[at], &j.Tasks[i]
			}
		}
	}
	return nil, nil
}
