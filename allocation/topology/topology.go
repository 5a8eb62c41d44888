// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
)

// MaxLevels bounds the levels of a topology.
const MaxLevels = 4

// Domain is where a node is at one level.
type Domain struct {
	// Level is what people call the level: the name of its label without the prefix.
	Level string
	// Name is the value of the label; empty for a node without it.
	Name string
}

// Of returns the domains of a node with these labels, at the levels of the keys from the widest to the narrowest.
func Of(labels map[string]string, keys []string) []Domain {
	domains := make([]Domain, 0, len(keys))
	for _, key := range keys {
		domains = append(domains, Domain{Level: key[strings.LastIndexByte(key, '/')+1:], Name: labels[key]})
	}
	return domains
}

// Tree is the domains of some nodes at all levels.
type Tree struct {
	// levels are from the widest to the narrowest.
	levels []level
}

// level is the domains of one level. A domain is a part of one domain of the next wider level.
type level struct {
	noun string
	// of is the domain of each node.
	of []int
	// names are those of the domains, nodes their nodes, and parts their domains at the next narrower level.
	names []string
	nodes [][]int
	parts [][]int
}

// New returns the domains of nodes. It returns nil if no level divides the nodes, so that nothing depends on it. Names count
// within the wider domain. A node without a label that others have is a domain of its own.
func New(nodes [][]Domain) *Tree {
	if len(nodes) == 0 || len(nodes[0]) == 0 {
		return nil
	}
	t := &Tree{}
	for at := range nodes[0] {
		t.add(nodes, at)
	}
	if len(t.levels[len(t.levels)-1].names) == 1 {
		return nil
	}
	return t
}

// add adds the next narrower level.
func (t *Tree) add(nodes [][]Domain, at int) {
	type within struct {
		wider int
		name  string
		// alone is the node without the label, -1 for one that has it.
		alone int
	}
	next := level{noun: nodes[0][at].Level, of: make([]int, len(nodes))}
	isKnown := slices.ContainsFunc(nodes, func(domains []Domain) bool { return domains[at].Name != "" })
	ids := map[within]int{}
	for node, domains := range nodes {
		key := within{name: domains[at].Name, alone: -1}
		if at > 0 {
			key.wider = t.levels[at-1].of[node]
		}
		if key.name == "" && isKnown {
			key.alone = node
		}
		id, exists := ids[key]
		if !exists {
			id = len(next.names)
			ids[key] = id
			next.names, next.nodes, next.parts = append(next.names, key.name), append(next.nodes, nil), append(next.parts, nil)
			if at > 0 {
				wider := &t.levels[at-1]
				wider.parts[key.wider] = append(wider.parts[key.wider], id)
			}
		}
		next.of[node], next.nodes[id] = id, append(next.nodes[id], node)
	}
	t.levels = append(t.levels, next)
}

// Levels returns how many levels there are. Level 0 is the widest.
func (t *Tree) Levels() int { return len(t.levels) }

// Noun is what people call a level.
func (t *Tree) Noun(at int) string { return t.levels[at].noun }

// Domain returns the domain of a level that a node is in.
func (t *Tree) Domain(at, node int) int { return t.levels[at].of[node] }

// Name returns the name of that domain; empty if the node has none.
func (t *Tree) Name(at, node int) string { return t.levels[at].names[t.levels[at].of[node]] }

// Counts returns in how many domains of each level nodes are, from the widest level to the narrowest.
func (t *Tree) Counts(nodes []int) []int {
	counts := make([]int, len(t.levels))
	for at := range t.levels {
		counts[at] = len(t.domains(at, nodes))
	}
	return counts
}

