// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import "math"

// chooseAmongKinds solves by dynamic programming over the capacities of all types: a state is what is free of each.
func chooseAmongKinds(options [][]Option, capacities []int) []int {
	strides, states := make([]int, len(capacities)), 1
	for kind, capacity := range capacities {
		strides[kind] = states
		states *= capacity + 1
	}
	best, next := make([]float64, states), make([]float64, states)
	choices := make([][]int16, len(options))
	for j, of := range options {
		choices[j] = make([]int16, states)
		for x := range next {
			next[x] = best[x] + of[0].Value
		}
		for i := 1; i < len(of); i++ {
			kind := of[i].Kind
			if of[i].Cost <= capacities[kind] {
				improveKind(best, next, choices[j], int16(i), of[i].Value, of[i].Cost*strides[kind], strides[kind]*(capacities[kind]+1))
			}
		}
		best, next = next, best
	}
	chosen, x := make([]int, len(options)), states-1
	for j := len(options) - 1; j >= 0; j-- {
		chosen[j] = int(choices[j][x])
		option := options[j][chosen[j]]
		x -= option.Cost * strides[option.Kind]
	}
	return chosen
}

// improveKind sets the greatest value by state with one more option, which takes a shift of the states in each run of
// a width.
func improveKind(best, next []float64, choices []int16, option int16, value float64, shift, width int) {
	for begin := 0; begin < len(best); begin += width {
		for x := begin + shift; x < begin+width; x++ {
			if sum := best[x-shift] + value; sum > next[x]+1e-15 {
				next[x], choices[x] = sum, option
			}
		}
	}
}

// chooseByPrices takes the options of greatest value at prices that clear each type, then fills what is left with the
// best single upgrades.
func chooseByPrices(options [][]Option, capacities []int) []int {
	most := 1e-12
	for _, of := range options {
		for _, option := range of {
			most = math.Max(most, option.Value)
		}
	}
	prices, chosen := make([]float64, len(capacities)), make([]int, len(options))
	for range sweeps {
		for kind, capacity := range capacities {
			low, high := 0.0, most
			for range bisections {
				prices[kind] = (low + high) / 2
				if take(options, prices, chosen)[kind] > capacity {
					low = prices[kind]
				} else {
					high = prices[kind]
				}
			}
			prices[kind] = high
		}
	}
	used := take(options, prices, chosen)
	left := make([]int, len(capacities))
	for kind := range capacities {
		left[kind] = capacities[kind] - used[kind]
	}
	release(options, chosen, left)
	return fill(options, chosen, left)
}

// take chooses the option of greatest value less its price for each job, and returns what they take of each type.
func take(options [][]Option, prices []float64, chosen []int) []int {
	used := make([]int, len(prices))
	for j, of := range options {
		best, most := 0, math.Inf(-1)
		for i := range of {
			if value := of[i].Value - prices[of[i].Kind]*float64(of[i].Cost); value > most {
				best, most = i, value
			}
		}
		chosen[j] = best
		used[of[best].Kind] += of[best].Cost
	}
	return used
}

// release stops the jobs of the least value for what they take until each type holds the rest.
func release(options [][]Option, chosen, left []int) {
	for kind := range left {
		for left[kind] < 0 {
			least, worst := math.Inf(1), -1
			for j := range options {
				option := options[j][chosen[j]]
				if density := option.Value / float64(option.Cost); option.Kind == kind && option.Cost > 0 && density < least {
					least, worst = density, j
				}
			}
			left[kind] += options[worst][chosen[worst]].Cost
			chosen[worst] = 0
		}
	}
}
