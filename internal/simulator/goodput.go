// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"math"
	"os"
	"slices"

	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/model"
)

// Goodput is the policy goodput on the simulated cluster.
type Goodput struct {
	Settings goodput.Settings
	Progress bool
	History  bool
	Cost     float64
	state    map[string]*history
	groups   map[string]*group
	last     int
}

type history struct {
	work, attained, runFor float64
	useful                 float64
	speed                  float64
	restarting             float64
	restarts               int
	started                bool
	cache                  map[int]*model.Candidates
	fitted                 model.Throughput
	running                *Job
}

type group struct {
	seen        map[[3]int]bool
	all         []model.Observation
	fitted      *model.Throughput
	fittedAt    int
	noise       *model.Noise
	maxObserved int
	sizes       []float64
}

func (g *group) learn(job *Job) {
	for _, o := range job.Observations {
		key := [3]int{o.Nodes, o.Replicas, o.Atomic}
		if !g.seen[key] && len(g.all) < 64 {
			g.seen[key] = true
			g.all = append(g.all, o)
		}
	}
	if len(job.Observations) > 0 && g.noise == nil {
		noise := job.Noise
		g.noise = &noise
	}
	g.maxObserved = max(g.maxObserved, job.MaxObserved)
}

func (g *group) model() *model.Throughput {
	if len(g.all) > 0 && g.fittedAt != len(g.all) {
		fitted := model.Fit(g.all, g.fitted)
		g.fitted, g.fittedAt = &fitted, len(g.all)
	}
	return g.fitted
}

func NewGoodput() *Goodput {
	return &Goodput{Settings: goodput.DefaultSettings(), Cost: 30, state: map[string]*history{}, groups: map[string]*group{}}
}

func (*Goodput) Target(job *Submission) int { return job.Application.FixedBatch }

func (g *Goodput) Place(now int, jobs []*Job, cluster Cluster, previous map[string][]int) map[string][]int {
	dt := float64(now - g.last)
	g.last = now
	capacity := cluster.Nodes * cluster.GPUs
	here := map[string]bool{}
	for _, job := range jobs {
		here[job.Name] = true
	}
	for name, h := range g.state {
		if !here[name] && h.running != nil {
			gr := g.group(h.running)
			gr.sizes = append(gr.sizes, h.useful)
			h.running = nil
		}
	}
	all := make([]goodput.Job, len(jobs))
	for i, job := range jobs {
		all[i] = g.view(job, dt, cluster, capacity, len(previous[job.Name]))
	}
	decisions, _ := goodput.Decide(all, capacity, &g.Settings)
	next := pack(jobs, decisions, cluster, previous)
	for _, job := range jobs {
		if len(next[job.Name]) > 0 && !slices.Equal(next[job.Name], previous[job.Name]) {
			g.state[job.Name].restarting = g.Cost
		}
	}
	return next
}

func (g *Goodput) group(job *Job) *group {
	name := job.Application.Name
	if g.groups[name] == nil {
		g.groups[name] = &group{seen: map[[3]int]bool{}}
	}
	return g.groups[name]
}

func (g *Goodput) view(job *Job, dt float64, cluster Cluster, capacity, current int) goodput.Job {
	h := g.state[job.Name]
	if h == nil {
		h = &history{}
		g.state[job.Name] = h
	}
	h.running = job
	gr := g.group(job)
	fitted := job.Model()
	observed := job.MaxObserved
	if g.History {
		gr.learn(job)
		observed = gr.maxObserved
		if shared := gr.model(); shared != nil {
			noise := *gr.noise
			if len(job.Observations) > 0 {
				noise = job.Noise
			}
			fitted = &model.Goodput{Throughput: *shared, Noise: noise, Bounds: job.Application.Bounds}
		}
	}
	if fitted != nil && (h.cache == nil || fitted.Throughput != h.fitted) {
		h.cache, h.fitted = map[int]*model.Candidates{}, fitted.Throughput
	}
	value := func(k int) float64 {
		known := h.cache[k]
		if known == nil {
			made := model.NewCandidates(&fitted.Throughput, &fitted.Bounds, (k+cluster.GPUs-1)/cluster.GPUs, k)
			known = &made
			h.cache[k] = known
		}
		_, goodput := known.Best(fitted.Noise)
		return goodput
	}
	one := 0.0
	if fitted != nil {
		one = value(1)
	}
	speed := func(k int) float64 {
		if fitted == nil {
			return float64(k)
		}
		return value(k) / one
	}
	limit := min(max(2*observed, 1), 64, job.Application.Bounds.Max/job.Application.Bounds.MinAtomic, capacity)
	if job.Application.MaxReplicas > 0 {
		limit = job.Application.MaxReplicas
	}
	view := goodput.Job{Current: current, HasRun: job.started, Remaining: math.NaN(), RestartCost: g.Cost, Submitted: float64(job.Time)}
	for k := 1; k <= limit; {
		view.Points = append(view.Points, goodput.Point{Replicas: k, Cost: k, Speed: speed(k)})
		if k < cluster.GPUs {
			k *= 2
		} else {
			k += cluster.GPUs
		}
	}
	if current > 0 && !slices.ContainsFunc(view.Points, func(p goodput.Point) bool { return p.Replicas == current }) {
		view.Points = append(view.Points, goodput.Point{Replicas: current, Cost: current, Speed: speed(current)})
	}
	if current > 0 {
		view.Speed = speed(current)
		ran := math.Max(dt-h.restarting, 0)
		h.work += view.Speed * ran
		if fitted != nil {
			h.useful += value(current) * ran
		}
		h.runFor += ran
		h.restarting = 0
		h.started = true
	}
	view.Work, view.Attained, view.RunFor = h.work, job.Attained, h.runFor
	switch {
	case g.Progress:
		done, total := Oracle(job).Progress()
		view.Remaining = (total - done) * oneRate(job, fitted)
		_ = done
	}
	if g.History && len(gr.sizes) > 0 && fitted != nil {
		sum := 0.0
		for _, s := range gr.sizes {
			sum += s
		}
		if !g.Progress && os.Getenv("NOSIZE") == "" {
			mean := sum / float64(len(gr.sizes))
			left := math.Max(mean-h.useful, 0)
			switch os.Getenv("HM") {
			case "g":
				view.Guess = true
			case "w":
				left = math.Max(left, 0.1*h.useful)
			case "gw":
				left = math.Max(left, 0.1*h.useful)
				view.Guess = true
			case "gh":
				left = math.Max(left, 0.25*mean)
				view.Guess = true
			}
			view.Remaining = left / one
		}
	}
	return view
}

