// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/allocation"
)

// maxUnits bounds the units of capacity, and so the work of the exact choice.
const maxUnits = 1 << 14

// units is the capacity of some nodes as one number. A job costs its dominant share: the
// largest share of any resource that it takes.
type units struct {
	// total is what the nodes have of each resource.
	total []float64
	// scarcest is the scarcest resource, -1 if the jobs want nothing.
	scarcest int
	// count is the capacity in units, measure in GPUs, cores or GiB of the scarcest resource.
	count   int
	measure float64
}

// newUnits measures the capacity by the resource that the jobs want the most of, relative
// to what there is. A unit is what the smallest replica takes of it.
func newUnits(views []*view, nodes []*allocation.Node) *units {
	u := &units{scarcest: -1}
	if len(nodes) == 0 {
		return u
	}
	u.total = make([]float64, len(nodes[0].Free))
	for _, node := range nodes {
		if !node.Closed {
			add(u.total, node.Free, 1)
		}
	}
	wanted := make([]float64, len(u.total))
	for _, v := range views {
		if v.stay != nil {
			v.addClosed(u.total)
		}
		for task := range v.job.Tasks {
			add(wanted, v.job.Tasks[task].Pod.Amounts(), float64(v.replicas(task, v.job.Wanted)))
		}
	}
	scarcest, most := -1, 0.0
	for i := range wanted {
		if u.total[i] > 0 && wanted[i]/u.total[i] > most {
			scarcest, most = i, wanted[i]/u.total[i]
		}
	}
	if scarcest >= 0 {
		least, scale := smallest(views, scarcest)
		u.count = int(math.Min(u.total[scarcest]/least, maxUnits))
		u.measure, u.scarcest = u.total[scarcest]/scale, scarcest
	}
	return u
}

// addClosed adds what a job has on nodes that take no further replicas to a sum of each resource.
func (v *view) addClosed(sum []float64) {
	for rank, pod := range v.job.Ranks(max(v.current, 0)) {
		if rank < len(v.previous) && v.closed[v.previous[rank]] {
			add(sum, pod.Amounts(), 1)
		}
	}
}

// capacities returns the units of each type of devices among the nodes of a pool. Nodes without devices count for the
// largest type.
func (u *units) capacities(kinds *kinds, pool *pool) []int {
	if len(kinds.names) == 1 || u.scarcest < 0 {
		return slices.Repeat([]int{u.count}, len(kinds.names))
	}
	amounts, neutral := make([]float64, len(kinds.names)), 0.0
	for i, node := range pool.nodes {
		if amount := float64(node.Free[u.scarcest]); node.Closed {
			continue
		} else if kind := kinds.of[pool.places[i]]; kind == noKind {
			neutral += amount
		} else {
			amounts[kind] += amount
		}
	}
	for _, v := range pool.views {
		if v.stay != nil {
			closed := make([]float64, len(u.total))
			v.addClosed(closed)
			amounts[v.kind] += closed[u.scarcest]
		}
	}
	largest := slices.Index(amounts, slices.Max(amounts))
	amounts[largest] += neutral
	capacities := make([]int, len(amounts))
	for kind, amount := range amounts {
		capacities[kind] = int(math.Floor(math.Max(amount, 0)/u.total[u.scarcest]*float64(u.count) + 1e-6))
	}
	return capacities
}

// smallest returns the least amount of a resource that a replica takes, and how much of
// it people call one.
func smallest(views []*view, axis int) (least, scale float64) {
	least, scale = math.Inf(1), 1
	for _, v := range views {
		for _, task := range v.job.Tasks {
			amount := float64(task.Pod.Amounts()[axis])
			if amount <= 0 {
				continue
			}
			least = math.Min(least, amount)
			if name := task.Pod.Names()[axis]; name == corev1.ResourceCPU {
				scale = 1000
			} else if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
				scale = 1 << 30
			}
		}
	}
	return least, scale
}

// share returns the dominant share of a job with so many elastic replicas.
func (u *units) share(v *view, elastic int32) float64 {
	dominant := 0.0
	for i, total := range u.total {
		amount := 0.0
		for task := range v.job.Tasks {
			amount += float64(v.replicas(task, elastic)) * float64(v.job.Tasks[task].Pod.Amounts()[i])
		}
		if amount > 0 && total > 0 {
			dominant = math.Max(dominant, amount/total)
		}
	}
	return dominant
}

// cost returns the units that a job takes.
func (u *units) cost(v *view, elastic int32) int {
	return int(math.Ceil(u.share(v, elastic)*float64(u.count) - 1e-6))
}

func add(sum []float64, amounts []int64, times float64) {
	for i, amount := range amounts {
		sum[i] += float64(amount) * times
	}
}
