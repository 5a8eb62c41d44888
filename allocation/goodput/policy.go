// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/topology"
)

// Policy decides replicas by goodput. Its answers depend on the round only: what it keeps
// between rounds saves time. Rounds are decided one after the other.
type Policy struct {
	settings Settings
	cache    *cache
}

var _ allocation.Policy = &Policy{}

// New returns the policy.
func New(settings Settings) *Policy {
	return &Policy{settings: settings, cache: newCache()}
}

// Allocate implements allocation.Policy. A new job starts small, as nothing is known of it.
func (p *Policy) Allocate(job *allocation.Job, nodes []*allocation.Node) allocation.Placement {
	board := allocation.NewBoard(nodes)
	board.Leave(nodes)
	start := *job
	if job.Elastic >= 0 {
		start.Wanted = min(max(job.Min, 1), job.Wanted)
	}
	kinds, placement := newKinds(nodes, p.settings.DeviceKey), allocation.Placement{}
	for kind := range kinds.names {
		if placement = board.Place(kinds.excluding(&start, kind)); len(placement.Nodes) > 0 {
			break
		}
	}
	if len(placement.Nodes) > 0 && start.Wanted < job.Wanted {
		placement.Reason = allocation.ReasonPartiallyPlaced
	}
	return placement
}

// Optimize implements allocation.Policy.
func (p *Policy) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	p.cache.next()
	nodes := slices.Clone(round.Nodes)
	slices.SortFunc(nodes, func(a, b *allocation.Node) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	board, kinds := allocation.NewBoard(nodes), newKinds(nodes, p.settings.DeviceKey)
	views := p.views(round, nodes, board, kinds)
	for _, pool := range pools(views, nodes, board) {
		p.decide(round, pool, kinds)
	}
	placer := newPlacer(&p.settings, board, nodes, views, kinds)
	placer.placeAll()
	placements := make(map[types.NamespacedName]allocation.Placement, len(views))
	for i, v := range views {
		placements[v.job.Name] = p.placement(round.Now, nodes, v.placedOn(v.decision.Options[placer.options[i]].Kind), placer.placed[i])
	}
	return placements
}

// views returns what is known of each job, in the order in which jobs are placed. It
// takes the room of those that can stay as they are.
func (p *Policy) views(round *allocation.Round, nodes []*allocation.Node, board *allocation.Board, kinds *kinds) []*view {
	closed, places := map[string]bool{}, make(map[string]int, len(nodes))
	for i, node := range nodes {
		closed[node.Object.Name], places[node.Object.Name] = node.Closed, i
	}
	jobs := allocation.InOrder(round.Jobs)
	resolve(round.Groups, jobs)
	own, tree := make([][]model.Observation, len(jobs)), allocation.TreeOf(nodes)
	for i, job := range jobs {
		own[i] = job.Observations()
		if group := groupOf(round, job); group != nil {
			teach(group, job, own[i])
		}
	}
	views, known := make([]*view, len(jobs)), map[terrainKey]terrain{}
	for i, job := range jobs {
		v := &view{job: job, previous: round.Previous[job.Name], current: waiting, usage: job.Usage, closed: closed, names: kinds.names}
		v.elsewhere, v.kind = make([]*view, len(kinds.names)), v.kindOf(kinds, places)
		for kind := range kinds.names {
			at := terrain{perNode: 1}
			if v.isElastic() {
				at = surveyed(job, nodes, tree, board, known, kinds, kind)
			}
			v.terrains = append(v.terrains, at)
		}
		v.terrain = v.terrains[v.kind]
		v.keep(board)
		v.curves = p.cache.curvesOf(job, groupOf(round, job), own[i], kinds.names)
		views[i] = v
	}
	board.Settle()
	units := newUnits(views, nodes)
	guess(views, len(kinds.names))
	guessCrossings(views)
	reference := kinds.largest()
	for _, v := range views {
		v.relate(reference)
	}
	for _, v := range views {
		v.account(round.Now, units, tree, places)
	}
	return views
}

// surveyed returns what the nodes of a type say about the elastic replicas of a job. Jobs of equal
// requirements share it.
func surveyed(job *allocation.Job, nodes []*allocation.Node, tree *topology.Tree, board *allocation.Board, known map[terrainKey]terrain, kinds *kinds, kind int) terrain {
	pod := job.Tasks[job.Elastic].Pod
	key := terrainKey{pod.Key(), kind}
	if found, is := known[key]; is && len(job.Excluded) == 0 {
		return found
	}
	found := survey(nodes, tree, pod, board.Accepting(kinds.excluding(job, kind), job.Elastic))
	if len(job.Excluded) == 0 {
		known[key] = found
	}
	return found
}

// terrainKey are equal requirements on nodes of a type.
type terrainKey struct {
	requirements string
	kind         int
}

// groupOf returns the history of a job's group, nil if it has no group.
func groupOf(round *allocation.Round, job *allocation.Job) *allocation.Group {
	if job.Group == "" || round.Groups == nil {
		return nil
	}
	group := round.Groups[job.Group]
	if group == nil && job.Report.MaxObserved() > 0 {
		group = &allocation.Group{}
		round.Groups[job.Group] = group
	}
	return group
}

