// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"cmp"
	"slices"
)

// Option is a number of replicas that a job may get.
type Option struct {
	// Replicas is that number.
	Replicas int
	// Kind is the type of devices that they run on, an index of the capacities.
	Kind int
	// Cost is what it takes of the capacity.
	Cost int
	// Value is what it is worth.
	Value float64
}

// exactWork bounds the steps of the exact solution; beyond it the greedy one is within
// a step of one job of it.
const exactWork = 5e7

// Choose returns the index of an option for each job, so that the sum of values is the
// greatest that the capacities hold: a multiple-choice knapsack. The first option of each
// job costs nothing. Equal values go to the earlier option, so that equal input has an equal answer.
func Choose(options [][]Option, capacities []int) []int {
	count, states := 0, 1.0
	for _, of := range options {
		count += len(of)
	}
	for _, capacity := range capacities {
		states *= float64(capacity + 1)
	}
	isExact := float64(count)*states <= exactWork
	switch {
	case len(capacities) > 1 && isExact:
		return chooseAmongKinds(options, capacities)
	case len(capacities) > 1:
		return chooseByPrices(options, capacities)
	case isExact:
		return chooseExactly(options, capacities[0])
	}
	return chooseGreedily(options, capacities[0])
}

// chooseExactly solves by dynamic programming over the capacity. best has the greatest
// value of the jobs so far by capacity, up to what they can use at most: reach.
func chooseExactly(options [][]Option, capacity int) []int {
	best, next := make([]float64, capacity+1), make([]float64, capacity+1)
	choices, reach := make([][]int16, len(options)), 0
	for j, of := range options {
		most := 0
		for i := range of {
			most = max(most, of[i].Cost)
		}
		further := min(capacity, reach+most)
		for x := reach + 1; x <= further; x++ {
			best[x] = best[reach]
		}
		reach = further
		choices[j] = improve(best[:reach+1], next[:reach+1], of)
		best, next = next, best
	}
	chosen := make([]int, len(options))
	x := capacity
	for j := len(options) - 1; j >= 0; j-- {
		x = min(x, len(choices[j])-1)
		chosen[j] = int(choices[j][x])
		x -= options[j][chosen[j]].Cost
	}
	return chosen
}

// improve sets the greatest value by capacity with one more job, and returns its options.
// The first option costs nothing.
func improve(best, next []float64, of []Option) []int16 {
	choices := make([]int16, len(best))
	for x := range next {
		next[x] = best[x] + of[0].Value
	}
	for i := 1; i < len(of); i++ {
		cost, value := of[i].Cost, of[i].Value
		for x := cost; x < len(next); x++ {
			if sum := best[x-cost] + value; sum > next[x]+1e-15 {
				next[x], choices[x] = sum, int16(i)
			}
		}
	}
	return choices
}

// step is an upgrade of a job along its concave hull.
type step struct {
	job, to int
	cost    int
	density float64
}

// chooseGreedily takes the steps along the concave hulls of the jobs by their value per
// cost, then fills what is left with the best single upgrades.
func chooseGreedily(options [][]Option, capacity int) []int {
	chosen := make([]int, len(options))
	var steps []step
	for j, of := range options {
		corners := hull(of)
		chosen[j] = corners[0]
		for i := 1; i < len(corners); i++ {
			from, to := of[corners[i-1]], of[corners[i]]
			steps = append(steps, step{job: j, to: corners[i], cost: to.Cost - from.Cost, density: (to.Value - from.Value) / float64(to.Cost-from.Cost)})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.density, a.density) })
	stopped := make([]bool, len(options))
	left := capacity
	for _, s := range steps {
		if stopped[s.job] || s.cost > left {
			stopped[s.job] = true
			continue
		}
		chosen[s.job] = s.to
		left -= s.cost
	}
	return fill(options, chosen, []int{left})
}

// hull returns the indices of the upper concave hull by cost, from the cheapest option.
func hull(of []Option) []int {
	order := make([]int, len(of))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(of[a].Cost, of[b].Cost), cmp.Compare(of[b].Value, of[a].Value))
	})
	var corners []int
	for _, c := range order {
		if len(corners) > 0 && of[c].Value <= of[corners[len(corners)-1]].Value {
			continue
		}
		for len(corners) > 1 {
			a, b := of[corners[len(corners)-2]], of[corners[len(corners)-1]]
			if (b.Value-a.Value)*float64(of[c].Cost-b.Cost) > (of[c].Value-b.Value)*float64(b.Cost-a.Cost) {
				break
			}
			corners = corners[:len(corners)-1]
		}
		corners = append(corners, c)
	}
	return corners
}

// fill applies the single upgrade of greatest gain as long as one fits.
func fill(options [][]Option, chosen, left []int) []int {
	for {
		job, to, most := -1, 0, 1e-12
		for j, of := range options {
			at := of[chosen[j]]
			for i := range of {
				room := left[of[i].Kind]
				if of[i].Kind == at.Kind {
					room += at.Cost
				}
				if gain := of[i].Value - at.Value; of[i].Cost <= room && gain > most {
					job, to, most = j, i, gain
				}
			}
		}
		if job < 0 {
			return chosen
		}
		from, next := options[job][chosen[job]], options[job][to]
		left[from.Kind] += from.Cost
		left[next.Kind] -= next.Cost
		chosen[job] = to
	}
}
