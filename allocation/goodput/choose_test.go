// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// randomOptions returns options of jobs whose values mostly grow ever slower.
func randomOptions(random *rand.Rand, jobs, most int) [][]Option {
	all := make([][]Option, jobs)
	for j := range all {
		all[j] = []Option{{}}
		value := 0.0
		for cost := 1; cost <= 1+random.IntN(most); cost *= 2 {
			value += random.Float64() * 2
			all[j] = append(all[j], Option{Replicas: cost, Cost: cost, Value: value * (0.7 + 0.3*random.Float64())})
		}
	}
	return all
}

func total(options [][]Option, chosen []int) (cost int, value float64) {
	for j, i := range chosen {
		cost += options[j][i].Cost
		value += options[j][i].Value
	}
	return cost, value
}

// bruteForce returns the greatest value of all choices within the capacity.
func bruteForce(options [][]Option, capacity int) float64 {
	if len(options) == 0 {
		return 0
	}
	most := 0.0
	for _, option := range options[0] {
		if option.Cost <= capacity {
			most = max(most, option.Value+bruteForce(options[1:], capacity-option.Cost))
		}
	}
	return most
}

func TestTheExactChoiceIsTheBestOfAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for round := range 300 {
		options, capacity := randomOptions(random, 1+random.IntN(6), 8), random.IntN(24)
		cost, value := total(options, chooseExactly(options, capacity))
		if want := bruteForce(options, capacity); cost > capacity || value < want-1e-9 {
			t.Fatalf("round %d: value %g at cost %d of %d, want %g", round, value, cost, capacity, want)
		}
	}
}

func TestTheGreedyChoiceIsNearlyTheExactOne(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for round := range 50 {
		options, capacity := randomOptions(random, 100+random.IntN(100), 32), 256+random.IntN(256)
		cost, value := total(options, chooseGreedily(options, capacity))
		_, want := total(options, chooseExactly(options, capacity))
		if cost > capacity || value < 0.999*want {
			t.Fatalf("round %d: value %g at cost %d of %d, want at least 0.999 of %g", round, value, cost, capacity, want)
		}
	}
}

func TestAChoiceIsWithinTheCapacityAndDoesNotChange(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		options, capacity := randomOptions(random, 1+random.IntN(40), 16), random.IntN(64)
		first := Choose(options, []int{capacity})
		if cost, _ := total(options, first); cost > capacity {
			t.Fatalf("cost %d of %d", cost, capacity)
		}
		for j, i := range Choose(options, []int{capacity}) {
			if first[j] != i {
				t.Fatalf("job %d: option %d, then %d", j, first[j], i)
			}
		}
	}
}

// spread gives each option a random type.
func spread(random *rand.Rand, options [][]Option, kinds int) [][]Option {
	for _, of := range options {
		for i := 1; i < len(of); i++ {
			of[i].Kind = random.IntN(kinds)
		}
	}
	return options
}

// best returns the greatest value of all choices within the capacities.
func best(options [][]Option, left []int) float64 {
	if len(options) == 0 {
		return 0
	}
	most := 0.0
	for _, option := range options[0] {
		if option.Cost <= left[option.Kind] {
			left[option.Kind] -= option.Cost
			most = max(most, option.Value+best(options[1:], left))
			left[option.Kind] += option.Cost
		}
	}
	return most
}

// totals returns what a choice takes of each type, and its value.
func totals(options [][]Option, chosen []int, kinds int) (used []int, value float64) {
	used = make([]int, kinds)
	for j, i := range chosen {
		used[options[j][i].Kind] += options[j][i].Cost
		value += options[j][i].Value
	}
	return used, value
}

func TestTheChoiceAmongTypesIsTheBestOfAll(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for round := range 200 {
		options, capacities := spread(random, randomOptions(random, 1+random.IntN(6), 8), 3), []int{random.IntN(9), random.IntN(9), random.IntN(9)}
		used, value := totals(options, Choose(options, capacities), 3)
		if want := best(options, slices.Clone(capacities)); value < want-1e-9 {
			t.Fatalf("round %d: value %g, want %g", round, value, want)
		}
		for kind := range used {
			if used[kind] > capacities[kind] {
				t.Fatalf("round %d: %d of %d of type %d", round, used[kind], capacities[kind], kind)
			}
		}
	}
}

func TestTheChoiceByPricesIsNearlyTheExactOne(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	for round := range 20 {
		options, capacities := spread(random, randomOptions(random, 30+random.IntN(40), 16), 3), []int{20 + random.IntN(20), 20 + random.IntN(20), 20 + random.IntN(20)}
		used, value := totals(options, chooseByPrices(options, capacities), 3)
		_, want := totals(options, chooseAmongKinds(options, capacities), 3)
		if value < 0.95*want {
			t.Errorf("round %d: value %g, want at least 0.95 of %g", round, value, want)
		}
		for kind := range used {
			if used[kind] > capacities[kind] {
				t.Errorf("round %d: %d of %d of type %d", round, used[kind], capacities[kind], kind)
			}
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, size := range []struct {
		name           string
		jobs, capacity int
		choose         func([][]Option, int) []int
	}{
		{"exact, 160 jobs, 64 GPUs", 160, 64, chooseExactly},
		{"exact, 1000 jobs, 4096 GPUs", 1000, 4096, chooseExactly},
		{"greedy, 1000 jobs, 4096 GPUs", 1000, 4096, chooseGreedily},
	} {
		options := randomOptions(rand.New(rand.NewPCG(4, 4)), size.jobs, 64)
		b.Run(size.name, func(b *testing.B) {
			for b.Loop() {
				size.choose(options, size.capacity)
			}
		})
	}
}
