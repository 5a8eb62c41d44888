// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
)

// initial gives requests to the replicas of a job without usage: what the group used, or else, to a replica
// that requests nothing, a part of the job's limit.
func initial(seen *observation) optimizer.Plan {
	plan := optimizer.Plan{Reason: "CREATE: every task has requests, and no finished job of the group is known"}
	for i := range seen.job.Tasks {
		task := &seen.job.Tasks[i]
		want := seen.fromGroup(task).with(seen.fromLimit(task))
		if task.Replicas > 0 && want != (amounts{}) {
			plan.Tasks = append(plan.Tasks, optimizer.TaskPlan{Name: task.Name, Requests: optimizer.Resources(want)})
		}
	}
	if len(plan.Tasks) > 0 {
		plan.Reason = "CREATE: the first requests are by the usage of the group, or by the limit of the job"
	}
	return plan
}

// amounts are resources that a rule composes.
type amounts optimizer.Resources

// with fills the zeros of amounts with others.
func (a amounts) with(others amounts) amounts {
	if a.CPU == 0 {
		a.CPU = others.CPU
	}
	if a.Memory == 0 {
		a.Memory = others.Memory
	}
	return a
}

// fromGroup returns the requests by the peaks of the group; zero where the present ones are near.
func (o *observation) fromGroup(task *optimizer.Task) amounts {
	if o.job.History == nil {
		return amounts{}
	}
	used := o.job.History.Peaks[task.Name]
	need := o.need(task, used)
	return amounts{
		CPU: o.moved(task.Requests.CPU, used.CPU, need.CPU), Memory: o.moved(task.Requests.Memory, used.Memory, need.Memory),
	}
}

// moved returns the need if a request is less than the usage, or much more than the need.
func (o *observation) moved(request, used, need int64) int64 {
	if used > 0 && (request < used || request > share(need, o.settings.ShrinkFactor)) {
		return need
	}
	return 0
}

// fromLimit returns the requests of a replica that has none, by the limit of the job.
func (o *observation) fromLimit(task *optimizer.Task) amounts {
	part := func(request, limit, most int64) int64 {
		if request > 0 || limit <= 0 {
			return 0
		}
		return min((limit+o.settings.InitialShare-1)/o.settings.InitialShare, most)
	}
	limit := o.job.Limits.Job
	return amounts{
		CPU:    part(task.Requests.CPU, limit.CPU, o.settings.Initial.CPU),
		Memory: part(task.Requests.Memory, limit.Memory, o.settings.Initial.Memory),
	}
}

// fullMemory gives more memory to replicas that have almost used up theirs.
func fullMemory(seen *observation) optimizer.Plan {
	plan := optimizer.Plan{Reason: "no replica has used up its memory"}
	if len(seen.settled) == 0 {
		return plan
	}
	room, latest := seen.room().Memory, seen.settled[len(seen.settled)-1:]
	for i := range seen.job.Tasks {
		task := &seen.job.Tasks[i]
		whole := int64(0)
		for _, one := range usage(task, latest) {
			had := one.replica.Requests.Memory
			if had <= 0 || float64(one.used.Memory) < float64(had)*seen.settings.MemoryFull {
				continue
			}
			most := optimizer.Resources{Memory: max(one.used.Memory, seen.peaks[task.Name].Memory)}
			want := seen.cap(seen.need(task, most).Memory, seen.ceiling.Memory)
			if task.Role != optimizer.RoleParameterServer && had == task.Requests.Memory {
				whole = max(whole, min(want, had+room/int64(task.Replicas)))
			} else if want = min(want, had+room); want > had {
				room -= want - had
				plan.Migrate = append(plan.Migrate, optimizer.Migration{Pod: one.replica.Pod, Requests: optimizer.Resources{Memory: want}})
			}
		}
		if whole > task.Requests.Memory {
			room -= (whole - task.Requests.Memory) * int64(task.Replicas)
			set(&plan, task, optimizer.Resources{Memory: whole})
		}
	}
	plan.Reason = fmt.Sprintf("MemoryFull: replicas of %s, or %d on their own, use at least %.0f %% of their memory",
		english.Plural(len(plan.Tasks), "task", ""), len(plan.Migrate), 100*seen.settings.MemoryFull)
	if plan.Empty() {
		plan.Reason = "no replica has used up its memory"
	}
	return plan
}

// hotServers gives more CPU to parameter servers that limit the others.
func hotServers(seen *observation) optimizer.Plan {
	samples := seen.last(seen.settings.HotSamples)
	for task := range seen.tasks(optimizer.RoleParameterServer) {
		if plan := hot(seen, task, samples); !plan.Empty() {
			return plan
		}
	}
	return optimizer.Plan{Reason: "no parameter server is hot"}
}

