// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"cmp"
	"math"
	"slices"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/topology"
)

// placer places the decided replicas on nodes. Jobs whose replicas do not change stay
// where they are, unless a larger job needs their nodes.
type placer struct {
	settings *Settings
	board    *allocation.Board
	nodes    []*allocation.Node
	index    map[string]int
	views    []*view
	kinds    *kinds
	// tree has the domains of the nodes; nil without a topology.
	tree *topology.Tree
	// placed has the room of each job, nil if it has none; options has which option that is.
	placed  []*allocation.Stay
	options []int
	// on has the jobs of each node.
	on [][]int
	// queue are the jobs to place, failed those that found no room for what was decided.
	queue, failed []int
}

func newPlacer(settings *Settings, board *allocation.Board, nodes []*allocation.Node, views []*view, kinds *kinds) *placer {
	p := &placer{
		settings: settings, board: board, nodes: nodes, index: make(map[string]int, len(nodes)), views: views, kinds: kinds, tree: allocation.TreeOf(nodes),
		placed: make([]*allocation.Stay, len(views)), options: make([]int, len(views)), on: make([][]int, len(nodes)),
	}
	for i, node := range nodes {
		p.index[node.Object.Name] = i
	}
	return p
}

// placeAll places all jobs by their decisions, gives away what is left if some of them find no room, and lets waiting jobs
// have what is idle then.
func (p *placer) placeAll() {
	for i, v := range p.views {
		chosen := v.decision.Chosen()
		stays := chosen.Replicas == int(v.current) && chosen.Kind == v.kind
		switch {
		case chosen.Replicas != waiting && stays:
			p.put(i, v.decision.Option, v.stay)
		case v.stay != nil:
			p.board.Release(v.stay)
		}
		if chosen.Replicas != waiting && !stays {
			p.queue = append(p.queue, i)
		}
	}
	for _, stay := range p.placed {
		if stay != nil {
			p.board.KeepEnded(stay)
		}
	}
	p.board.Leave(p.nodes)
	// Room behind replicas that continue is worth more than any other.
	p.queue = slices.DeleteFunc(p.queue, func(i int) bool { return p.resizeLive(i, p.views[i].decision.Option) })
	p.drain()
	if len(p.failed) > 0 {
		p.fallBack()
		p.fill()
	}
	p.startWaiting()
}

// drain places the jobs of the queue, the largest first.
func (p *placer) drain() {
	for len(p.queue) > 0 {
		slices.SortStableFunc(p.queue, func(a, b int) int {
			return cmp.Or(cmp.Compare(p.views[b].decision.Chosen().Cost, p.views[a].decision.Chosen().Cost), cmp.Compare(a, b))
		})
		i := p.queue[0]
		p.queue = p.queue[1:]
		if !p.place(i, p.views[i].decision.Option, true) {
			p.failed = append(p.failed, i)
		}
	}
}

// put notes where a job is placed.
func (p *placer) put(i, option int, stay *allocation.Stay) {
	p.placed[i], p.options[i] = stay, option
	for _, node := range distinct(stay.Nodes()) {
		if at, is := p.index[node]; is {
			p.on[at] = append(p.on[at], i)
		}
	}
}

// lift takes a job from its nodes.
func (p *placer) lift(i int) {
	for _, node := range distinct(p.placed[i].Nodes()) {
		if at, is := p.index[node]; is {
			p.on[at] = slices.DeleteFunc(p.on[at], func(other int) bool { return other == i })
		}
	}
	p.board.Release(p.placed[i])
	p.placed[i], p.options[i] = nil, 0
}

