// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/goodput"
)

// TestNoJobWaitsThatWouldFit checks 1,000 rounds of clusters with and without types of devices. Jobs come and go, and
// nodes are lost.
func TestNoJobWaitsThatWouldFit(t *testing.T) {
	for seed := range uint64(50) {
		clusterOfTypes(seed).checkIdle(t, seed)
	}
}

// checkIdle plays rounds in which no job waits that would fit.
func (c *cluster) checkIdle(t *testing.T, seed uint64) {
	t.Helper()
	policy := goodput.New(goodput.DefaultSettings())
	for number := range 20 {
		answer := policy.Optimize(c.round())
		c.apply(answer)
		for _, one := range c.jobs {
			if len(one.placed) == 0 && c.wouldFit(one) {
				why := answer[types.NamespacedName{Namespace: one.team, Name: one.name}].Message
				t.Errorf("seed %d, round %d: %s waits though it would fit: %s", seed, number, one.name, why)
			}
		}
		c.train(10 + c.random.IntN(30))
		c.disturb()
	}
}

// clusterOfTypes returns a random cluster, in two of three cases with types of devices, and with jobs that are pinned to one.
func clusterOfTypes(seed uint64) *cluster {
	c := randomCluster(seed)
	if seed%3 == 0 {
		return c
	}
	for _, kind := range []string{"slow", "fast", "huge"}[:1+seed%3] {
		c.mixed(1+c.random.IntN(3), 4, kind)
	}
	for range 2 + c.random.IntN(6) {
		c.addRandom()
	}
	for _, one := range c.jobs {
		one.speeds = map[string]float64{"slow": 1, "fast": 1 + 4*c.random.Float64(), "huge": 1 + 8*c.random.Float64()}
		if one.elastic != nil && c.random.IntN(4) == 0 {
			pinned := *one.elastic
			pinned.NodeSelector = map[string]string{deviceKey: "slow"}
			one.elastic = &pinned
		}
	}
	return c
}

// disturb loses a node, returns one, or adds a job, now and then.
func (c *cluster) disturb() {
	switch c.random.IntN(8) {
	case 0:
		node := c.nodes[c.random.IntN(len(c.nodes))]
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
	case 1:
		for _, node := range c.nodes {
			node.Status.Conditions[0].Status = corev1.ConditionTrue
		}
	case 2:
		c.addRandom()
	}
}

// wouldFit reports whether the least replicas of a job fit beside the placed pods, on nodes of one type and on nodes
// without devices.
func (c *cluster) wouldFit(one *trainer) bool {
	free := map[*corev1.Node]*spare{}
	for _, node := range c.nodes {
		if node.Status.Conditions[0].Status == corev1.ConditionTrue {
			free[node] = &spare{gpusIn(node.Status.Allocatable), node.Status.Allocatable.Cpu().Value(), 110}
		}
	}
	for _, other := range c.jobs {
		for rank, place := range other.placed {
			spec := other.elastic
			if other.fixed != nil && rank == 0 {
				spec = other.fixed
			}
			for node, left := range free {
				if node.Name == place {
					left.take(spec)
				}
			}
		}
	}
	for _, kind := range c.types() {
		var nodes []*corev1.Node
		for _, node := range c.nodes {
			if free[node] != nil && (kind == anyType || node.Labels[deviceKey] == kind || gpusIn(node.Status.Allocatable) == 0) {
				nodes = append(nodes, node)
			}
		}
		if one.fitsOn(nodes, free) {
			return true
		}
	}
	return false
}

// anyType stands for all nodes, where they do not differ.
const anyType = "*"

// types returns the types of devices of the nodes.
func (c *cluster) types() []string {
	var kinds []string
	for _, node := range c.nodes {
		kinds = append(kinds, node.Labels[deviceKey])
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	if named := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == "" }); len(named) < 2 {
		return []string{anyType}
	}
	return kinds
}

// spare is what is free on a node.
type spare struct{ gpus, cores, pods int64 }

func gpusIn(list corev1.ResourceList) int64 {
	quantity := list[gpus]
	return quantity.Value()
}

func amounts(spec *corev1.PodSpec) (gpuCount, cores int64) {
	requests := spec.Containers[0].Resources.Requests
	return gpusIn(requests), requests.Cpu().Value()
}

func (s *spare) take(spec *corev1.PodSpec) {
	gpuCount, cores := amounts(spec)
	s.gpus, s.cores, s.pods = s.gpus-gpuCount, s.cores-cores, s.pods-1
}

func (s *spare) holds(spec *corev1.PodSpec) bool {
	gpuCount, cores := amounts(spec)
	return s.gpus >= gpuCount && s.cores >= cores && s.pods >= 1
}

// fitsOn reports whether the least replicas fit on some nodes: the fixed one on any of them, and then the others.
func (t *trainer) fitsOn(nodes []*corev1.Node, free map[*corev1.Node]*spare) bool {
	if t.fixed == nil {
		return t.elasticFits(nodes, free, nil)
	}
	return slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		return takes(t.fixed, node) && free[node].holds(t.fixed) && t.elasticFits(nodes, free, node)
	})
}

// elasticFits reports whether the least elastic replicas fit beside the fixed one.
func (t *trainer) elasticFits(nodes []*corev1.Node, free map[*corev1.Node]*spare, hasFixed *corev1.Node) bool {
	if t.elastic == nil {
		return true
	}
	count := int32(0)
	for _, node := range nodes {
		left := *free[node]
		if node == hasFixed {
			left.take(t.fixed)
		}
		for takes(t.elastic, node) && left.holds(t.elastic) && count < t.min {
			left.take(t.elastic)
			count++
		}
	}
	return count >= t.min
}

// takes reports whether the labels and taints of a node admit a pod.
func takes(spec *corev1.PodSpec, node *corev1.Node) bool {
	for key, value := range spec.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	for _, taint := range node.Spec.Taints {
		if !slices.ContainsFunc(spec.Tolerations, func(each corev1.Toleration) bool { return each.Key == taint.Key }) {
			return false
		}
	}
	return true
}
