// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenancy says what the tenants of a cluster have of it: of each accelerator, or of CPUs if no job wants any.
package tenancy

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
)

// Standing is what a tenant has of a resource. CPUs are in cores.
type Standing struct {
	Tenant   string
	Resource corev1.ResourceName
	// Wants is what its jobs want, and Holds what they have.
	Wants, Holds float64
	// Entitled is the part of the capacity that its weight gives it among the tenants that want some.
	Entitled float64
	// before is what its jobs had before the round.
	before float64
}

// borrows returns how much of other tenants' entitlements a tenant has. A part of one is no loan.
func (s *Standing) borrows(holds float64) float64 {
	whole := s.Entitled
	if s.Resource != corev1.ResourceCPU {
		whole = float64(int64(s.Entitled + 0.999))
	}
	return max(holds-whole, 0)
}

// Standings returns the standings of the tenants of a round after a decision, in the order of resources and tenants; none
// without tenants.
func Standings(round *allocation.Round, decided map[types.NamespacedName]allocation.Placement) []Standing {
	if round.Tenants == nil {
		return nil
	}
	var all []Standing
	divided := dividedBy(round.Jobs)
	for _, axis := range slices.Sorted(maps.Keys(divided)) {
		all = append(all, standingsOf(round, decided, axis, divided[axis])...)
	}
	return all
}

// Axes returns the positions of the resources that tenants divide: the accelerators that jobs request, or else CPUs.
func Axes(jobs []*allocation.Job) []int { return slices.Sorted(maps.Keys(dividedBy(jobs))) }

// dividedBy returns the names of these resources by their positions, which are in the order of the names.
func dividedBy(jobs []*allocation.Job) map[int]corev1.ResourceName {
	accelerators, cpus := map[int]corev1.ResourceName{}, map[int]corev1.ResourceName{}
	for _, job := range jobs {
		for task := range job.Tasks {
			pod := job.Tasks[task].Pod
			for axis, name := range pod.Names() {
				switch {
				case pod.Amounts()[axis] == 0:
				case strings.Contains(string(name), "/"):
					accelerators[axis] = name
				case name == corev1.ResourceCPU:
					cpus[axis] = name
				}
			}
		}
	}
	if len(accelerators) > 0 {
		return accelerators
	}
	return cpus
}

// Capacity returns what the jobs of a round may have of a resource: what others leave on open nodes, and what jobs have on
// closed ones.
func Capacity(round *allocation.Round, axis int) int64 {
	var sum int64
	closed := map[string]bool{}
	for _, node := range round.Nodes {
		if closed[node.Object.Name] = node.Closed; !node.Closed {
			sum += max(node.Free[axis], 0)
		}
	}
	for _, job := range round.Jobs {
		sum += held(job, round.Previous[job.Name], axis, func(node string) bool { return closed[node] })
	}
	return sum
}

// Amount returns what a job with so many replicas of its elastic task requests of a resource.
func Amount(job *allocation.Job, axis int, elastic int32) int64 {
	var sum int64
	for task := range job.Tasks {
		count := job.Tasks[task].Replicas
		if task == job.Elastic {
			count = elastic
		}
		sum += int64(max(count, 0)) * job.Tasks[task].Pod.Amounts()[axis]
	}
	return sum
}

// held returns what the ranks of a job have of a resource on some nodes.
func held(job *allocation.Job, nodes []string, axis int, counts func(node string) bool) int64 {
	var sum int64
	elastic, _ := job.ElasticOf(len(nodes))
	for rank, pod := range job.Ranks(max(elastic, 0)) {
		if rank < len(nodes) && counts(nodes[rank]) {
			sum += pod.Amounts()[axis]
		}
	}
	return sum
}

func anywhere(string) bool { return true }

func standingsOf(round *allocation.Round, decided map[types.NamespacedName]allocation.Placement, axis int, name corev1.ResourceName) []Standing {
	scale := scaleOf(name)
	found := map[string]*Standing{}
	for _, job := range round.Jobs {
		tenant := round.TenantOf(job)
		if found[tenant] == nil {
			found[tenant] = &Standing{Tenant: tenant, Resource: name}
		}
		nodes := nodesOf(round, decided, job)
		elastic, _ := job.ElasticOf(len(nodes))
		if decided[job.Name].Reason != allocation.ReasonQuotaExceeded {
			found[tenant].Wants += float64(Amount(job, axis, max(job.Wanted, elastic))) / scale
		}
		found[tenant].Holds += float64(held(job, nodes, axis, anywhere)) / scale
		found[tenant].before += float64(held(job, round.Previous[job.Name], axis, anywhere)) / scale
	}
	weights := 0
	for tenant, standing := range found {
		if standing.Wants > 0 {
			weights += round.Tenants.Weight(tenant)
		}
	}
	var all []Standing
	capacity := float64(Capacity(round, axis)) / scale
	for _, tenant := range slices.Sorted(maps.Keys(found)) {
		if standing := found[tenant]; standing.Wants > 0 {
			standing.Entitled = capacity * float64(round.Tenants.Weight(tenant)) / float64(weights)
			all = append(all, *standing)
		}
	}
	return all
}

// scaleOf returns how much of a resource people call one.
func scaleOf(name corev1.ResourceName) float64 {
	if name == corev1.ResourceCPU {
		return 1000
	}
	return 1
}

// nodesOf returns the nodes of a job by a decision. A job that the decision lacks keeps those that it has.
func nodesOf(round *allocation.Round, decided map[types.NamespacedName]allocation.Placement, job *allocation.Job) []string {
	if placement, isDecided := decided[job.Name]; isDecided {
		return placement.Nodes
	}
	return round.Previous[job.Name]
}
