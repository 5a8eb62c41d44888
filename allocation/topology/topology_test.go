// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// nodesIn returns the domains of nodes that are described by the names of their zone and rack.
func nodesIn(names ...string) [][]Domain {
	var nodes [][]Domain
	for _, name := range names {
		nodes = append(nodes, []Domain{{"zone", name[:1]}, {"rack", name[1:]}})
	}
	return nodes
}

func first(t *testing.T, tree *Tree, room []int32, need int64, own []bool) []int {
	t.Helper()
	for _, set := range tree.Sets(room, need, own) {
		return set
	}
	t.Fatal("there is no list")
	return nil
}

func TestALabelNamesItsLevelAndTheDomainOfANode(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"topology.kubernetes.io/zone": "a", "rack": "r1"}
	want := []Domain{{"zone", "a"}, {"rack", "r1"}, {"gpu.clique", ""}}
	expect.Equal(t, "domains", want, Of(labels, []string{"topology.kubernetes.io/zone", "rack", "nvidia.com/gpu.clique"}))
}

func TestOneDomainIsNoTopology(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string][][]Domain{
		"no nodes": nil, "no levels": {{}, {}}, "one rack": nodesIn("a1", "a1"), "no labels": {{{"zone", ""}}, {{"zone", ""}}},
	} {
		if New(nodes) != nil {
			t.Errorf("%s divide the nodes", name)
		}
	}
}

func TestANodeWithoutALabelIsADomainOfItsOwn(t *testing.T) {
	t.Parallel()
	tree := New(nodesIn("a1", "a1", "a", "a", "b1"))
	for _, tc := range []struct {
		nodes          []int
		crossed, apart int
	}{{[]int{0, 1}, 0, 0}, {[]int{2, 3}, 1, 1}, {[]int{0, 2}, 1, 1}, {[]int{0, 4}, 2, 2}} {
		if got := tree.Crossed(tc.nodes); got != tc.crossed {
			t.Errorf("the nodes %v cross %d levels, want %d", tc.nodes, got, tc.crossed)
		}
		if got := tree.Apart(tc.nodes[:1])(tc.nodes[1]); got != tc.apart {
			t.Errorf("the nodes %v are %d levels apart, want %d", tc.nodes, got, tc.apart)
		}
	}
}

func TestTheBestListIsOfTheNarrowestDomainThatHoldsAll(t *testing.T) {
	t.Parallel()
	tree := New(nodesIn("a1", "a1", "a2", "a2", "a2", "b1", "b2", "b2"))
	all := []int32{1, 1, 1, 1, 1, 1, 1, 1}
	for name, tc := range map[string]struct {
		room []int32
		need int64
		own  []bool
		want []int
	}{
		"the tightest rack":         {all, 2, nil, []int{0, 1}},
		"the rack of its own nodes": {all, 2, []bool{7: true}, []int{6, 7}},
		"the only rack":             {all, 3, nil, []int{2, 3, 4}},
		"the only zone":             {all, 4, nil, []int{0, 1, 2, 3, 4}},
		"two zones":                 {all, 7, nil, []int{0, 1, 2, 3, 4, 6, 7}},
		"no full node":              {[]int32{0, 1, 1, 0, 1, 1, 1, 1}, 2, nil, []int{2, 4}},
		"more than there is":        {all, 9, nil, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		expect.Equal(t, name, tc.want, first(t, tree, tc.room, tc.need, tc.own))
	}
}

// cheapest returns the least counts of domains of all lists of nodes that hold a number of replicas: the fewest of the widest
// level count first.
func cheapest(tree *Tree, room []int32, need int64) []int {
	var best []int
	for set := 1; set < 1<<len(room); set++ {
		var sum int64
		nodes := make([]int, 0, bits.OnesCount(uint(set)))
		for node := range room {
			if set&(1<<node) != 0 {
				nodes, sum = append(nodes, node), sum+int64(room[node])
			}
		}
		if sum < need {
			continue
		}
		if counts := tree.Counts(nodes); best == nil || slices.Compare(counts, best) < 0 {
			best = counts
		}
	}
	return best
}

func TestNoListHasMoreDomainsThanTheBestOfAll(t *testing.T) {
	t.Parallel()
	crossing := 0
	for seed := range uint64(1500) {
		random := rand.New(rand.NewPCG(seed, 1))
		var names []string
		room, total := make([]int32, 3+random.IntN(8)), int64(0)
		for node := range room {
			rack := ""
			if random.IntN(10) > 0 {
				rack = strconv.Itoa(random.IntN(3))
			}
			names = append(names, string(rune('a'+random.IntN(1+int(seed%3))))+rack)
			room[node] = int32(random.IntN(4))
			total += int64(room[node])
		}
		tree := New(nodesIn(names...))
		if tree == nil || total == 0 {
			continue
		}
		need := 1 + random.Int64N(total)
		want, set := cheapest(tree, room, need), first(t, tree, room, need, nil)
		got, sum := tree.Counts(set), int64(0)
		for _, node := range set {
			sum += int64(room[node])
		}
		if sum < need {
			t.Fatalf("seed %d: the nodes %v hold %d of %d", seed, set, sum, need)
		}
		// Of several zones the largest are chosen, so others of as many may have fewer racks.
		if got[0] != want[0] || want[0] == 1 && got[1] != want[1] {
			t.Errorf("seed %d: %v of %v for %d have %v domains, want %v", seed, set, names, need, got, want)
		}
		if want[1] > 1 {
			crossing++
		}
	}
	if crossing < 100 {
		t.Errorf("only %d lists have several racks", crossing)
	}
}

func TestLaterListsAreWider(t *testing.T) {
	t.Parallel()
	tree := New(nodesIn("a1", "a2", "a2", "b1", "b2", "c1"))
	var lists [][]int
	var crossed []int
	for most, set := range tree.Sets([]int32{3, 1, 2, 1, 2, 1}, 3, nil) {
		lists, crossed = append(lists, set), append(crossed, most)
	}
	expect.Equal(t, "crossed levels", []int{0, 0, 1, 1, 2}, crossed)
	want := [][]int{{0}, {1, 2}, {3, 4}, {0, 1, 2}, {0, 1, 2, 3, 4, 5}}
	expect.Equal(t, "lists", want, lists)
}