// place places a job with the replicas of an option. Smaller jobs are evicted if that
// makes room, and placed again.
func (p *placer) place(i, option int, evicts bool) bool {
	kind := p.views[i].decision.Options[option].Kind
	v := p.views[i].on(kind)
	k := int32(p.views[i].decision.Options[option].Replicas)
	if k == v.current && p.putBack(i, option) || p.resizeLive(i, option) {
		return true
	}
	if !v.isSimple() || k == 0 {
		return p.placeMixed(i, option, k)
	}
	var nodes []int
	var victims []int
	if k >= v.perNode {
		nodes, victims = p.whole(i, v, int(k/v.perNode), evicts)
		if rest := k % v.perNode; rest > 0 && len(nodes) > 0 {
			last, others := p.within(i, v, rest, evicts, nodes)
			if last < 0 {
				return false
			}
			nodes, victims = append(nodes, last), append(victims, others...)
		}
	} else if node, others := p.within(i, v, k, evicts, nil); node >= 0 {
		nodes, victims = []int{node}, others
	}
	if len(nodes) == 0 {
		return false
	}
	for _, victim := range victims {
		if p.placed[victim] != nil {
			p.lift(victim)
			p.queue = append(p.queue, victim)
		}
	}
	return p.seat(i, option, p.byRank(v, k, nodes))
}

// byRank returns the node of each rank of a simple job, whole nodes first.
func (p *placer) byRank(v *view, k int32, nodes []int) []string {
	names := make([]string, 0, k)
	for _, node := range nodes {
		for range min(v.perNode, k-int32(len(names))) {
			names = append(names, p.nodes[node].Object.Name)
		}
	}
	return names
}

// seat takes the room of a job on nodes by rank.
func (p *placer) seat(i, option int, nodes []string) bool {
	moved := *p.views[i].job
	// Another place starts all ranks again.
	moved.Ended, moved.Running = nil, nil
	stay := p.board.Keep(&moved, nodes)
	if stay == nil {
		return false
	}
	p.put(i, option, stay)
	return true
}

// putBack places a job where it was.
func (p *placer) putBack(i, option int) bool {
	v := p.views[i]
	if v.stay == nil {
		return false
	}
	stay := p.board.Keep(v.job, v.previous)
	if stay == nil {
		return false
	}
	p.board.KeepEnded(stay)
	p.put(i, option, stay)
	return true
}

// resizeLive gives a job that is resized live the replicas of an option without a move, if there is room
// on as few nodes as they need.
func (p *placer) resizeLive(i, option int) bool {
	v, to := p.views[i], p.views[i].decision.Options[option]
	k := int32(to.Replicas)
	if !v.job.ResizesLive || v.stay == nil || k < 0 || to.Kind != v.kind {
		return false
	}
	resized := *p.kinds.excluding(v.job, v.kind)
	resized.Min, resized.Wanted = k, k
	stay := p.board.Keep(&resized, v.previous)
	if stay == nil || !p.board.Complete(stay) {
		return false
	}
	if len(distinct(stay.Nodes())) > max(len(distinct(v.previous)), v.nodesOf(k)) {
		p.board.Release(stay)
		return false
	}
	p.put(i, option, stay)
	return true
}

// placeMixed places a job of several tasks where there is room.
func (p *placer) placeMixed(i, option int, k int32) bool {
	moved := *p.kinds.excluding(p.views[i].job, p.views[i].decision.Options[option].Kind)
	moved.Ended, moved.Running = nil, nil
	nodes, fits := p.board.PlaceCount(&moved, k)
	if fits {
		p.put(i, option, p.board.Seated(&moved, nodes))
	}
	return fits
}

// room returns how many replicas of a job a node holds beside what is there.
func (p *placer) room(v *view, node int) int32 {
	if !v.accepts[node] {
		return 0
	}
	return v.elastic().Room(p.board.Free(node), v.perNode)
}

