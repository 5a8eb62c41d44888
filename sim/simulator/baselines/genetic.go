// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// offspring returns as many new individuals as the population has.
func (s *search) offspring(parents []*individual) []*individual {
	seen := map[string]bool{}
	for _, parent := range parents {
		seen[string(parent.state)] = true
	}
	var children []*individual
	for range 100 {
		for range (population - len(children) + 1) / 2 {
			for _, state := range s.cross(s.tournament(parents), s.tournament(parents)) {
				s.mutate(state)
				s.repair(state)
				if key := string(state); !seen[key] && len(children) < population {
					seen[key] = true
					children = append(children, s.individual(state))
				}
			}
		}
		if len(children) >= population {
			break
		}
	}
	return children
}

func (s *search) tournament(all []*individual) *individual {
	a, b := all[s.random.IntN(len(all))], all[s.random.IntN(len(all))]
	switch {
	case dominates(a, b):
		return a
	case dominates(b, a):
		return b
	case a.crowding > b.crowding:
		return a
	case b.crowding > a.crowding:
		return b
	case s.random.IntN(2) == 0:
		return a
	}
	return b
}

// cross swaps the jobs below a random one, nine times of ten.
func (s *search) cross(a, b *individual) [2][]uint8 {
	x, y := slices.Clone(a.state), slices.Clone(b.state)
	if s.random.Float64() < 0.9 {
		point := s.random.IntN(s.jobs) * s.nodes
		for i := range point {
			x[i], y[i] = y[i], x[i]
		}
	}
	return [2][]uint8{x, y}
}

func (s *search) mutate(state []uint8) {
	for j := range s.jobs {
		row := state[j*s.nodes : (j+1)*s.nodes]
		if s.random.Float64() < 0.1 {
			copy(row, s.base[j*s.nodes:])
		}
		if s.random.Float64() < 0.1 {
			for n := range row {
				if s.random.Float64() < 0.1 {
					row[n] = 0
				}
			}
		}
	}
	before := slices.Clone(state)
	for n := range s.nodes {
		used, present := 0, 0
		for j := range s.jobs {
			used += int(before[j*s.nodes+n])
			if before[j*s.nodes+n] > 0 {
				present++
			}
		}
		if used >= s.gpus {
			continue
		}
		for j := range s.jobs {
			count := int(before[j*s.nodes+n])
			chance := 1 / float64(s.jobs)
			if count > 0 {
				other := 1 / float64(present)
				chance += other - chance*other
			}
			if s.random.Float64() < chance {
				state[j*s.nodes+n] = uint8(count + s.random.IntN(s.gpus+1-count))
			}
		}
	}
}

// repair makes a state possible: one distributed job a node, no job beyond its most, no
// node beyond its GPUs.
func (s *search) repair(state []uint8) {
	taken := make([]bool, s.nodes)
	for j := range s.jobs {
		row := state[j*s.nodes : (j+1)*s.nodes]
		if nodesOf(row) < 2 {
			continue
		}
		for n, count := range row {
			if count > 0 && taken[n] {
				row[n] = 0
			} else if count > 0 {
				taken[n] = true
			}
		}
	}
	order := make([]int, s.nodes)
	for j := range s.jobs {
		row := state[j*s.nodes : (j+1)*s.nodes]
		for n := range order {
			order[n] = n
		}
		s.random.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
		left := s.most[j]
		for _, n := range order {
			row[n] = uint8(min(int(row[n]), left))
			left -= int(row[n])
		}
	}
	for n := range s.nodes {
		left := s.gpus
		for j := range s.jobs {
			cell := &state[j*s.nodes+n]
			*cell = uint8(min(int(*cell), left))
			left -= int(*cell)
		}
	}
}

func nodesOf(row []uint8) int {
	count := 0
	for _, cell := range row {
		if cell > 0 {
			count++
		}
	}
	return count
}

func dominates(a, b *individual) bool {
	return a.values[0] <= b.values[0] && a.values[1] <= b.values[1] && a.values != b.values
}

// survive keeps the best of a population by rank and crowding.
func survive(all []*individual) []*individual {
	rankAll(all)
	var kept []*individual
	for rank := 0; len(kept) < min(len(all), population); rank++ {
		var front []*individual
		for _, one := range all {
			if one.rank == rank {
				front = append(front, one)
			}
		}
		crowd(front)
		if len(kept)+len(front) > population {
			slices.SortStableFunc(front, func(a, b *individual) int { return cmp.Compare(b.crowding, a.crowding) })
			front = front[:population-len(kept)]
		}
		kept = append(kept, front...)
	}
	return kept
}

// rankAll sets the rank of each individual: the length of the longest chain of individuals that
// dominate each other above it. With two values, in the order of the first, it is one more than
// the greatest rank among those before it whose second value is not larger.
func rankAll(all []*individual) {
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b *individual) int {
		return cmp.Or(cmp.Compare(a.values[0], b.values[0]), cmp.Compare(a.values[1], b.values[1]))
	})
	// last has the least second value of each rank, ascending with the rank.
	var last []float64
	for i, one := range order {
		if i > 0 && one.values == order[i-1].values {
			one.rank = order[i-1].rank
			continue
		}
		one.rank = sort.Search(len(last), func(rank int) bool { return last[rank] > one.values[1] })
		if one.rank == len(last) {
			last = append(last, 0)
		}
		last[one.rank] = one.values[1]
	}
}

// crowd sets how far each individual is from its neighbours.
func crowd(front []*individual) {
	for _, one := range front {
		one.crowding = 0
	}
	for objective := range 2 {
		slices.SortStableFunc(front, func(a, b *individual) int { return cmp.Compare(a.values[objective], b.values[objective]) })
		last := len(front) - 1
		width := front[last].values[objective] - front[0].values[objective]
		front[0].crowding, front[last].crowding = math.Inf(1), math.Inf(1)
		for i := 1; i < last && width > 0; i++ {
			front[i].crowding += (front[i+1].values[objective] - front[i-1].values[objective]) / width
		}
	}
}
