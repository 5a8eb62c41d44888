// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/internal/names"
)

// leaderLease is the name of the leader's Lease.
const leaderLease = "operator"

// stopAfter is how long after its last renewal a process ends: a second before others may take its Leases.
const stopAfter = sharding.LeaseDuration - time.Second

// lease is a stored Lease.
type lease struct{ shards.Lease }

// process is one process of the operator. It elects itself as package sharding does, and package shards decides.
type process struct {
	shards.Operator
	ahead time.Duration
	// views are what it knows of each job, by the numbers of the jobs.
	views []*operator
	// pasts are what it knows of deleted jobs, by the numbers of those that have their names. unaware are the numbers of jobs that it
	// does not know yet: it sees the deleted one.
	pasts     []*operator
	unaware   map[int]bool
	sightings shards.Sightings
	vacancies shards.Vacancies
	honoured  map[string]string
	// renewed is when it last renewed its Leases, read when it last read them, and asked when it last asked for a shard.
	renewed, read, asked time.Time
	// terms are the shards that it has taken, followed those whose pods it watches, and serves those that it reconciles.
	terms, followed, serves map[int]bool
	// isCut is set while it cannot reach the Leases, and isHung while it does nothing at all.
	isCut, isHung bool
	// leads is set while it is the leader, and mayAct once no operator of another number of shards holds any.
	leads, mayAct bool
	// scaler is its autoscaler; nil before it sizes a job. placer is its allocator; nil before its first round. nodes are what its cache has of the nodes.
	scaler *scaler
	placer *placer
	nodes  map[string]*corev1.Node
}

// runs reports whether a process reconciles a job.
func (p *process) runs(w *world) bool {
	if p.Count == 1 {
		return p.leads && p.mayAct
	}
	return p.serves[shardOf(w.job, p.Count)]
}

func (p *process) now(f *fleet) time.Time { return f.now.Add(p.ahead) }

// start starts a process with a number of shards.
func (f *fleet) start(count int, random *rand.Rand) {
	f.started++
	p := &process{
		Operator:  shards.Operator{Identity: fmt.Sprintf("operator-%d", f.started), Leader: leaderLease, Count: count},
		sightings: shards.Sightings{}, vacancies: shards.Vacancies{}, honoured: map[string]string{}, renewed: f.now,
		terms: map[int]bool{}, followed: map[int]bool{}, serves: map[int]bool{}, nodes: maps.Clone(f.nodes),
		pasts: make([]*operator, len(f.worlds)), unaware: map[int]bool{},
	}
	if f.clocks.areApart {
		p.ahead = anySkew(random)
	}
	for _, w := range f.worlds {
		var view *operator
		if w != nil {
			view = &operator{ahead: p.ahead}
			if count > 1 {
				view.shard = shards.Label(shardOf(w.job, count), count)
			}
			w.operator = view
			w.lag()
		}
		p.views = append(p.views, view)
	}
	f.seeGone(p)
	f.processes = append(f.processes, p)
	f.tell("%s of %d shards starts", p.Identity, count)
}

// stop stops a process. It finishes its reconciles, and then releases its Leases.
func (f *fleet) stop(p *process) {
	f.processes = slices.DeleteFunc(f.processes, func(other *process) bool { return other == p })
	f.tell("%s stops", p.Identity)
	for _, held := range f.leases {
		if held.Holder == p.Identity && !p.isCut {
			held.Holder = ""
		}
	}
}

// exit ends a process, whose Leases stay until they expire. Another one starts.
func (f *fleet) exit(p *process, why string, random *rand.Rand) {
	f.processes = slices.DeleteFunc(f.processes, func(other *process) bool { return other == p })
	f.tell("%s %s", p.Identity, why)
	f.start(p.Count, random)
}

// elapse makes processes renew their Leases. One that cannot ends before others may take them.
func (f *fleet) elapse() {
	for _, p := range slices.Clone(f.processes) {
		switch {
		case p.isHung:
		case !p.isCut:
			p.renewed = f.now
			for _, held := range f.leases {
				if held.Holder == p.Identity {
					held.Renewed = p.now(f)
				}
			}
		case f.now.Sub(p.renewed) > stopAfter && f.holdsAny(p):
			f.exit(p, "cannot renew its Leases", rand.New(rand.NewPCG(uint64(f.started), 0)))
		}
	}
}

func (f *fleet) holdsAny(p *process) bool { return p.leads || len(p.terms) > 0 }

// list returns all Leases.
func (f *fleet) list() []shards.Lease {
	var all []shards.Lease
	for _, name := range slices.Sorted(maps.Keys(f.leases)) {
		all = append(all, f.leases[name].Lease)
	}
	return all
}

func (f *fleet) outlineLeases() string {
	var text strings.Builder
	for _, each := range f.list() {
		fmt.Fprintf(&text, "%s by %q, %q; ", each.Name, each.Holder, each.Charter)
	}
	return text.String()
}

// take takes a Lease that has no holder, or still the one whose expiry the process has seen.
func (f *fleet) take(p *process, name string, free shards.Lease) bool {
	held := f.leases[name]
	if held == nil {
		held = &lease{shards.Lease{Name: name}}
		f.leases[name] = held
	}
	if held.Holder != "" && held.Holder != p.Identity && (held.Holder != free.Holder || !held.Renewed.Equal(free.Renewed)) {
		return false
	}
	held.Holder, held.Renewed, held.Duration = p.Identity, p.now(f), sharding.LeaseDuration
	f.tell("%s takes %s", p.Identity, name)
	return true
}