// hot gives more CPU to the servers of a task that are hot, by what they use in the last sample.
func hot(seen *observation, task *optimizer.Task, samples []optimizer.Sample) optimizer.Plan {
	if len(samples) == 0 {
		return optimizer.Plan{}
	}
	mean, latest := usage(task, samples), usage(task, samples[len(samples)-1:])
	hottest, cool, others := -1, 0, 0.0
	for i := range mean {
		switch {
		case mean[i].cpu() < seen.settings.Hot:
			cool++
			others += latest[i].cpu()
		case hottest < 0 || mean[i].cpu() > mean[hottest].cpu():
			hottest = i
		}
	}
	if hottest < 0 {
		return optimizer.Plan{}
	}
	// gain is how much faster the job becomes until the other servers are as busy as a hot one may be.
	gain := 1.0
	if others > 0 {
		gain = min(max(seen.settings.Hot*float64(cool)/others, 1), seen.settings.HotMax)
	}
	plan := optimizer.Plan{Reason: fmt.Sprintf("HotParameterServer: %s uses %.0f %% of its CPU, and the other servers use %.0f %% on average",
		mean[hottest].replica.Pod, 100*mean[hottest].cpu(), 100*others/float64(max(cool, 1)))}
	room := seen.room().CPU
	for i := range latest {
		had := latest[i].replica.Requests.CPU
		want := share(latest[i].used.CPU, gain/seen.settings.Hot)
		if mean[i].cpu() >= seen.settings.Hot {
			want = max(want, share(had, seen.settings.HotMin))
		}
		want = min(seen.cap(grains(min(want, share(had, seen.settings.HotMax)), cpuGrain), seen.ceiling.CPU), had+room)
		if want > had {
			room -= want - had
			plan.Migrate = append(plan.Migrate, optimizer.Migration{Pod: latest[i].replica.Pod, Requests: optimizer.Resources{CPU: want}})
		}
	}
	return plan
}

// slower takes a shrink back that made the job slower.
func slower(seen *observation) optimizer.Plan {
	none := optimizer.Plan{Reason: "no shrink made the job slower"}
	n := seen.settings.Samples
	now, before := seen.last(n), seen.before()
	if now == nil || len(before) < n {
		return none
	}
	was, is := speed(before[len(before)-n:]), speed(now)
	if was == 0 || is == 0 || is >= was*(1-seen.settings.SpeedLoss) {
		return none
	}
	had := shape(&before[len(before)-1])
	plan := optimizer.Plan{Reason: fmt.Sprintf("ShrinkUndone: the speed fell from %.4g to %.4g when requests shrank", was, is)}
	for i := range seen.job.Tasks {
		task := &seen.job.Tasks[i]
		earlier := task.Requests
		for _, pod := range task.Pods {
			if of := had[slot{task.Name, pod.Index}]; of.CPU > pod.Requests.CPU || of.Memory > pod.Requests.Memory {
				earlier = optimizer.Resources{CPU: max(earlier.CPU, of.CPU), Memory: max(earlier.Memory, of.Memory)}
			}
		}
		if earlier != task.Requests {
			set(&plan, task, earlier)
		}
	}
	return plan
}

// before returns the samples of the shape before the present one, if it had the same replicas.
func (o *observation) before() []optimizer.Sample {
	end := len(o.job.Samples) - len(o.settled)
	if len(o.settled) == 0 || end == 0 {
		return nil
	}
	last := shape(&o.job.Samples[end-1])
	if len(last) != len(o.settled[0].Usage) {
		return nil
	}
	first := end
	for first > 0 && equal(shape(&o.job.Samples[first-1]), last) {
		first--
	}
	return o.job.Samples[first:end]
}

type slot struct {
	task  string
	index int32
}

func shape(sample *optimizer.Sample) map[slot]optimizer.Resources {
	shape := map[slot]optimizer.Resources{}
	for _, one := range sample.Usage {
		shape[slot{one.Task, one.Index}] = one.Requests
	}
	return shape
}

func equal(a, b map[slot]optimizer.Resources) bool {
	if len(a) != len(b) {
		return false
	}
	for key, requests := range a {
		if other, exists := b[key]; !exists || other != requests {
			return false
		}
	}
	return true
}

