// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gi = 1 << 30

// world runs one job and the optimizer, as the autoscaler does.
type world struct {
	t         *testing.T
	optimizer *local.Optimizer
	settings  local.Settings
	job       *optimizer.Job
	plans     []record
	// demand is what a replica would use, and speed the speed of the job with its present requests.
	demand func(task *optimizer.Task, index int32) optimizer.Resources
	speed  func() float64
}

// record is an executed plan.
type record struct {
	at     time.Time
	plan   optimizer.Plan
	before optimizer.Job
}

func newWorld(t *testing.T, settings local.Settings, tasks ...optimizer.Task) *world {
	t.Helper()
	expect.NoError(t, settings.Check())
	w := &world{t: t, optimizer: local.New(settings), settings: settings, job: &optimizer.Job{
		Namespace: "default", Name: "job", Now: time.Unix(1_764_000_000, 0), Tasks: tasks,
		Limits: settings.Limits(optimizer.Resources{}, optimizer.Resources{}, optimizer.Resources{CPU: 64_000, Memory: 256 * gi}),
	}}
	for i := range w.job.Tasks {
		w.job.Tasks[i].Template = w.job.Tasks[i].Requests
		w.resize(&w.job.Tasks[i], w.job.Tasks[i].Replicas)
	}
	return w
}

// resize gives a task pods.
func (w *world) resize(task *optimizer.Task, replicas int32) {
	task.Replicas = replicas
	task.Pods = append([]optimizer.Replica{}, task.Pods[:min(len(task.Pods), int(replicas))]...)
	for index := int32(len(task.Pods)); index < replicas; index++ {
		task.Pods = append(task.Pods, optimizer.Replica{Task: task.Name, Index: index, Pod: fmt.Sprintf("%s-%d", task.Name, index), Requests: task.Requests})
	}
}

// sample records what the replicas use now.
func (w *world) sample() {
	w.record(w.speed(), func(task *optimizer.Task, pod *optimizer.Replica) optimizer.Resources {
		want := w.demand(task, pod.Index)
		return optimizer.Resources{CPU: min(want.CPU, pod.Requests.CPU), Memory: min(want.Memory, pod.Requests.Memory)}
	})
}

func (w *world) record(speed float64, used func(*optimizer.Task, *optimizer.Replica) optimizer.Resources) {
	sample := optimizer.Sample{Time: w.job.Now, Speed: speed}
	for i := range w.job.Tasks {
		task := &w.job.Tasks[i]
		for at := range task.Pods {
			pod := &task.Pods[at]
			sample.Usage = append(sample.Usage, optimizer.Usage{Task: task.Name, Index: pod.Index, Used: used(task, pod), Requests: pod.Requests})
		}
	}
	w.job.Samples = append(w.job.Samples, sample)
	if excess := len(w.job.Samples) - optimizer.MaxSamples; excess > 0 {
		w.job.Samples = w.job.Samples[excess:]
	}
	peaks := optimizer.Peaks(w.job)
	for i := range w.job.Tasks {
		w.job.Tasks[i].Peak = peaks[w.job.Tasks[i].Name]
	}
}

// decide asks the optimizer, and checks its plan as the autoscaler does.
func (w *world) decide() optimizer.Plan {
	w.t.Helper()
	stage := optimizer.StageOf(w.job)
	plan, err := w.optimizer.Generate(w.t.Context(), stage, w.job)
	expect.NoError(w.t, err)
	w.job.Stage = stage
	checked, err := optimizer.Check(plan, w.job)
	if err != nil {
		w.t.Fatalf("%s: %v: %+v", stage, err, plan)
	}
	if plan.Reason == "" {
		w.t.Fatalf("%s: a plan has no reason", stage)
	}
	if !checked.Empty() {
		w.plans = append(w.plans, record{at: w.job.Now, plan: checked, before: w.copied()})
		w.job.LastPlan = w.job.Now
	}
	return checked
}

// copied returns the job as it is now.
func (w *world) copied() optimizer.Job {
	job := *w.job
	job.Tasks = slices.Clone(job.Tasks)
	for i := range job.Tasks {
		job.Tasks[i].Pods = slices.Clone(job.Tasks[i].Pods)
	}
	return job
}

// execute gives the job the replicas and resources of a plan.
func (w *world) execute(plan optimizer.Plan) {
	for _, change := range plan.Tasks {
		task := w.job.Task(change.Name)
		w.changed(task, task.Requests, change.Requests)
		for at := range task.Pods {
			task.Pods[at].Requests = merge(task.Pods[at].Requests, change.Requests)
		}
		task.Requests = merge(task.Requests, change.Requests)
		if change.Replicas != nil {
			w.resize(task, *change.Replicas)
		}
	}
	for _, migration := range plan.Migrate {
		for i := range w.job.Tasks {
			for at := range w.job.Tasks[i].Pods {
				if pod := &w.job.Tasks[i].Pods[at]; pod.Pod == migration.Pod {
					w.changed(&w.job.Tasks[i], pod.Requests, migration.Requests)
					pod.Requests = merge(pod.Requests, migration.Requests)
				}
			}
		}
	}
}

// changed records when a task last changed.
func (w *world) changed(task *optimizer.Task, from, to optimizer.Resources) {
	if to.CPU > from.CPU || to.Memory > from.Memory {
		task.GrownAt = w.job.Now
	}
	if task.Role == optimizer.RoleParameterServer {
		w.job.LastServerPlan = w.job.Now
	}
}

func merge(a, b optimizer.Resources) optimizer.Resources {
	if b.CPU > 0 {
		a.CPU = b.CPU
	}
	if b.Memory > 0 {
		a.Memory = b.Memory
	}
	return a
}

// run lets time pass. Every plan is executed at once.
func (w *world) run(duration, period time.Duration) {
	w.t.Helper()
	for end := w.job.Now.Add(duration); w.job.Now.Before(end); {
		w.job.Now = w.job.Now.Add(period)
		w.sample()
		w.execute(w.decide())
	}
}