// keep takes the room of the job where it is, if it can stay there.
func (v *view) keep(board *allocation.Board) {
	had, fits := v.job.ElasticOf(len(v.previous))
	if !fits || len(v.previous) == 0 || v.isElastic() && (had < v.job.Min || had > v.job.Wanted) {
		return
	}
	stay := board.Keep(v.job, v.previous)
	if stay == nil {
		return
	}
	if !stay.IsComplete() {
		board.Release(stay)
		return
	}
	v.stay, v.current = stay, had
}

// account advances the usage of the job up to now, by where it was.
func (v *view) account(now time.Time, units *units, tree *topology.Tree, placeOf map[string]int) {
	had, fits := v.job.ElasticOf(len(v.previous))
	if len(v.previous) == 0 || !fits {
		return
	}
	first := v.firstElastic()
	on := distinct(v.previous[min(first, len(v.previous)):min(first+int(had), len(v.previous))])
	v.nodes, v.span = max(len(on), 1), spanOn(tree, placeOf, on)
	if v.usage.At.IsZero() {
		v.usage.At, v.usage.Restarting = now.Add(-v.job.Held), 0
	}
	at := pace{speed: 1, capacity: units.share(v, had) * units.measure}
	if v.isElastic() {
		at.speed, at.goodput = v.curve.speed(v.nodes, v.span, int(had)), v.curve.goodput(v.nodes, v.span, int(had))
	}
	v.usage = advance(v.usage, now, at)
}

// decide sets the decisions of the jobs of a pool.
func (p *Policy) decide(round *allocation.Round, pool *pool, kinds *kinds) {
	units := newUnits(pool.views, pool.nodes)
	left, all := units.capacities(kinds, pool), make([]contender, len(pool.views))
	for i, v := range pool.views {
		all[i] = contender{v, p.jobOf(round, v, units, len(left))}
	}
	if round.Tenants == nil {
		p.serve(all, left)
		return
	}
	p.divide(round, all, left)
}

// serve sets the decisions of jobs, and takes what they cost from the capacities. Classes of priority are served in
// order: what one leaves goes to the next.
func (p *Policy) serve(all []contender, left []int) {
	for begin := 0; begin < len(all); {
		end := begin
		for end < len(all) && all[end].job.Priority == all[begin].job.Priority {
			end++
		}
		class := all[begin:end]
		jobs := make([]Job, len(class))
		for i := range class {
			jobs[i] = class[i].of
		}
		for i, decision := range Decide(jobs, left, &p.settings) {
			class[i].decision = decision
			left[decision.Chosen().Kind] -= decision.Chosen().Cost
		}
		begin = end
	}
}

// jobOf returns what the choice depends on of a job.
func (p *Policy) jobOf(round *allocation.Round, v *view, units *units, kinds int) Job {
	job := Job{
		Current: int(v.current), Kind: v.kind, HasRun: !v.usage.At.IsZero(), Work: v.usage.Work, Attained: v.usage.Attained, RunFor: v.usage.RunFor,
		Age: round.Now.Sub(v.job.Created).Seconds(), RestartCost: p.restartCost(v).Seconds(), Submitted: v.job.Created,
		ResizesLive: v.job.ResizesLive && v.current != waiting,
	}
	job.Remaining, job.IsGuess = v.remaining(groupOf(round, v.job))
	job.Starves = p.starves(v, &job, round.Now)
	for kind := range kinds {
		there := v.on(kind)
		counts := there.counts(&p.settings)
		job.Points = slices.Grow(job.Points, len(counts))
		for _, k := range counts {
			if speed := there.speed(k); speed > 0 {
				job.Points = append(job.Points, Point{Replicas: int(k), Kind: kind, Cost: units.cost(v, k), Speed: speed})
			}
		}
	}
	if v.current != waiting {
		job.Speed = v.speed(v.current)
	}
	return job
}

// starves returns how long a job has had no replicas, all its waits together, by how long it may have none:
// it starves beyond 1. It may for a share of its expected work, so a job that starves
// keeps its minimum until its work has made up for its waits. A job that has just stopped waits StarveAfter, or it would
// restart all the time.
func (p *Policy) starves(v *view, job *Job, now time.Time) float64 {
	if len(v.previous) == 0 && waited(v.job, now) <= p.settings.StarveAfter {
		return 0
	}
	lost, expected := job.Age-job.RunFor, job.Work
	if job.HasRun {
		lost -= float64(v.usage.Restarts+1) * job.RestartCost
	}
	if !math.IsNaN(job.Remaining) {
		expected += job.Remaining
	}
	return lost / math.Max(p.settings.StarveAfter.Seconds(), p.settings.StarveShare*expected)
}

func (p *Policy) restartCost(v *view) time.Duration {
	return cmp.Or(v.usage.RestartCost, p.settings.RestartCost)
}

// placement returns the answer about a job.
func (p *Policy) placement(now time.Time, nodes []*allocation.Node, v *view, stay *allocation.Stay) allocation.Placement {
	usage := v.usage
	var placed []string
	if stay != nil {
		placed = stay.Nodes()
	}
	if len(placed) > 0 && (len(v.previous) == 0 || v.job.Restarts(v.previous, placed)) {
		usage = restarted(usage, now, p.restartCost(v))
	}
	placement := p.explain(nodes, v, placed)
	placement.Usage = usage
	return placement
}
