// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// alone places a job of exactly so many replicas beside what others have, and returns its nodes.
func (c *cluster) alone(t *testing.T, replicas int32) (*allocation.Round, []string) {
	t.Helper()
	one := c.add(replicas)
	one.min, one.isSilent = replicas, true
	round := c.round()
	answer := goodput.New(goodput.DefaultSettings()).Optimize(round)
	check(t, round, answer)
	return round, answer[types.NamespacedName{Namespace: one.team, Name: one.name}].Nodes
}

// placesOf returns the places of nodes, each once.
func placesOf(round *allocation.Round, nodes []string) []int {
	var places []int
	for at, node := range round.Nodes {
		if slices.Contains(nodes, node.Object.Name) {
			places = append(places, at)
		}
	}
	return places
}

// fewestDomains returns the least counts of domains of all lists of free nodes, by what they hold.
func fewestDomains(round *allocation.Round, free map[int]int32, replicas int32) []int {
	var best []int
	tree := allocation.TreeOf(round.Nodes)
	for set := 1; set < 1<<len(round.Nodes); set++ {
		var nodes []int
		room := int32(0)
		for at := range round.Nodes {
			if set&(1<<at) != 0 {
				nodes, room = append(nodes, at), room+free[at]
			}
		}
		if room < replicas {
			continue
		}
		if counts := tree.Counts(nodes); best == nil || slices.Compare(counts, best) < 0 {
			best = counts
		}
	}
	return best
}

func TestAJobHasNoMoreDomainsThanTheBestOfAllPlacements(t *testing.T) {
	crossing := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 8))
		c := newCluster(seed)
		c.addNodes(2+random.IntN(4), 4, map[string]string{levels[0]: "a"})
		c.addNodes(2+random.IntN(4), 4, map[string]string{levels[0]: "b"})
		c.rack(2 + random.IntN(3))
		free := map[int]int32{}
		for at := range c.nodes {
			if free[at] = 4; random.IntN(3) > 0 {
				continue
			}
			// A job that fills the node stays.
			free[at] = 0
			other := c.add(4)
			other.min, other.isSilent, other.placed, other.runs = 4, true, slices.Repeat([]string{c.nodes[at].Name}, 4), true
		}
		count := int32(0)
		for _, room := range free {
			count += room
		}
		if count < 8 {
			continue
		}
		replicas := 8 + 4*random.Int32N((count-8)/4+1)
		round, nodes := c.alone(t, replicas)
		expect.Equal(t, "replicas", int(replicas), len(nodes))
		want, got := fewestDomains(round, free, replicas), allocation.TreeOf(round.Nodes).Counts(placesOf(round, nodes))
		if got[0] != want[0] || want[0] == 1 && got[1] != want[1] {
			t.Errorf("seed %d: %d replicas are on %v in %v domains, want %v", seed, replicas, nodes, got, want)
		}
		if want[1] > 1 {
			crossing++
		}
	}
	if crossing < 40 {
		t.Errorf("only %d jobs cross racks", crossing)
	}
}

func TestTheRestOfAJobIsNearItsWholeNodes(t *testing.T) {
	c := newCluster(1)
	c.addNodes(4, 4, nil)
	c.rack(2)
	round, nodes := c.alone(t, 6)
	expect.Equal(t, "racks", []int{1, 1}, allocation.TreeOf(round.Nodes).Counts(placesOf(round, nodes)))
}

func TestAJobOfSeveralTasksIsInOneRack(t *testing.T) {
	c := newCluster(2)
	c.addNodes(1, 4, nil)
	c.addNodes(2, 2, nil)
	c.addNodes(1, 4, nil)
	c.rack(2)
	one := c.add(5)
	one.fixed, one.min, one.isSilent = podOf(1, 1), 5, true
	round := c.round()
	answer := goodput.New(goodput.DefaultSettings()).Optimize(round)
	check(t, round, answer)
	nodes := answer[types.NamespacedName{Namespace: one.team, Name: one.name}].Nodes
	expect.Equal(t, "replicas", 6, len(nodes))
	expect.Equal(t, "racks", []int{1, 1}, allocation.TreeOf(round.Nodes).Counts(placesOf(round, nodes)))
}