// saturated gives a task that shrank earlier, and needs its CPU now, the CPU of its template again.
func saturated(seen *observation) optimizer.Plan {
	plan := optimizer.Plan{Reason: "no task that shrank uses up its CPU"}
	samples := seen.last(seen.settings.Samples)
	for i := range seen.job.Tasks {
		task := &seen.job.Tasks[i]
		if task.Requests.CPU >= task.Template.CPU || samples == nil {
			continue
		}
		for _, one := range usage(task, samples) {
			if one.replica.Requests.CPU == task.Requests.CPU && one.cpu() >= seen.settings.Hot {
				set(&plan, task, optimizer.Resources{CPU: task.Template.CPU})
				plan.Reason = fmt.Sprintf("CPUFull: %s uses %.0f %% of its CPU, which is less than that of its template", one.replica.Pod, 100*one.cpu())
				break
			}
		}
	}
	return plan
}

// set adds new requests of a task to a plan. Requests of a whole task replace those that a replica has of its own,
// so beside such replicas each other one is named.
func set(plan *optimizer.Plan, task *optimizer.Task, requests optimizer.Resources) {
	own := func(pod optimizer.Replica) bool { return pod.Requests != task.Requests }
	if !slices.ContainsFunc(task.Pods, own) {
		plan.Tasks = append(plan.Tasks, optimizer.TaskPlan{Name: task.Name, Requests: requests})
		return
	}
	for _, pod := range task.Pods {
		if !own(pod) {
			plan.Migrate = append(plan.Migrate, optimizer.Migration{Pod: pod.Pod, Requests: requests})
		}
	}
}

// workers decides the number of workers by the load of the parameter servers and the gain of the last change.
func workers(seen *observation) optimizer.Plan {
	task, samples := seen.resizable(optimizer.RoleWorker), seen.last(seen.settings.Samples)
	switch {
	case task == nil:
		return optimizer.Plan{Reason: "another master, or the spec, decides the number of workers"}
	case samples == nil:
		return optimizer.Plan{Reason: fmt.Sprintf("waiting for %s of the present size", english.Plural(seen.settings.Samples, "sample", ""))}
	}
	busiest, exists := seen.busiest(samples)
	if !exists {
		return optimizer.Plan{Reason: "without parameter servers the ratio rule, or the spec, decides the number of workers"}
	}
	if gain, from := seen.gain(task, samples); from > 0 && gain < seen.settings.SpeedRatio {
		if from < task.Replicas {
			return resize(task, from, fmt.Sprintf("NoSpeedup: the last added workers had %.0f %% of the speed of the others", 100*gain))
		}
		return optimizer.Plan{Reason: fmt.Sprintf("a worker more would have %.0f %% of the speed of the others", 100*gain)}
	}
	if busiest > seen.settings.Exhausted {
		return optimizer.Plan{Reason: fmt.Sprintf("no worker is added: a parameter server uses %.0f %% of its CPU", 100*busiest)}
	}
	want := seen.mostWorkers(task)
	if busiest > 0 {
		want = min(want, int32(min(float64(task.Replicas)*seen.settings.Overload/busiest, math.MaxInt32)))
	}
	if want <= task.Replicas {
		return optimizer.Plan{Reason: fmt.Sprintf("%s parameter servers that use %.0f %% of their CPU", english.Plural(int(task.Replicas), "worker suits", "workers suit"), 100*busiest)}
	}
	return resize(task, want, fmt.Sprintf("IdleParameterServers: the busiest one uses %.0f %% of its CPU", 100*busiest))
}

func resize(task *optimizer.Task, replicas int32, reason string) optimizer.Plan {
	return optimizer.Plan{Tasks: []optimizer.TaskPlan{{Name: task.Name, Replicas: &replicas}}, Reason: reason}
}

// mostWorkers returns the maximum number of workers of the next plan by bounds, step and limits.
func (o *observation) mostWorkers(task *optimizer.Task) int32 {
	most := min(task.Max, max(o.settings.MaxWorkers, task.Replicas), task.Replicas+o.settings.WorkerStep)
	room := o.room()
	if task.Requests.CPU > 0 {
		most = int32(min(int64(most), int64(task.Replicas)+room.CPU/task.Requests.CPU))
	}
	if task.Requests.Memory > 0 {
		most = int32(min(int64(most), int64(task.Replicas)+room.Memory/task.Requests.Memory))
	}
	return most
}

