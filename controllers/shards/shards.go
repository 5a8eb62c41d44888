// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shards divides jobs among operators: which shard a job belongs to, and what an operator does
// about shards as their Leases say who holds them.
package shards

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Max is the maximum number of shards. Every operator reads every Lease each second.
const Max = 16

// Of returns the shard of a job, from 0. A job keeps its shard as long as the number of shards does.
func Of(job types.NamespacedName, count int) int {
	hash := fnv.New64a()
	// A hash takes every byte.
	_, _ = hash.Write([]byte(job.String()))
	sum := hash.Sum64()
	// The low bits of names that end alike differ little.
	return int((sum ^ sum>>32) % uint64(count)) //nolint:gosec // the remainder is less than Max
}

// LeaseName returns the name of the Lease of a shard, given that of the leader's Lease. It contains the
// number of shards, so an operator sees operators that divide jobs in another way.
func LeaseName(leader string, shard, count int) string {
	return leader + "-shard-" + Label(shard, count)
}

// Label returns the value of the label of a shard's pods. Like the name of its Lease, it contains the number of shards.
func Label(shard, count int) string { return fmt.Sprintf("%d-of-%d", shard+1, count) }

// Lease is what a Lease says.
type Lease struct {
	Name, Holder string
	// Renewed changes with each renewal, and Duration is how long one lasts.
	Renewed  time.Time
	Duration time.Duration
	// Charter is what the leader declares, and Ask is what another operator asks the holder for.
	Charter, Ask string
}

// Find returns the Lease with a name; an empty one if there is none.
func Find(all []Lease, name string) Lease {
	if at := slices.IndexFunc(all, func(lease Lease) bool { return lease.Name == name }); at >= 0 {
		return all[at]
	}
	return Lease{}
}

// Charter returns the declaration of a leader that jobs have a number of shards.
func Charter(count int, leader string) string { return strconv.Itoa(count) + " " + leader }

// Ask returns the request of an operator for a shard at a time.
func Ask(operator string, now time.Time) string {
	return now.UTC().Format(time.RFC3339) + " " + operator
}

// askTTL is how long a request is valid.
const askTTL = time.Minute

// suspicion is how long after the last renewal others prepare for the loss of the holder.
const suspicion = 4 * time.Second

// Sightings remember when the Leases were last seen to change. Clocks of other machines do not matter.
type Sightings map[string]sighting

type sighting struct {
	lease Lease
	at    time.Time
}

// Live returns the Leases that are held and have not expired, given all that exist.
func (s Sightings) Live(all []Lease, now time.Time) []Lease {
	var live []Lease
	for name := range s {
		if !slices.ContainsFunc(all, func(lease Lease) bool { return lease.Name == name }) {
			delete(s, name)
		}
	}
	for _, lease := range all {
		last, seen := s[lease.Name]
		if !seen || last.lease.Holder != lease.Holder || !last.lease.Renewed.Equal(lease.Renewed) {
			s[lease.Name] = sighting{lease: lease, at: now}
		}
		if lease.Holder != "" && now.Sub(s[lease.Name].at) <= lease.Duration {
			live = append(live, lease)
		}
	}
	return live
}

// Silent reports whether a Lease that an operator holds was not renewed for some time, so that it may expire.
func (s Sightings) Silent(lease Lease, now time.Time) bool {
	last, seen := s[lease.Name]
	return seen && lease.Holder != "" && now.Sub(last.at) > suspicion
}

// Operator is one operator, and how it divides jobs.
type Operator struct {
	// Identity names the operator in Leases.
	Identity string
	// Leader is the name of the leader's Lease, and Count the number of shards.
	Leader string
	Count  int
}

// Decision is what an operator does about shards.
type Decision struct {
	// MayAct is set while the leader declares the same number of shards, and no operator holds a shard of
	// another number.
	MayAct bool
	// Alone is set if no operator holds a shard of another number.
	Alone bool
	// Held are the shards whose Leases name the operator.
	Held []int
	// GiveUp are held shards that the operator releases.
	GiveUp []int
	// AskFor is a shard that the operator asks its holder for; -1 for none.
	AskFor int
	// Free are the shards that no operator holds, and Others is how many other operators hold shards.
	Free   []int
	Others int
}

// Decide returns what an operator does, given all Leases and those that are live. Both are of one list, so
// they are of one time.
func (o Operator) Decide(all, live []Lease, now time.Time) Decision {
	d := Decision{Alone: true, AskFor: -1}
	holders := make([]string, o.Count)
	var asks = map[int]string{}
	for _, lease := range live {
		shard, count, isShard := o.parse(lease.Name)
		switch {
		case !isShard:
		case count != o.Count:
			d.Alone = false
		default:
			holders[shard], asks[shard] = lease.Holder, lease.Ask
			if lease.Holder == o.Identity {
				d.Held = append(d.Held, shard)
			}
		}
	}
	slices.Sort(d.Held)
	d.Free, d.Others = o.count(holders)
	declared := o.declared(all)
	d.MayAct = d.Alone && declared == o.Count
	switch {
	case declared != 0 && declared != o.Count:
		d.GiveUp = d.Held
	case d.MayAct:
		d.GiveUp = o.giveUp(holders, asks, now)
		d.AskFor = o.askFor(holders)
	}
	return d
}