// domains returns the domains of a level that nodes are in, ascending.
func (t *Tree) domains(at int, nodes []int) []int {
	found := make([]int, 0, len(nodes))
	for _, node := range nodes {
		found = append(found, t.levels[at].of[node])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Crossed returns how many levels have no domain that holds all of the nodes. The narrowest levels are crossed first.
func (t *Tree) Crossed(nodes []int) int {
	if t == nil {
		return 0
	}
	crossed := 0
	for at := range t.levels {
		if slices.ContainsFunc(nodes, func(node int) bool { return t.levels[at].of[node] != t.levels[at].of[nodes[0]] }) {
			crossed++
		}
	}
	return crossed
}

// Reach returns how many of the nodes that count one domain has at most, from the narrowest level to the widest.
func (t *Tree) Reach(counts func(node int) bool) []int {
	reach := make([]int, 0, len(t.levels))
	for at := len(t.levels) - 1; at >= 0; at-- {
		most := 0
		for _, nodes := range t.levels[at].nodes {
			inside := 0
			for _, node := range nodes {
				if counts(node) {
					inside++
				}
			}
			most = max(most, inside)
		}
		reach = append(reach, most)
	}
	return reach
}

// Apart returns how many levels divide a node from the nearest of others: none if there are no others, or without a topology.
func (t *Tree) Apart(others []int) func(node int) int {
	if t == nil || len(others) == 0 {
		return func(int) int { return 0 }
	}
	domains := make([]map[int]bool, len(t.levels))
	for at := range t.levels {
		domains[at] = map[int]bool{}
		for _, other := range others {
			domains[at][t.levels[at].of[other]] = true
		}
	}
	return func(node int) int {
		apart := 0
		for at := range t.levels {
			if !domains[at][t.levels[at].of[node]] {
				apart++
			}
		}
		return apart
	}
}

// sum is what a domain holds.
type sum struct{ room, own int64 }

// Sets returns lists of nodes that together have room for a number of replicas, the best first: the nodes of one domain of
// the narrowest level that holds them, else of one of the next wider level, and so on, and at last of several domains of the
// widest level. Each list has the fewest domains of each narrower level, the largest first. Of domains of a level those with
// the fewest parts are first, then those that have most of the own nodes, then the tightest. Rooms that are counted for
// several kinds of replicas together are an estimate, so the caller tries one list after the other. After the lists of a
// level follow those of all nodes of each wider domain. own may be nil. With each list comes how many levels it crosses at most.
func (t *Tree) Sets(room []int32, need int64, own []bool) iter.Seq2[int, []int] {
	return func(yield func(int, []int) bool) {
		sums := t.sums(room, own)
		for at := len(t.levels) - 1; at >= 0; at-- {
			for _, list := range t.lists(sums, at, need) {
				if !yield(len(t.levels)-1-at, t.nodesOf(room, list)) {
					return
				}
			}
		}
		yield(len(t.levels), t.nodesOf(room, t.within(sums, -1, nil, need)))
	}
}

// lists returns domains of the narrowest level for each domain of a level that holds a number of replicas, the best first.
func (t *Tree) lists(sums [][]sum, at int, need int64) [][]int {
	type holder struct {
		sum
		id   int
		list []int
	}
	var holders []holder
	for domain, held := range sums[at] {
		if held.room >= need {
			holders = append(holders, holder{held, domain, t.within(sums, at, []int{domain}, need)})
		}
	}
	slices.SortFunc(holders, func(a, b holder) int {
		return cmp.Or(cmp.Compare(len(a.list), len(b.list)), cmp.Compare(b.own, a.own), cmp.Compare(a.room, b.room), cmp.Compare(a.id, b.id))
	})
	lists := make([][]int, len(holders))
	for i := range holders {
		lists[i] = holders[i].list
	}
	return lists
}

// within returns domains of the narrowest level that hold a number of replicas, within domains of a level: the fewest of each
// level between them. It returns all if one part would do, because then that one is in a list already.
func (t *Tree) within(sums [][]sum, at int, domains []int, need int64) []int {
	if parts := t.partsOf(at+1, domains); len(parts) > 1 && len(cover(sums[at+1], parts, need)) == 1 {
		need = math.MaxInt64
	}
	for at++; at < len(t.levels); at++ {
		domains = cover(sums[at], t.partsOf(at, domains), need)
	}
	return domains
}

// partsOf returns the domains of a level that are parts of domains of the next wider one. The level before the first is the
// whole cluster.
func (t *Tree) partsOf(at int, wider []int) []int {
	var parts []int
	switch at {
	case 0:
		for domain := range t.levels[0].names {
			parts = append(parts, domain)
		}
	case len(t.levels):
	default:
		for _, domain := range wider {
			parts = append(parts, t.levels[at-1].parts[domain]...)
		}
	}
	return parts
}

// sums returns what each domain of each level holds.
func (t *Tree) sums(room []int32, own []bool) [][]sum {
	sums := make([][]sum, len(t.levels))
	for at := range t.levels {
		sums[at] = make([]sum, len(t.levels[at].names))
		for node, domain := range t.levels[at].of {
			sums[at][domain].room += int64(room[node])
			if own != nil && own[node] && room[node] > 0 {
				sums[at][domain].own++
			}
		}
	}
	return sums
}

// cover returns the largest domains that hold a number of replicas together, but as the last one the tightest that holds the
// rest.
func cover(sums []sum, domains []int, need int64) []int {
	order := slices.Clone(domains)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(sums[b].room, sums[a].room), cmp.Compare(sums[b].own, sums[a].own), cmp.Compare(a, b))
	})
	var chosen []int
	for i, domain := range order {
		if need > sums[domain].room {
			chosen, need = append(chosen, domain), need-sums[domain].room
			continue
		}
		last := order[i:]
		for len(last) > 1 && sums[last[len(last)-1]].room < need {
			last = last[:len(last)-1]
		}
		best := slices.MinFunc(last, func(a, b int) int {
			return cmp.Or(cmp.Compare(sums[b].own, sums[a].own), cmp.Compare(sums[a].room, sums[b].room), cmp.Compare(a, b))
		})
		return append(chosen, best)
	}
	return chosen
}

// nodesOf returns the nodes with room in domains of the narrowest level, ascending.
func (t *Tree) nodesOf(room []int32, domains []int) []int {
	var nodes []int
	for _, domain := range domains {
		for _, node := range t.levels[len(t.levels)-1].nodes[domain] {
			if room[node] > 0 {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}
