// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"cmp"
	"slices"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
)

// contender is a job that competes for the capacity of a pool.
type contender struct {
	*view
	of Job
}

// tenant is a tenant while a pool is divided. Amounts are in units of each type of devices.
type tenant struct {
	weight int
	jobs   []contender
	// claims are what its jobs may use of each type, all of them together at most most, and has is what they have.
	claims, has []int
	most        int
	// starves is how long its jobs have waited by how long they may, of the job that has waited longest.
	starves float64
	// parts are its parts, served those for which its jobs were decided last, and used what these take; both nil before.
	parts, served, used []int
}

// maxTurns bounds how often what tenants cannot use is divided again. What is left then goes to single jobs.
const maxTurns = 4

// divide sets the decisions of jobs by the shares of their tenants. The jobs of a tenant compete for its part of each
// type of devices. What they cannot use is divided again among the tenants that can.
func (p *Policy) divide(round *allocation.Round, all []contender, capacities []int) {
	tenants := p.tenantsOf(round, all, len(capacities))
	if len(tenants) == 1 {
		p.serve(all, capacities)
		return
	}
	for range maxTurns {
		part(tenants, capacities)
		lends := false
		for _, t := range tenants {
			p.serveTenant(t)
			lends = t.lend() || lends
		}
		if !lends {
			break
		}
	}
	lendRest(all, capacities)
}

// part sets the parts of tenants. What a tenant has of one type counts for its share of the others, so sweeps over the types
// find the parts.
func part(tenants []*tenant, capacities []int) {
	turns := sweeps
	if len(capacities) == 1 {
		turns = 1
	}
	for range turns {
		for kind, capacity := range capacities {
			claims := make([]shares.Claim, len(tenants))
			for i, t := range tenants {
				elsewhere := -t.parts[kind]
				for _, part := range t.parts {
					elsewhere += part
				}
				claims[i] = shares.Claim{Weight: t.weight, Has: elsewhere, Wants: max(min(t.claims[kind], t.most-elsewhere), 0)}
			}
			for i, part := range shares.Divide(capacity, claims) {
				tenants[i].parts[kind] = part
			}
		}
	}
}

// tenantsOf returns the tenants of jobs, in the order of their first ones. Those with jobs that starve come first: what is
// indivisible is theirs, so that more tenants than there are GPUs take turns.
func (p *Policy) tenantsOf(round *allocation.Round, all []contender, kinds int) []*tenant {
	var tenants []*tenant
	byName := map[string]*tenant{}
	for _, c := range all {
		name := round.TenantOf(c.job)
		t := byName[name]
		if t == nil {
			t = &tenant{weight: round.Tenants.Weight(name), claims: make([]int, kinds), has: make([]int, kinds), parts: make([]int, kinds)}
			byName[name] = t
			tenants = append(tenants, t)
		}
		t.jobs, c.tenant = append(t.jobs, c), t
		p.claim(t, &c.of)
		t.starves = max(t.starves, c.of.Starves)
	}
	slices.SortStableFunc(tenants, func(a, b *tenant) int { return cmp.Compare(starvation(b.starves), starvation(a.starves)) })
	for _, t := range tenants {
		// The parts begin with what the tenants have, so that they keep their types if that is fair.
		copy(t.parts, t.has)
	}
	return tenants
}

// claim adds what a job has, and what the most valuable of its options on each type takes.
func (p *Policy) claim(t *tenant, job *Job) {
	wants, most := make([]int, len(t.claims)), make([]float64, len(t.claims))
	// The order of a job's options does not depend on its weight.
	for _, option := range job.options(1, &p.settings)[1:] {
		if option.Value > most[option.Kind] {
			wants[option.Kind], most[option.Kind] = option.Cost, option.Value
		}
		if option.Replicas == job.Current && option.Kind == job.Kind {
			t.has[option.Kind] += option.Cost
		}
	}
	for kind, cost := range wants {
		t.claims[kind] += cost
	}
	t.most += slices.Max(wants)
}

// serveTenant sets the decisions of a tenant's jobs if its parts have grown. If it has more than its part, it has
// borrowed, and its jobs shrink before any of them stops.
func (p *Policy) serveTenant(t *tenant) {
	grows := t.served == nil
	for kind := range t.served {
		grows = grows || t.parts[kind] > t.served[kind]
	}
	if !grows {
		return
	}
	for i := range t.jobs {
		job := &t.jobs[i].of
		job.Stays = job.Current != waiting && t.has[job.Kind] > t.parts[job.Kind]
	}
	left := slices.Clone(t.parts)
	p.serve(t.jobs, left)
	t.served, t.used = slices.Clone(t.parts), slices.Clone(t.parts)
	for kind := range left {
		t.used[kind] -= left[kind]
	}
}

// lend limits the claims to what the jobs use of a part that they cannot use up. It reports whether that leaves anything to
// other tenants.
func (t *tenant) lend() bool {
	lends := false
	for kind := range t.parts {
		if t.used[kind] < t.parts[kind] {
			t.claims[kind], lends = t.used[kind], true
		}
	}
	return lends
}

// lendRest gives what all tenants leave to single jobs: by priority, and then to those that gain the most.
func lendRest(all []contender, capacities []int) {
	left := slices.Clone(capacities)
	for _, c := range all {
		left[c.decision.Chosen().Kind] -= c.decision.Chosen().Cost
	}
	for begin := 0; begin < len(all) && slices.Max(left) > 0; {
		end := begin
		var options [][]Option
		var chosen []int
		for end < len(all) && all[end].job.Priority == all[begin].job.Priority {
			options, chosen = append(options, all[end].decision.Options), append(chosen, all[end].decision.Option)
			end++
		}
		for i, option := range fill(options, chosen, left) {
			all[begin+i].decision.Option = option
		}
		begin = end
	}
}

// lacking returns how much less each tenant has than was decided, because jobs of it found no place. Its jobs come first
// where others have left something.
func (p *placer) lacking() map[*tenant]int {
	lack := map[*tenant]int{}
	for i, v := range p.views {
		if v.tenant != nil {
			lack[v.tenant] += v.decision.Chosen().Cost - p.costOf(i)
		}
	}
	return lack
}

// costOf returns what a job takes where it is placed.
func (p *placer) costOf(i int) int { return p.views[i].decision.Options[p.options[i]].Cost }