// tick makes a process read the Leases, and act on what it decides. Another process may do so before it writes.
func (f *fleet) tick(p *process, random *rand.Rand) {
	if p.isCut {
		if f.now.Sub(p.renewed) >= sharding.RenewDeadline {
			clear(p.serves)
		}
		return
	}
	all, now := f.list(), p.now(f)
	for i := range all {
		if all[i].Ask == p.honoured[all[i].Name] {
			all[i].Ask = ""
		}
	}
	live := p.sightings.Live(all, now)
	decision := p.Decide(all, live, now)
	take := p.Take(&decision, p.vacancies, now)
	p.read = now
	if others := f.others(p); len(others) > 0 && random.IntN(4) == 0 {
		f.tick(others[random.IntN(len(others))], random)
	}
	f.lead(p, shards.Find(all, leaderLease), shards.Find(live, leaderLease).Holder == "")
	if p.Count > 1 {
		for shard := range p.Count {
			f.follow(p, shard, &decision, all, slices.Contains(take, shard))
		}
	}
	if decision.AskFor >= 0 && now.Sub(p.asked) > 5*time.Second {
		p.asked = now
		f.leases[shards.LeaseName(leaderLease, decision.AskFor, p.Count)].Ask = shards.Ask(p.Identity, now)
		f.tell("%s asks for shard %d", p.Identity, decision.AskFor)
	}
}

// others returns the processes that can read the Leases meanwhile.
func (f *fleet) others(p *process) []*process {
	return slices.DeleteFunc(slices.Clone(f.processes), func(other *process) bool { return other == p || other.isHung || other.isCut })
}

// lead makes a process take the leader's Lease if it is free. The leader declares the number of shards until it may act.
func (f *fleet) lead(p *process, before shards.Lease, isFree bool) {
	if !p.leads && isFree {
		p.leads = f.take(p, leaderLease, before)
	}
	if !p.leads || p.mayAct {
		return
	}
	f.leases[leaderLease].Charter = shards.Charter(p.Count, p.Identity)
	all := f.list()
	p.mayAct = p.Decide(all, p.sightings.Live(all, p.now(f)), p.now(f)).Alone
	f.tell("%s declares %d shards, and may act: %v", p.Identity, p.Count, p.mayAct)
}

// follow does what a process has decided about a shard.
func (f *fleet) follow(p *process, shard int, decision *shards.Decision, all []shards.Lease, take bool) {
	name := shards.LeaseName(leaderLease, shard, p.Count)
	of := shards.Find(all, name)
	isHeld := decision.MayAct && slices.Contains(decision.Held, shard)
	switch {
	case slices.Contains(decision.GiveUp, shard) && p.terms[shard]:
		f.giveUp(p, shard, name)
		if decision.MayAct {
			p.honoured[name] = of.Ask
		}
	case !p.terms[shard] && (take || isHeld):
		p.terms[shard] = f.take(p, name, of)
	case isHeld && !p.serves[shard]:
		// The cache has the pods of the shard then.
		f.watch(p, shard)
		p.serves[shard] = true
		f.tell("%s reconciles shard %d of %d", p.Identity, shard, p.Count)
	case !isHeld && p.serves[shard]:
		delete(p.serves, shard)
		f.tell("%s pauses", p.Identity)
	case !p.terms[shard]:
		f.standBy(p, shard, of)
	}
}

// standBy makes a process watch the pods of a shard whose holder is silent, and forget those of a shard that another holds.
func (f *fleet) standBy(p *process, shard int, of shards.Lease) {
	switch {
	case p.sightings.Silent(of, p.now(f)):
		f.watch(p, shard)
	case of.Holder != "" && of.Holder != p.Identity:
		delete(p.followed, shard)
	}
}

// watch makes a process watch the pods of a shard. It lists them, and other events arrive at any time.
func (f *fleet) watch(p *process, shard int) {
	if p.followed[shard] {
		return
	}
	p.followed[shard] = true
	f.onAll(p, func(w *world) {
		if shardOf(w.job, p.Count) == shard {
			w.cache.pods = map[string]*corev1.Pod{}
			for name := range w.pods {
				w.hearOfPod(name)
			}
		}
	})
}

// giveUp makes a process release a shard, and forget what it knows of the shard's jobs.
func (f *fleet) giveUp(p *process, shard int, name string) {
	delete(p.terms, shard)
	delete(p.serves, shard)
	delete(p.followed, shard)
	if held := f.leases[name]; held.Holder == p.Identity {
		held.Holder = ""
	}
	f.tell("%s gives up shard %d of %d", p.Identity, shard, p.Count)
	for number, w := range f.worlds {
		if w != nil && shardOf(w.job, p.Count) == shard {
			before := p.views[number]
			p.views[number] = &operator{cache: before.cache, ahead: before.ahead, shard: before.shard}
		}
	}
}

// isOwnedByUnit reports whether a pod belongs to the job, or to another pod of it.
func isOwnedByUnit(pod *corev1.Pod, w *world) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.UID == w.job.UID || owner.Kind == "Pod" && names.RoleOf(pod) == names.ReplicaTypeDDPLearner
	})
}