// oneRate returns the seconds of one replica for a unit of progress.
func oneRate(job *Job, fitted *model.Goodput) float64 {
	if fitted == nil {
		return math.NaN()
	}
	_, one := fitted.Best(1, 1)
	return float64(job.Application.Bounds.Initial) / one
}

// Pack places counts of replicas on equal nodes.
func pack(jobs []*Job, decisions []goodput.Decision, cluster Cluster, previous map[string][]int) map[string][]int {
	placed := map[string][]int{}
	room := make([]int, cluster.Nodes)
	for i := range room {
		room[i] = cluster.GPUs
	}
	index := map[string]int{}
	var waiting []int
	for i, job := range jobs {
		index[job.Name] = i
		k := decisions[i].Replicas()
		if k == 0 {
			continue
		}
		if len(previous[job.Name]) == k {
			placed[job.Name] = previous[job.Name]
			for _, n := range previous[job.Name] {
				room[n]--
			}
		} else {
			waiting = append(waiting, i)
		}
	}
	weight := func(i int) float64 { return decisions[i].Weight * float64(decisions[i].Replicas()) }
	put := func(i int, nodes []int) {
		placed[jobs[i].Name] = nodes
		for _, n := range nodes {
			room[n]--
		}
	}
	evict := func(i int) {
		for _, n := range placed[jobs[i].Name] {
			room[n]++
		}
		delete(placed, jobs[i].Name)
		waiting = append(waiting, i)
	}
	on := func(node int) (all []int) {
		for i, job := range jobs {
			if slices.Contains(placed[job.Name], node) {
				all = append(all, i)
			}
		}
		return all
	}
	for len(waiting) > 0 {
		slices.SortStableFunc(waiting, func(a, b int) int { return cmp.Compare(decisions[b].Replicas(), decisions[a].Replicas()) })
		i := waiting[0]
		waiting = waiting[1:]
		k := decisions[i].Replicas()
		if k >= cluster.GPUs {
			need := k / cluster.GPUs
			var nodes []int
			for _, n := range previous[jobs[i].Name] {
				if room[n] == cluster.GPUs && !slices.Contains(nodes, n) && len(nodes) < need {
					nodes = append(nodes, n)
				}
			}
			for n := range room {
				if room[n] == cluster.GPUs && !slices.Contains(nodes, n) && len(nodes) < need {
					nodes = append(nodes, n)
				}
			}
			for len(nodes) < need {
				best, least := -1, math.Inf(1)
				for n := range room {
					if slices.Contains(nodes, n) || room[n] == cluster.GPUs {
						continue
					}
					sum, big := 0.0, false
					for _, other := range on(n) {
						sum += weight(other)
						big = big || decisions[other].Replicas() >= cluster.GPUs
					}
					if !big && sum < least {
						best, least = n, sum
					}
				}
				if best < 0 {
					break
				}
				for _, other := range on(best) {
					evict(other)
				}
				nodes = append(nodes, best)
			}
			if len(nodes) < need {
				continue
			}
			slices.Sort(nodes)
			var where []int
			for _, n := range nodes {
				for range cluster.GPUs {
					where = append(where, n)
				}
			}
			put(i, where)
			continue
		}
		best := -1
		for n := range room {
			if room[n] >= k && (best < 0 || room[n] < room[best] || room[n] == room[best] && slices.Contains(previous[jobs[i].Name], n) && !slices.Contains(previous[jobs[i].Name], best)) {
				best = n
			}
		}
		if best < 0 {
			least := math.Inf(1)
			var victims []int
			for n := range room {
				if room[n] == 0 {
					continue
				}
				others := on(n)
				slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(weight(a), weight(b)) })
				have, sum := room[n], 0.0
				var these []int
				for _, other := range others {
					if have >= k || decisions[other].Replicas() >= k {
						continue
					}
					have += decisions[other].Replicas()
					sum += weight(other)
					these = append(these, other)
				}
				if have >= k && sum < least {
					best, least, victims = n, sum, these
				}
			}
			if best < 0 {
				continue
			}
			for _, other := range victims {
				evict(other)
			}
		}
		where := make([]int, k)
		for r := range where {
			where[r] = best
		}
		put(i, where)
	}
	return placed
}