// gain returns the speed of a worker that the last resize added or removed, as a share of the speed per worker
// before, and the size before; 0 if that is not known.
func (o *observation) gain(task *optimizer.Task, now []optimizer.Sample) (float64, int32) {
	end := len(o.job.Samples) - len(o.settled)
	for end > 0 && replicas(&o.job.Samples[end-1], task.Name) == task.Replicas {
		end--
	}
	first := end
	for first > 0 && end-first < o.settings.Samples && replicas(&o.job.Samples[first-1], task.Name) == replicas(&o.job.Samples[end-1], task.Name) {
		first--
	}
	if end-first < o.settings.Samples {
		return 0, 0
	}
	from := replicas(&o.job.Samples[end-1], task.Name)
	was, is := speed(o.job.Samples[first:end]), speed(now)
	if was == 0 || is == 0 || from == 0 {
		return 0, 0
	}
	return (is - was) / float64(task.Replicas-from) / (was / float64(from)), from
}

// servers decides the number of parameter servers by the load that each worker causes.
func servers(seen *observation) optimizer.Plan {
	task, samples := seen.resizable(optimizer.RoleParameterServer), seen.last(seen.settings.Samples)
	switch {
	case task == nil:
		return optimizer.Plan{Reason: "the number of parameter servers is fixed"}
	case samples == nil:
		return optimizer.Plan{Reason: fmt.Sprintf("waiting for %s of the present size", english.Plural(seen.settings.Samples, "sample", ""))}
	case !elapsed(seen.job, seen.job.LastServerPlan, seen.settings.ServerInterval):
		return optimizer.Plan{Reason: fmt.Sprintf("waiting: parameter servers changed less than %s ago", seen.settings.ServerInterval)}
	}
	var present, most int32
	var perWorker int64
	for worker := range seen.tasks(optimizer.RoleWorker) {
		present += worker.Replicas
		most += max(min(worker.Max, seen.settings.MaxWorkers), worker.Replicas)
		perWorker = max(perWorker, worker.Requests.CPU)
	}
	var load int64
	for _, one := range usage(task, samples) {
		load += one.used.CPU
	}
	if present == 0 || load == 0 || task.Requests.CPU <= 0 {
		return optimizer.Plan{Reason: "the load of the parameter servers is not known"}
	}
	each := float64(load) / float64(present)
	if limit := seen.job.Limits.Job.CPU; limit > 0 {
		most = max(present, min(most, int32(min(float64(limit)/(each+float64(perWorker)), math.MaxInt32))))
	}
	want := int32(min(math.Ceil(each*float64(most)/(float64(task.Requests.CPU)*seen.settings.Overload)), float64(seen.settings.MaxServers)))
	return resize(task, max(want, 1), fmt.Sprintf("ServerLoad: a worker uses %.0f millicores of parameter servers, and there may be %s", each, english.Plural(int(most), "worker", "")))
}

// shrink lowers requests that are far above the peak usage.
func shrink(seen *observation) optimizer.Plan {
	if len(seen.settled) < seen.settings.Samples || seen.job.Now.Sub(seen.settled[0].Time) < seen.settings.ShrinkWindow {
		return optimizer.Plan{Reason: fmt.Sprintf("waiting: the present size has not been observed for %s", seen.settings.ShrinkWindow)}
	}
	plan := optimizer.Plan{}
	var shrunk []string
	for i := range seen.job.Tasks {
		task := &seen.job.Tasks[i]
		if task.Replicas == 0 || !elapsed(seen.job, task.GrownAt, seen.settings.ShrinkHold) || seen.heldServer(task) {
			continue
		}
		used := seen.peaks[task.Name]
		need := seen.need(task, used)
		want := optimizer.Resources{
			CPU: seen.lowered(task.Requests.CPU, used.CPU, need.CPU), Memory: seen.lowered(task.Requests.Memory, used.Memory, need.Memory),
		}
		if want != (optimizer.Resources{}) {
			set(&plan, task, want)
			shrunk = append(shrunk, task.Name)
		}
	}
	plan.Reason = "requests suit the usage"
	if !plan.Empty() {
		plan.Reason = fmt.Sprintf("OverRequested: requests are more than %.2f times what the peak usage needs, of %s",
			seen.settings.ShrinkFactor, strings.Join(shrunk, ", "))
	}
	return plan
}

// heldServer reports whether a task is one of parameter servers, which changed lately.
func (o *observation) heldServer(task *optimizer.Task) bool {
	return task.Role == optimizer.RoleParameterServer && !elapsed(o.job, o.job.LastServerPlan, o.settings.ServerInterval)
}

// lowered returns the need if a request is far above it; 0 to keep the request.
func (o *observation) lowered(request, used, need int64) int64 {
	if used <= 0 || request <= share(need, o.settings.ShrinkFactor) {
		return 0
	}
	return need
}