// count returns the shards without a holder, and how many other operators hold shards.
func (o Operator) count(holders []string) (free []int, others int) {
	seen := map[string]bool{"": true, o.Identity: true}
	for shard, holder := range holders {
		if holder == "" {
			free = append(free, shard)
		}
		if !seen[holder] {
			seen[holder] = true
			others++
		}
	}
	return free, others
}

// parse reads the name of a Lease.
func (o Operator) parse(name string) (shard, count int, isShard bool) {
	rest, isShard := strings.CutPrefix(name, o.Leader+"-shard-")
	if !isShard {
		return 0, 0, false
	}
	if read, err := fmt.Sscanf(rest, "%d-of-%d", &shard, &count); err != nil || read != 2 || shard < 1 || shard > count {
		return 0, 0, false
	}
	return shard - 1, count, true
}

// declared returns the number of shards that the leader declares; 0 if it is not known. The declaration of
// a leader that released its Lease holds until another one has it.
func (o Operator) declared(all []Lease) int {
	of := Find(all, o.Leader)
	text, by, _ := strings.Cut(of.Charter, " ")
	count, err := strconv.Atoi(text)
	if err != nil || of.Holder != "" && of.Holder != by {
		return 0
	}
	return count
}

// giveUp returns at most one held shard: one that an operator with fewer shards asks for.
func (o Operator) giveUp(holders []string, asks map[int]string, now time.Time) []int {
	for shard, holder := range holders {
		at, by, _ := strings.Cut(asks[shard], " ")
		asked, err := time.Parse(time.RFC3339, at)
		if err != nil || holder != o.Identity || now.Sub(asked).Abs() > askTTL {
			continue
		}
		if number(holders, o.Identity) >= number(holders, by)+2 {
			return []int{shard}
		}
	}
	return nil
}

// askFor returns the last shard of the operator with the most, if it has at least two more than this one;
// otherwise -1.
func (o Operator) askFor(holders []string) int {
	found, most := -1, number(holders, o.Identity)+2
	for shard, holder := range holders {
		if holder == "" {
			// It is free to take.
			return -1
		}
		if has := number(holders, holder); has >= most {
			found, most = shard, has
		}
	}
	return found
}

func number(holders []string, of string) int {
	count := 0
	for _, holder := range holders {
		if holder == of {
			count++
		}
	}
	return count
}

// Patience is how long an operator that holds a shard leaves a free one to those that hold none. It is a little less than the
// interval at which the Leases are read: the operator takes the shard at the read after the one that found it free, also if the
// API server answers that one faster, and every other operator has read the Leases once between the two. That is for balance
// only. One that holds none and comes too late, because it is slow or the holder reads early after it has taken another
// Lease, asks the holder for a shard, which has two then.
const Patience = 800 * time.Millisecond

// Vacancies remember since when shards are free.
type Vacancies map[int]time.Time

// see records which shards are free.
func (v Vacancies) see(free []int, now time.Time) {
	for shard := range v {
		if !slices.Contains(free, shard) {
			delete(v, shard)
		}
	}
	for _, shard := range free {
		if _, isKnown := v[shard]; !isKnown {
			v[shard] = now
		}
	}
}

// Take returns the free shards that the operator takes. Without a shard it takes one at once. With some it leaves a free one to
// others first, and then takes its part.
func (o Operator) Take(d *Decision, since Vacancies, now time.Time) []int {
	since.see(d.Free, now)
	if !d.MayAct || len(d.Free) == 0 {
		return nil
	}
	if len(d.Held) == 0 {
		return o.choose(d.Free, 1)
	}
	var left []int
	for _, shard := range d.Free {
		if now.Sub(since[shard]) >= Patience {
			left = append(left, shard)
		}
	}
	return o.choose(left, (len(left)+d.Others)/(d.Others+1))
}

// choose returns some of the shards. Operators begin at different ones, so they seldom want the same.
func (o Operator) choose(of []int, some int) []int {
	if len(of) == 0 {
		return nil
	}
	hash := fnv.New32a()
	// A hash takes every byte.
	_, _ = hash.Write([]byte(o.Identity))
	from := int(hash.Sum32() % uint32(len(of))) //nolint:gosec // there are at most Max shards
	return slices.Concat(of[from:], of[:from])[:some]
}