// whole returns so many nodes with room for a whole node's replicas: the job's own ones
// first, then others; and the jobs that are evicted for it.
func (p *placer) whole(i int, v *view, need int, evicts bool) (nodes, victims []int) {
	var free []int
	for node := range p.nodes {
		if p.room(v, node) >= v.perNode {
			free = append(free, node)
		}
	}
	nodes = p.nearest(v, free, need)
	if len(nodes) < need && evicts {
		type offer struct {
			node  int
			worth worth
		}
		var offers []offer
		for node := range p.nodes {
			if sum, is := p.evictable(i, v, node); is && !slices.Contains(nodes, node) {
				offers = append(offers, offer{node, sum})
			}
		}
		apart := p.tree.Apart(nodes)
		slices.SortStableFunc(offers, func(a, b offer) int {
			return cmp.Or(a.worth.compare(b.worth), cmp.Compare(apart(a.node), apart(b.node)))
		})
		for _, o := range offers[:min(len(offers), need-len(nodes))] {
			nodes, victims = append(nodes, o.node), append(victims, p.on[o.node]...)
		}
	}
	if len(nodes) < need {
		return nil, nil
	}
	slices.Sort(nodes)
	return nodes, victims
}

// worth is what jobs lose that are evicted: those of the least priority go first.
type worth struct {
	priority int32
	sum      float64
}

func (w worth) compare(other worth) int {
	return cmp.Or(cmp.Compare(w.priority, other.priority), cmp.Compare(w.sum, other.sum))
}

func (w worth) with(v *view) worth {
	return worth{max(w.priority, v.job.Priority), w.sum + v.decision.Weight*float64(v.decision.Chosen().Cost)}
}

var nothing = worth{priority: math.MinInt32}

// evictable reports whether a node has room for a whole node's replicas without the jobs
// that are there, which may be evicted, and what they lose.
func (p *placer) evictable(i int, v *view, node int) (worth, bool) {
	sum := nothing
	if !v.accepts[node] || len(p.on[node]) == 0 {
		return sum, false
	}
	for _, other := range p.on[node] {
		if !p.yields(other, i) {
			return sum, false
		}
		sum = sum.with(p.views[other])
	}
	return sum, p.roomWithout(v, node, p.on[node]) >= v.perNode
}

// yields reports whether a job may be evicted for another one: it is smaller, so that
// evictions end.
func (p *placer) yields(other, i int) bool {
	v, chosen := p.views[i], p.views[other].decision.Chosen()
	small := p.views[other].on(chosen.Kind)
	return small.isSimple() && chosen.Replicas < int(small.perNode) && len(small.job.Ended) == 0 &&
		chosen.Cost < v.decision.Chosen().Cost && small.job.Priority <= v.job.Priority
}

// roomWithout returns the room of a node without some of its jobs.
func (p *placer) roomWithout(v *view, node int, others []int) int32 {
	free := slices.Clone(p.board.Free(node))
	for _, other := range others {
		count := 0
		for _, name := range p.placed[other].Nodes() {
			if p.index[name] == node {
				count++
			}
		}
		for axis, amount := range p.views[other].elastic().Amounts() {
			free[axis] += amount * int64(count)
		}
	}
	return v.elastic().Room(free, v.perNode)
}

// within returns the fullest node with room for so many replicas, and the jobs that are
// evicted for it; -1 if there is none.
func (p *placer) within(i int, v *view, k int32, evicts bool, without []int) (best int, victims []int) {
	best = p.fullest(v, k, without)
	if best >= 0 || !evicts {
		return best, nil
	}
	lowest := worth{priority: math.MaxInt32, sum: math.Inf(1)}
	for node := range p.nodes {
		if !v.accepts[node] || slices.Contains(without, node) {
			continue
		}
		if these, sum, is := p.cheapest(i, v, node, k); is && sum.compare(lowest) < 0 {
			best, lowest, victims = node, sum, these
		}
	}
	return best, victims
}

// fullest returns the fullest node with room for so many replicas, the job's own among equals; -1 if there is none. Beside other
// nodes of the job it is one that is near to them.
func (p *placer) fullest(v *view, k int32, without []int) int {
	best, nearest, least := -1, 0, int32(0)
	apart := p.tree.Apart(without)
	for node := range p.nodes {
		room := p.room(v, node)
		if room < k || slices.Contains(without, node) {
			continue
		}
		isOwn := best >= 0 && p.wasOn(v, node) && !p.wasOn(v, best)
		order := cmp.Or(cmp.Compare(apart(node), nearest), cmp.Compare(room, least))
		if best < 0 || order < 0 || order == 0 && isOwn {
			best, nearest, least = node, apart(node), room
		}
	}
	return best
}

