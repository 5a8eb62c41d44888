// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/allocation/shares"
)

// Row is what jobs report beyond their steps: a row of the tables of results.
type Row struct {
	Name string
	// Progress is whether jobs report the work that is done, and its total.
	Progress bool
	// History is whether jobs of an application are a group.
	History bool
	// Fixed is whether jobs report nothing, and train with what a user asks for: at most those
	// replicas, and that batch.
	Fixed bool
	// Types is whether jobs name the devices that they have measured, and know the speed of one of each type.
	Types bool
	// Pins is whether the user of each job asks for a type.
	Pins bool
}

// Rows returns the rows in which jobs report.
func Rows() []Row {
	return []Row{
		{Name: "blind"}, {Name: "progress", Progress: true}, {Name: "history", History: true},
		{Name: "both", Progress: true, History: true},
	}
}

// MixedRows returns the rows of a cluster of several types of devices: today's, and what users and jobs may know of types.
func MixedRows() []Row {
	return []Row{
		{Name: "pinned", Pins: true}, {Name: "types", Types: true}, {Name: "types+both", Types: true, Progress: true, History: true},
	}
}

// Batch returns the batch that a job trains with, 0 where its goodput decides.
func (r Row) Batch(job *Submission) int {
	if r.Fixed {
		return job.Batch
	}
	return job.Application.FixedBatch
}

// MaxReplicas returns how many replicas a job may have on a cluster.
func (r Row) MaxReplicas(job *Submission, cluster *Cluster) int {
	if r.Fixed {
		return job.Replicas
	}
	bounds := &job.Application.Bounds
	most := min(mostReplicas, cluster.Nodes*cluster.GPUs, bounds.Max/bounds.MinAtomic)
	if job.Application.MaxReplicas > 0 {
		most = min(most, job.Application.MaxReplicas)
	}
	return most
}

// Report returns what the trainer of a job reports; nil for nothing.
func (r Row) Report(job *Job, cluster *Cluster) *profilings.Report {
	if r.Fixed {
		return nil
	}
	bounds := &job.Application.Bounds
	report := &profilings.Report{Version: profilings.Version, Batch: &profilings.Batch{
		Initial: bounds.Initial, Max: bounds.Max, MinPerReplica: bounds.MinAtomic, MaxPerReplica: bounds.MaxAtomic,
	}}
	if r.Progress {
		done, total := Oracle(job).Progress()
		samples := float64(bounds.Initial)
		report.Progress = &profilings.Progress{Done: done * samples, Total: total * samples, Unit: "samples"}
	}
	if len(job.Observations) == 0 {
		return report
	}
	report.Gradient = &profilings.Gradient{Sqr: job.Noise.Sqr, Var: job.Noise.Var}
	if r.Types {
		report.Steps = profile(job, cluster)
	}
	for _, o := range bounded(job.Observations, allocation.MaxObservations-len(report.Steps)) {
		step := profilings.Step{Nodes: o.Nodes, Replicas: o.Replicas, Samples: o.Atomic, Seconds: o.Step, ComputeSeconds: o.Accumulate}
		if r.Types {
			step.Device = o.Device
		}
		report.Steps = append(report.Steps, step)
	}
	return report
}

// Allocator runs a policy of package allocation as the operator's allocator does: it describes
// nodes and jobs to it, and carries the usage of jobs and the history of groups.
type Allocator struct {
	policy  allocation.Policy
	row     Row
	restart time.Duration
	pod     *corev1.PodSpec
	carried map[string]*carried
	groups  map[string]*allocation.Group
	// totals is how right the totals of all jobs have been.
	totals allocation.Totals
	// tenants share the cluster; nil for none.
	tenants *shares.Tenants
}

// carried is what the operator keeps for a job from round to round.
type carried struct {
	usage allocation.Usage
	group string
	// placed is since when the job has been placed as it is.
	placed int
}

// DeviceKey is the label of nodes that names the type of their devices.
const DeviceKey = "nvidia.com/gpu.product"

const (
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
	namespace   = "simulated"
	// mostReplicas bounds the replicas of a job in the artifact.
	mostReplicas = 64
)

// NewAllocator returns the policy before its first round. Restart is the duration of a restart in seconds.
func NewAllocator(policy allocation.Policy, row Row, restart int) *Allocator {
	gpus := corev1.ResourceList{gpuResource: *resource.NewQuantity(1, resource.DecimalSI)}
	return &Allocator{
		policy: policy, row: row, restart: time.Duration(restart) * time.Second,
		pod:     &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: gpus}}}},
		carried: map[string]*carried{}, groups: map[string]*allocation.Group{},
	}
}

// ShareAmong lets tenants share the cluster.
func (a *Allocator) ShareAmong(tenants []shares.Tenant) { a.tenants = shares.New(tenants) }

// Target implements Policy.
func (a *Allocator) Target(job *Submission) int { return a.row.Batch(job) }

