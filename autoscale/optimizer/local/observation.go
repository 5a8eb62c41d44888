// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"math"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
)

// The granularity of requests: 50 millicores and 16 MiB.
const (
	cpuGrain    = 50
	memoryGrain = 16 << 20
)

// observation is what the rules read of a job.
type observation struct {
	settings *Settings
	job      *optimizer.Job
	// settled are the samples of the job in its present shape.
	settled []optimizer.Sample
	// peaks are the maximum usages of one replica, by task.
	peaks map[string]optimizer.Resources
	// ceiling are the maximum requests of one replica.
	ceiling optimizer.Resources
}

func observe(settings *Settings, job *optimizer.Job) *observation {
	ceiling := job.Limits.Ceiling()
	return &observation{
		settings: settings, job: job, settled: job.Settled(), peaks: optimizer.Peaks(job), ceiling: settings.Max.Least(ceiling),
	}
}

// last returns the last n samples of the present shape; nil if there are fewer.
func (o *observation) last(n int) []optimizer.Sample {
	if len(o.settled) < n {
		return nil
	}
	return o.settled[len(o.settled)-n:]
}

// utilization is the mean usage of a replica in some samples.
type utilization struct {
	replica *optimizer.Replica
	used    optimizer.Resources
}

// cpu returns the used share of the requested CPU; 0 if none is requested.
func (u *utilization) cpu() float64 {
	if u.replica.Requests.CPU <= 0 {
		return 0
	}
	return float64(u.used.CPU) / float64(u.replica.Requests.CPU)
}

// usage returns the mean usage of each replica of a task.
func usage(task *optimizer.Task, samples []optimizer.Sample) []utilization {
	totals := map[int32]optimizer.Resources{}
	for i := range samples {
		for _, one := range samples[i].Usage {
			if one.Task == task.Name {
				total := totals[one.Index]
				totals[one.Index] = optimizer.Resources{CPU: total.CPU + one.Used.CPU, Memory: total.Memory + one.Used.Memory}
			}
		}
	}
	means := make([]utilization, 0, len(task.Pods))
	for i := range task.Pods {
		total := totals[task.Pods[i].Index]
		n := int64(max(len(samples), 1))
		means = append(means, utilization{replica: &task.Pods[i], used: optimizer.Resources{CPU: total.CPU / n, Memory: total.Memory / n}})
	}
	return means
}

// busiest returns the maximum CPU utilization of a parameter server, and false if there is none.
func (o *observation) busiest(samples []optimizer.Sample) (float64, bool) {
	busiest, exists := 0.0, false
	for task := range o.tasks(optimizer.RoleParameterServer) {
		for _, one := range usage(task, samples) {
			busiest, exists = max(busiest, one.cpu()), true
		}
	}
	return busiest, exists
}

// tasks iterates over the tasks of a role that have replicas.
func (o *observation) tasks(role optimizer.Role) func(yield func(*optimizer.Task) bool) {
	return func(yield func(*optimizer.Task) bool) {
		for i := range o.job.Tasks {
			if task := &o.job.Tasks[i]; task.Role == role && task.Replicas > 0 && !yield(task) {
				return
			}
		}
	}
}

// resizable returns the first task of a role whose number of replicas an optimizer may decide; nil if there is none.
func (o *observation) resizable(role optimizer.Role) *optimizer.Task {
	for task := range o.tasks(role) {
		if task.Min < task.Max {
			return task
		}
	}
	return nil
}

// need returns what a replica of a task should request by a usage.
func (o *observation) need(task *optimizer.Task, used optimizer.Resources) optimizer.Resources {
	margin := o.settings.WorkerMemoryMargin
	if task.Role == optimizer.RoleParameterServer {
		margin = o.settings.ServerMemoryMargin
	}
	return optimizer.Resources{
		CPU: grains(share(used.CPU, 1+o.settings.CPUMargin), cpuGrain), Memory: grains(share(used.Memory, 1+margin), memoryGrain),
	}
}

// room returns how much the total requests of the job may grow.
func (o *observation) room() optimizer.Resources {
	total, limit := optimizer.Total(o.job, optimizer.Plan{}), o.job.Limits.Job
	room := optimizer.Resources{CPU: math.MaxInt64 / 2, Memory: math.MaxInt64 / 2}
	if limit.CPU > 0 {
		room.CPU = max(limit.CPU-total.CPU, 0)
	}
	if limit.Memory > 0 {
		room.Memory = max(limit.Memory-total.Memory, 0)
	}
	return room
}

// cap returns an amount that is at most a limit. Zero is no limit.
func (o *observation) cap(amount, limit int64) int64 {
	if limit > 0 {
		return min(amount, limit)
	}
	return amount
}

// share returns a multiple of an amount, within what an integer holds.
func share(amount int64, factor float64) int64 {
	return int64(min(float64(amount)*factor, math.MaxInt64/4))
}

// grains rounds an amount up.
func grains(amount, grain int64) int64 { return (amount + grain - 1) / grain * grain }

// speed returns the mean speed of samples; 0 if one has none.
func speed(samples []optimizer.Sample) float64 {
	total := 0.0
	for i := range samples {
		if one := samples[i].Speed; !(one > 0) || math.IsInf(one, 1) {
			return 0
		}
		total += samples[i].Speed / float64(len(samples))
	}
	return total
}

// replicas returns how many replicas of a task a sample has.
func replicas(sample *optimizer.Sample, task string) int32 {
	var count int32
	for i := range sample.Usage {
		if sample.Usage[i].Task == task {
			count++
		}
	}
	return count
}
