// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"slices"

	"opendilab.org/di-orchestrator/sim/simulator"
)

// demotion is the GPU time in seconds after which a job goes to the second queue.
const demotion = 16 * 3600

// Tiresias (Gu et al., NSDI 2019) runs jobs with the replicas and batch that users
// ask for, in two queues by attained GPU time, first come first served in each.
type Tiresias struct {
	queues   [2][]string
	running  map[string]bool
	checked  map[string]int
	executed map[string]int
}

// NewTiresias returns the policy before its first round.
func NewTiresias() *Tiresias {
	return &Tiresias{running: map[string]bool{}, checked: map[string]int{}, executed: map[string]int{}}
}

// Target implements simulator.Policy.
func (*Tiresias) Target(job *simulator.Submission) int { return job.Batch }

// Place implements simulator.Policy.
func (t *Tiresias) Place(now int, jobs []*simulator.Job, cluster simulator.Cluster, previous map[string][]int) map[string][]int {
	wanted := map[string]int{}
	for _, job := range jobs {
		wanted[job.Name] = job.Replicas
	}
	for i := range t.queues {
		t.queues[i] = slices.DeleteFunc(t.queues[i], func(name string) bool { _, there := wanted[name]; return !there })
	}
	for _, job := range jobs {
		if _, known := t.running[job.Name]; !known {
			t.running[job.Name] = false
			t.queues[0] = append(t.queues[0], job.Name)
		}
		t.account(job, now)
	}
	placed := map[string][]int{}
	left := cluster.Nodes * cluster.GPUs
	for _, name := range slices.Concat(t.queues[0], t.queues[1]) {
		t.running[name] = wanted[name] <= left
		if t.running[name] {
			left -= wanted[name]
			if len(previous[name]) > 0 {
				placed[name] = previous[name]
			}
		}
	}
	room := free(cluster.Nodes, cluster.GPUs, placed)
	for _, name := range slices.Concat(t.queues[0], t.queues[1]) {
		if t.running[name] && len(placed[name]) == 0 {
			placed[name] = spread(room, wanted[name])
		}
	}
	return placed
}

// account adds the time since the last round, and demotes a job that has had enough.
func (t *Tiresias) account(job *simulator.Job, now int) {
	if t.running[job.Name] {
		t.executed[job.Name] += now - t.checked[job.Name]
		at := slices.Index(t.queues[0], job.Name)
		if at >= 0 && t.executed[job.Name]*job.Replicas >= demotion {
			t.queues[0] = slices.Delete(t.queues[0], at, at+1)
			t.queues[1] = append(t.queues[1], job.Name)
		}
	}
	t.checked[job.Name] = now
}
