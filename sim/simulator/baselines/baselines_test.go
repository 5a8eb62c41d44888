// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/sim/simulator"
)

func TestSiaChoosesTheBestOfAllChoices(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	for round := range 200 {
		options := make([][]option, 1+random.IntN(5))
		for j := range options {
			options[j] = []option{{}}
			for replicas := 1; replicas <= 4; replicas *= 2 {
				options[j] = append(options[j], option{replicas: replicas, value: random.Float64()})
			}
		}
		capacity := random.IntN(10)
		used, value := 0, 0.0
		for j, i := range choose(options, capacity) {
			used, value = used+options[j][i].replicas, value+options[j][i].value
		}
		if want := bestOf(options, capacity); used > capacity || value < want-1e-9 {
			t.Errorf("round %d: value %g with %d of %d GPUs, want %g", round, value, used, capacity, want)
		}
	}
}

// bestOf returns the greatest value of all choices.
func bestOf(options [][]option, capacity int) float64 {
	most := 0.0
	if len(options) == 0 {
		return most
	}
	for _, one := range options[0] {
		if one.replicas <= capacity {
			most = max(most, one.value+bestOf(options[1:], capacity-one.replicas))
		}
	}
	return most
}

func TestPowersOfTwoAndWholeNodesAlwaysFit(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 2))
	cluster := simulator.Cluster{Nodes: 8, GPUs: 4}
	previous := map[string][]int{}
	for round := range 300 {
		var jobs []*simulator.Job
		var counts []int
		for left := cluster.Nodes * cluster.GPUs; left > 0; {
			count := []int{1, 2, 4, 8, 12}[random.IntN(5)]
			if count > left {
				count = 1
			}
			left -= count
			jobs = append(jobs, &simulator.Job{Submission: simulator.Submission{Name: strconv.Itoa(len(jobs))}})
			counts = append(counts, count)
		}
		placed := pack(jobs, counts, cluster, previous)
		used := make([]int, cluster.Nodes)
		for i, job := range jobs {
			nodes := placed[job.Name]
			if len(nodes) != counts[i] {
				t.Fatalf("round %d: job %d has %d GPUs of %d", round, i, len(nodes), counts[i])
			}
			for _, node := range nodes {
				used[node]++
			}
		}
		if slices.Max(used) > cluster.GPUs {
			t.Fatalf("round %d: GPUs by node are %v", round, used)
		}
		previous = placed
	}
}

func TestRanksAreThoseOfRepeatedlyRemovedFronts(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 3))
	for round := range 100 {
		var all []*individual
		for range 1 + random.IntN(60) {
			all = append(all, &individual{values: [2]float64{float64(random.IntN(8)), float64(random.IntN(8))}})
		}
		rankAll(all)
		rest := slices.Clone(all)
		for rank := 0; len(rest) > 0; rank++ {
			var behind []*individual
			for _, one := range rest {
				isDominated := slices.ContainsFunc(rest, func(other *individual) bool { return dominates(other, one) })
				if isDominated {
					behind = append(behind, one)
				} else if one.rank != rank {
					t.Fatalf("round %d: %v has rank %d, want %d", round, one.values, one.rank, rank)
				}
			}
			rest = behind
		}
	}
}

func TestPolluxReplaysEquallyWithTheSameSeed(t *testing.T) {
	t.Parallel()
	jobs := []*simulator.Job{}
	for i := range 6 {
		jobs = append(jobs, &simulator.Job{Submission: simulator.Submission{
			Name: strconv.Itoa(i), Application: &simulator.Application{MaxReplicas: 4, Bounds: model.Bounds{Initial: 8, Max: 64, MinAtomic: 8, MaxAtomic: 16}},
		}})
	}
	place := func(seed uint64) map[string][]int {
		return NewPollux(seed).Place(600, jobs, simulator.Cluster{Nodes: 2, GPUs: 4}, nil)
	}
	first, second := place(1), place(1)
	for name, nodes := range first {
		if !slices.Equal(nodes, second[name]) {
			t.Errorf("job %s is on %v, then on %v", name, nodes, second[name])
		}
	}
}