// cheapest returns the jobs of least worth that make room on a node for so many replicas.
func (p *placer) cheapest(i int, v *view, node int, k int32) (victims []int, sum worth, is bool) {
	others := slices.DeleteFunc(slices.Clone(p.on[node]), func(other int) bool { return !p.yields(other, i) })
	slices.SortStableFunc(others, func(a, b int) int {
		return nothing.with(p.views[a]).compare(nothing.with(p.views[b]))
	})
	sum = nothing
	for _, other := range others {
		victims, sum = append(victims, other), sum.with(p.views[other])
		if p.roomWithout(v, node, victims) >= k {
			return victims, sum, true
		}
	}
	return nil, sum, false
}

func (p *placer) wasOn(v *view, node int) bool {
	return slices.Contains(v.previous, p.nodes[node].Object.Name)
}

// fallBack places the jobs that found no room with fewer replicas, the most worthy first.
func (p *placer) fallBack() {
	slices.SortFunc(p.failed, p.compareWorth)
	for _, i := range p.failed {
		d := &p.views[i].decision
		for _, option := range d.descending() {
			if p.place(i, option, false) {
				break
			}
		}
		if p.placed[i] == nil {
			p.stayAsItWas(i)
		}
	}
}

// compareWorth orders jobs, the most worthy first.
func (p *placer) compareWorth(a, b int) int {
	return cmp.Or(cmp.Compare(p.views[b].job.Priority, p.views[a].job.Priority),
		cmp.Compare(p.views[b].decision.Weight, p.views[a].decision.Weight), cmp.Compare(a, b))
}

// stayAsItWas leaves a job where it was if that room is free: no job is better off if it stops.
func (p *placer) stayAsItWas(i int) {
	v := p.views[i]
	for option := range v.decision.Options {
		to := v.decision.Options[option]
		if v.current != waiting && to.Replicas == int(v.current) && to.Kind == v.kind && p.putBack(i, option) {
			return
		}
	}
}

// maxUpgrades bounds the upgrades with the capacity that is left.
const maxUpgrades = 64

// fill gives what is left to the jobs that gain the most by it.
func (p *placer) fill() {
	type upgrade struct {
		job, option int
		gain        float64
		// lack is 1 for a job whose tenant lacks something.
		lack int
	}
	var upgrades []upgrade
	lacking := p.lacking()
	for i, v := range p.views {
		lack := 0
		if lacking[v.tenant] > 0 {
			lack = 1
		}
		for option := 1; option < len(v.decision.Options); option++ {
			if gain := v.decision.Options[option].Value - v.decision.Options[p.options[i]].Value; gain > 1e-12 {
				upgrades = append(upgrades, upgrade{i, option, gain, lack})
			}
		}
	}
	slices.SortStableFunc(upgrades, func(a, b upgrade) int {
		return cmp.Or(cmp.Compare(b.lack, a.lack), cmp.Compare(p.views[b.job].job.Priority, p.views[a.job].job.Priority), cmp.Compare(b.gain, a.gain))
	})
	done := map[int]bool{}
	for _, u := range upgrades[:min(len(upgrades), maxUpgrades)] {
		if done[u.job] || !p.upgrade(u.job, u.option) {
			continue
		}
		done[u.job] = true
	}
}

// upgrade places a job with another option if there is room, else leaves it.
func (p *placer) upgrade(i, option int) bool {
	before, was := p.placed[i], p.options[i]
	if before != nil {
		p.lift(i)
	}
	if p.place(i, option, false) {
		return true
	}
	if before != nil {
		p.board.Retake(before)
		p.put(i, was, before)
	}
	return false
}

func distinct(nodes []string) []string {
	sorted := slices.Clone(nodes)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
