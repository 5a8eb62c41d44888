// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import "slices"

// startWaiting places the jobs that have no place where the nodes have room for them all the same. The choice knows the
// capacity as one number: jobs that take most of different resources fit together although their shares add up to more.
func (p *placer) startWaiting() {
	var jobs []int
	for i, v := range p.views {
		if p.placed[i] == nil && len(v.decision.Options) > 1 {
			jobs = append(jobs, i)
		}
	}
	slices.SortFunc(jobs, p.compareWorth)
	rooms, lack := map[terrainKey]int32{}, p.lacking()
	for _, onlyLacking := range []bool{true, false} {
		for _, i := range jobs {
			tenant := p.views[i].tenant
			if p.placed[i] != nil || onlyLacking && lack[tenant] <= 0 || !p.start(i, rooms) {
				continue
			}
			clear(rooms)
			lack[tenant] -= p.costOf(i)
		}
	}
}

// start leaves a job where it was or places it with the most valuable option that there is room for.
func (p *placer) start(i int, rooms map[terrainKey]int32) bool {
	v := p.views[i]
	if p.stayAsItWas(i); p.placed[i] != nil {
		return true
	}
	if v.stay != nil && len(v.job.Ended) > 0 {
		return false
	}
	options := slices.DeleteFunc(v.decision.byValue(), func(option int) bool { return !p.mayFit(i, option, rooms) })
	if slices.ContainsFunc(options, func(option int) bool { return p.place(i, option, false) }) {
		return true
	}
	// The least replicas run on the rests of several nodes, too.
	slices.Reverse(options)
	return v.isSimple() && slices.ContainsFunc(options, func(option int) bool {
		return p.placeMixed(i, option, int32(v.decision.Options[option].Replicas))
	})
}

// mayFit reports whether all nodes together have the room of an option. Jobs of equal requirements share the rooms.
func (p *placer) mayFit(i, option int, rooms map[terrainKey]int32) bool {
	to := &p.views[i].decision.Options[option]
	v := p.views[i].on(to.Kind)
	if !v.isElastic() || len(v.job.Excluded) > 0 {
		return true
	}
	key := terrainKey{v.elastic().Key(), to.Kind}
	room, known := rooms[key]
	if !known {
		for node := range p.nodes {
			room = min(room+p.room(v, node), maxRoom)
		}
		rooms[key] = room
	}
	return room >= int32(to.Replicas)
}