// Place implements Policy.
func (a *Allocator) Place(now int, jobs []*Job, cluster Cluster, previous map[string][]int) map[string][]int {
	snapshot := allocation.NewSnapshot(nodesOf(cluster))
	snapshot.Locate([]string{RackLabel})
	pods := map[string]*allocation.Requirements{"": snapshot.RequirementsOf(a.pod)}
	for _, device := range cluster.Devices {
		pinned := a.pod.DeepCopy()
		pinned.NodeSelector = map[string]string{DeviceKey: device}
		pods[device] = snapshot.RequirementsOf(pinned)
	}
	round := &allocation.Round{Now: at(now), Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{}, Groups: a.groups, Tenants: a.tenants}
	a.finish(jobs)
	for _, job := range jobs {
		pin := ""
		if a.row.Pins {
			pin = cluster.pin(job.Name)
		}
		view := a.view(now, job, pods[pin], cluster)
		round.Jobs = append(round.Jobs, view)
		for _, node := range previous[job.Name] {
			round.Previous[view.Name] = append(round.Previous[view.Name], nodeName(node))
		}
	}
	return a.carry(now, round, a.policy.Optimize(round), previous)
}

// at returns the time of a second of the simulation.
func at(second int) time.Time { return time.Unix(int64(second), 0) }

func nodeName(index int) string { return fmt.Sprintf("node-%05d", index) }

// nodesOf returns the nodes that are not lost.
func nodesOf(cluster Cluster) []*corev1.Node {
	var nodes []*corev1.Node
	for i := range cluster.Nodes {
		if cluster.isLost(i) {
			continue
		}
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: cluster.labels(i)},
			Status: corev1.NodeStatus{
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Allocatable: corev1.ResourceList{gpuResource: *resource.NewQuantity(int64(cluster.GPUs), resource.DecimalSI)},
			},
		})
	}
	return nodes
}

// view returns what the operator knows about a job.
func (a *Allocator) view(now int, job *Job, pod *allocation.Requirements, cluster Cluster) *allocation.Job {
	known := a.carried[job.Name]
	if known == nil {
		known = &carried{placed: now}
		a.carried[job.Name] = known
	}
	view := &allocation.Job{
		Name: types.NamespacedName{Namespace: cmp.Or(job.Tenant, namespace), Name: job.Name}, Created: at(job.Time),
		Tasks: []allocation.Task{{Name: "trainer", Pod: pod}}, Min: 1, Wanted: int32(a.row.MaxReplicas(&job.Submission, &cluster)),
		Held: time.Duration(now-known.placed) * time.Second, Usage: known.usage, Report: a.row.Report(job, &cluster), ReportedAt: at(now),
	}
	if view.Report != nil {
		view.Measured = measured(job)
	}
	if a.row.History {
		known.group = job.Application.Name
		view.Group = known.group
	}
	view.Totals = a.totals
	if group := a.groups[known.group]; group != nil {
		view.Totals = group.Totals.Among(&a.totals)
	}
	return view
}

// measured returns the observations on several nodes whose span the operator has seen.
func measured(job *Job) []model.Observation {
	var seen []model.Observation
	for _, o := range job.Observations {
		if o.Nodes > 1 && o.Span > 0 {
			seen = append(seen, o)
		}
	}
	return bounded(seen, allocation.MaxObservations)
}

// bounded returns at most as many observations as the operator reads. Of the placement with the most
// of them the oldest is dropped first, so that the model knows all placements.
func bounded(all []model.Observation, most int) []model.Observation {
	if len(all) <= most {
		return all
	}
	kept := slices.Clone(all)
	for len(kept) > most {
		counts, largest := map[[2]int]int{}, 0
		for _, o := range kept {
			counts[[2]int{o.Nodes, o.Replicas}]++
			largest = max(largest, counts[[2]int{o.Nodes, o.Replicas}])
		}
		oldest := slices.IndexFunc(kept, func(o model.Observation) bool { return counts[[2]int{o.Nodes, o.Replicas}] == largest })
		kept = slices.Delete(kept, oldest, oldest+1)
	}
	return kept
}

// finish adds the jobs that are gone to the history of their groups.
func (a *Allocator) finish(jobs []*Job) {
	active := map[string]bool{}
	for _, job := range jobs {
		active[job.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(a.carried)) {
		if active[name] {
			continue
		}
		known := a.carried[name]
		delete(a.carried, name)
		a.totals.Finish(&known.usage)
		if group := a.groups[known.group]; group != nil {
			group.Finish(&known.usage)
		}
	}
}

// carry returns the placements by node, and keeps what the policy says about the jobs.
func (a *Allocator) carry(now int, round *allocation.Round, placements map[types.NamespacedName]allocation.Placement, previous map[string][]int) map[string][]int {
	index := map[string]int{}
	for _, node := range round.Nodes {
		var i int
		if _, err := fmt.Sscanf(node.Object.Name, "node-%d", &i); err == nil {
			index[node.Object.Name] = i
		}
	}
	placed := map[string][]int{}
	for _, job := range round.Jobs {
		name, known := job.Name.Name, a.carried[job.Name.Name]
		placement, answered := placements[job.Name]
		if !answered {
			placed[name] = previous[name]
			continue
		}
		for _, node := range placement.Nodes {
			placed[name] = append(placed[name], index[node])
		}
		if placement.Usage != (allocation.Usage{}) {
			known.usage = placement.Usage
		}
		if slices.Equal(placed[name], previous[name]) {
			continue
		}
		known.placed = now
		if len(placement.Nodes) > 0 {
			// What the operator measures at the first start.
			known.usage.RestartCost = a.restart
		}
	}
	return placed
}
