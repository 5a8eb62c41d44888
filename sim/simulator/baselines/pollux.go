// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// The settings of Pollux' genetic algorithm.
const (
	population  = 100
	generations = 100
	// restart is what the policy takes a restart for, in seconds.
	restart = 30
)

// Pollux (Qiao et al., OSDI 2021) searches for an allocation by NSGA-II (Deb et al.,
// 2002): the power mean of all speedups, and the utility of the GPUs.
type Pollux struct {
	random *rand.Rand
	// states are the best of the last round, for its jobs.
	states [][]uint8
	names  []string
}

// NewPollux returns the policy before its first round.
func NewPollux(seed uint64) *Pollux {
	return &Pollux{random: rand.New(rand.NewPCG(seed, seed))}
}

// Target implements simulator.Policy.
func (*Pollux) Target(job *simulator.Submission) int { return job.Application.FixedBatch }

// Place implements simulator.Policy.
func (p *Pollux) Place(now int, jobs []*simulator.Job, cluster simulator.Cluster, previous map[string][]int) map[string][]int {
	jobs = slices.Clone(jobs)
	slices.SortStableFunc(jobs, func(a, b *simulator.Job) int {
		return cmp.Or(cmp.Compare(a.Attained, b.Attained), cmp.Compare(a.Time, b.Time))
	})
	s := newSearch(p.random, now, jobs, cluster, previous)
	p.states = s.run(p.adapted(jobs, cluster))
	p.names = p.names[:0]
	for _, job := range jobs {
		p.names = append(p.names, job.Name)
	}
	chosen, least := 0, math.Inf(1)
	for i, state := range p.states {
		if value := s.evaluate(state)[0]; value < least {
			chosen, least = i, value
		}
	}
	placed := map[string][]int{}
	for j, job := range jobs {
		for n := range cluster.Nodes {
			for range p.states[chosen][j*cluster.Nodes+n] {
				placed[job.Name] = append(placed[job.Name], n)
			}
		}
	}
	return placed
}

// adapted returns the states of the last round for the jobs of this one.
func (p *Pollux) adapted(jobs []*simulator.Job, cluster simulator.Cluster) [][]uint8 {
	states := make([][]uint8, len(p.states))
	for i, before := range p.states {
		states[i] = make([]uint8, len(jobs)*cluster.Nodes)
		for j, job := range jobs {
			if at := slices.Index(p.names, job.Name); at >= 0 {
				copy(states[i][j*cluster.Nodes:], before[at*cluster.Nodes:(at+1)*cluster.Nodes])
			}
		}
	}
	return states
}

// search is a run of the genetic algorithm. A state has the GPUs of each job on each
// node, job by job.
type search struct {
	random      *rand.Rand
	jobs, nodes int
	gpus        int
	base        []uint8
	most        []int
	factor      []float64
	speedup     []func(nodes, replicas int) float64
}

// individual is a state and how good it is; both values are to be small.
type individual struct {
	state    []uint8
	values   [2]float64
	rank     int
	crowding float64
}

func newSearch(random *rand.Rand, now int, jobs []*simulator.Job, cluster simulator.Cluster, previous map[string][]int) *search {
	s := &search{random: random, jobs: len(jobs), nodes: cluster.Nodes, gpus: cluster.GPUs, base: make([]uint8, len(jobs)*cluster.Nodes)}
	total := cluster.Nodes * cluster.GPUs
	fair := int(math.Ceil(float64(total) / float64(len(jobs))))
	for j, job := range jobs {
		for _, node := range previous[job.Name] {
			s.base[j*s.nodes+node]++
		}
		most := min(max(2*job.MaxObserved, 1), 64, job.Application.Bounds.Max/job.Application.Bounds.MinAtomic)
		if job.Application.MaxReplicas > 0 {
			most = job.Application.MaxReplicas
		}
		s.most = append(s.most, most)
		age := float64(job.Age(now))
		s.factor = append(s.factor, math.Max(age-float64(job.Restarts)*restart, 0)/(age+restart))
		s.speedup = append(s.speedup, speedup(job.Model(), fair))
	}
	return s
}

// speedup returns the goodput of an allocation relative to that of a fair share, which
// the artifact takes to be on one node.
func speedup(fitted *model.Goodput, fair int) func(nodes, replicas int) float64 {
	if fitted == nil {
		return func(_, replicas int) float64 { return float64(replicas) / float64(fair) }
	}
	_, base := fitted.Best(1, fair)
	known := map[[2]int]float64{}
	return func(nodes, replicas int) float64 {
		if replicas == 0 {
			return 0
		}
		key := [2]int{nodes, replicas}
		value, is := known[key]
		if !is {
			_, value = fitted.Best(nodes, replicas)
			value /= base
			known[key] = value
		}
		return value
	}
}

func (s *search) run(states [][]uint8) [][]uint8 {
	if len(states) == 0 {
		states = [][]uint8{slices.Clone(s.base)}
	}
	var all []*individual
	for _, state := range states {
		s.repair(state)
		all = append(all, s.individual(state))
	}
	all = survive(all)
	for range generations - 1 {
		all = survive(append(all, s.offspring(all)...))
	}
	var best [][]uint8
	for _, one := range all {
		if one.rank == 0 {
			best = append(best, one.state)
		}
	}
	return best
}

func (s *search) individual(state []uint8) *individual {
	return &individual{state: state, values: s.evaluate(state)}
}

// evaluate returns the negative power mean of the speedups and the negative utility.
func (s *search) evaluate(state []uint8) [2]float64 {
	sum, useful := 0.0, 0.0
	active := make([]bool, s.nodes)
	for j := range s.jobs {
		row := state[j*s.nodes : (j+1)*s.nodes]
		nodes, replicas := 0, 0
		for n, count := range row {
			if count > 0 {
				nodes++
				replicas += int(count)
				active[n] = true
			}
		}
		value := s.speedup[j](nodes, replicas)
		useful += value
		scaled := value / float64(s.nodes*s.gpus) * float64(s.nodes)
		if !slices.Equal(row, s.base[j*s.nodes:(j+1)*s.nodes]) {
			scaled *= s.factor[j]
		}
		sum += 1 / (scaled + 1e-3)
	}
	count := 0
	for _, is := range active {
		if is {
			count++
		}
	}
	utility := 0.0
	if count > 0 {
		utility = useful / float64(count*s.gpus)
	}
	return [2]float64{-float64(s.jobs) / sum, -utility}
}
