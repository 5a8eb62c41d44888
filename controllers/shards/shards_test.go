// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestJobsDivideEvenly(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 2, 3, 4, 8, Max} {
		const jobs = 16000
		of := make([]int, count)
		for i := range jobs {
			of[Of(types.NamespacedName{Namespace: fmt.Sprintf("team-%d", i%7), Name: fmt.Sprintf("job-%d", i)}, count)]++
		}
		for shard, has := range of {
			if fair := jobs / count; has < fair*85/100 || has > fair*115/100 {
				t.Errorf("shard %d of %d has %d jobs, want about %d", shard+1, count, has, fair)
			}
		}
	}
}

func TestTheShardOfAJobIsTheSameInEveryRelease(t *testing.T) {
	t.Parallel()
	want := []int{2, 2, 3, 1, 0, 0}
	var got []int
	for _, name := range []string{"cartpole", "pong", "atari", "dqn", "ppo", "sac"} {
		got = append(got, Of(types.NamespacedName{Namespace: "default", Name: name}, 4))
	}
	if !slices.Equal(got, want) {
		t.Errorf("shards are %v, want %v: two releases would both run a job while one replaces the other", got, want)
	}
}

const (
	leader = "operator"
	me     = "me"
)

func at(seconds int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC)
}

// held returns the Leases of shards, each with its holder, and the leader's Lease.
func held(declares string, holders ...string) []Lease {
	all := []Lease{{Name: leader, Holder: "chief", Charter: declares + " chief", Duration: time.Minute}}
	for shard, holder := range holders {
		all = append(all, Lease{Name: LeaseName(leader, shard, len(holders)), Holder: holder, Duration: time.Minute})
	}
	return all
}

func with(all []Lease, more ...Lease) []Lease { return append(all, more...) }

func change(all []Lease, name string, do func(*Lease)) []Lease {
	for i := range all {
		if all[i].Name == name {
			do(&all[i])
		}
	}
	return all
}

func TestAnOperatorActsOnItsShardsWhileTheLeaderDeclaresTheirNumber(t *testing.T) {
	t.Parallel()
	shardOf3 := Lease{Name: LeaseName(leader, 2, 3), Holder: "other", Duration: time.Minute}
	tests := map[string]struct {
		leases []Lease
		want   string
	}{
		"declared":                             {held("2", me, "other"), "acts on [0]"},
		"it holds both":                        {held("2", me, me), "acts on [0 1]"},
		"it holds none":                        {held("2", "other", "other"), "acts on [] asks for 1"},
		"no one holds one":                     {held("2", "", "other"), "acts on []"},
		"another number is declared":           {held("4", me, "other"), "gives up [0]"},
		"one shard is declared":                {held("1", me, me), "gives up [0 1]"},
		"a shard of another number is held":    {with(held("2", me, "other"), shardOf3), "waits for others"},
		"such a shard is free":                 {with(held("2", me, "other"), Lease{Name: shardOf3.Name}), "acts on [0]"},
		"the Lease of another program is held": {with(held("2", me, "other"), Lease{Name: "operator-shard", Holder: "x", Duration: time.Minute}), "acts on [0]"},
		"no leader was ever elected":           {held("2", me, "other")[1:], "waits"},
		"the leader declared nothing":          {change(held("2", me, "other"), leader, func(l *Lease) { l.Charter = "" }), "waits"},
		"the leader declares nonsense":         {change(held("2", me, "other"), leader, func(l *Lease) { l.Charter = "two chief" }), "waits"},
		"the leader's predecessor declared":    {change(held("2", me, "other"), leader, func(l *Lease) { l.Holder = "new" }), "waits"},
		"the leader left":                      {change(held("2", me, "other"), leader, func(l *Lease) { l.Holder = "" }), "acts on [0]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operator := Operator{Identity: me, Leader: leader, Count: 2}
			d := operator.Decide(tc.leases, Sightings{}.Live(tc.leases, at(0)), at(0))
			if got := describe(&d); got != tc.want {
				t.Errorf("it %s, want that it %s", got, tc.want)
			}
		})
	}
}

func describe(d *Decision) string {
	var words []string
	switch {
	case d.MayAct:
		words = append(words, fmt.Sprintf("acts on %v", d.Held))
	case len(d.GiveUp) == 0:
		words = append(words, "waits")
	}
	if !d.Alone {
		words = append(words, "for others")
	}
	if len(d.GiveUp) > 0 {
		words = append(words, fmt.Sprintf("gives up %v", d.GiveUp))
	}
	if d.AskFor >= 0 {
		words = append(words, fmt.Sprintf("asks for %d", d.AskFor))
	}
	return strings.Join(words, " ")
}

func TestAnOperatorGivesUpAShardForOneWithFewer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		holders []string
		ask     string
		want    []int
	}{
		"an idle one asks":               {[]string{me, me}, Ask("idle", at(0)), []int{1}},
		"one with one of four asks":      {[]string{me, me, me, "other"}, Ask("other", at(0)), []int{1}},
		"one with as many asks":          {[]string{me, me, "other", "other"}, Ask("other", at(0)), nil},
		"it would then have fewer":       {[]string{"other", me}, Ask("idle", at(0)), nil},
		"no one asks":                    {[]string{me, me}, "", nil},
		"the request is old":             {[]string{me, me}, Ask("idle", at(-61)), nil},
		"the request is from the future": {[]string{me, me}, Ask("idle", at(61)), nil},
		"the request is nonsense":        {[]string{me, me}, "please", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := len(tc.holders)
			all := change(held(strconv.Itoa(count), tc.holders...), LeaseName(leader, 1, count), func(l *Lease) { l.Ask = tc.ask })
			d := Operator{Identity: me, Leader: leader, Count: count}.Decide(all, Sightings{}.Live(all, at(0)), at(0))
			if !slices.Equal(d.GiveUp, tc.want) {
				t.Errorf("it gives up %v, want %v", d.GiveUp, tc.want)
			}
		})
	}
}

func TestALeaseIsLiveUntilItWasNotRenewedForItsDuration(t *testing.T) {
	t.Parallel()
	seen := Sightings{}
	lease := Lease{Name: "a", Holder: me, Renewed: at(1000), Duration: 10 * time.Second}
	steps := []struct {
		now    int
		lease  Lease
		isLive bool
	}{
		{0, lease, true},
		{10, lease, true},
		{11, lease, false},
		{12, Lease{Name: "a", Holder: me, Renewed: at(1012), Duration: lease.Duration}, true},
		{22, Lease{Name: "a", Holder: "next", Renewed: at(1012), Duration: lease.Duration}, true},
		{23, Lease{Name: "a", Renewed: at(1012), Duration: lease.Duration}, false},
	}
	for _, step := range steps {
		if live := seen.Live([]Lease{step.lease}, at(step.now)); (len(live) == 1) != step.isLive {
			t.Errorf("after %d s it is live: %v, want %v", step.now, len(live) == 1, step.isLive)
		}
	}
	if seen.Live(nil, at(30)); len(seen) > 0 {
		t.Error("a deleted Lease is remembered")
	}
}

func TestAnOperatorTakesFreeShards(t *testing.T) {
	t.Parallel()
	waited := Patience
	tests := map[string]struct {
		declares string
		holders  []string
		free     time.Duration
		want     int
	}{
		"it holds none":                                 {"4", []string{"", "", "", ""}, 0, 1},
		"it holds none, and others hold some":           {"4", []string{"other", "", "", "other"}, 0, 1},
		"it holds one, and one is free":                 {"2", []string{me, ""}, 0, 0},
		"it holds one, and one has been free":           {"2", []string{me, ""}, waited, 1},
		"it is the only one":                            {"4", []string{me, "", "", ""}, waited, 3},
		"it shares three with another":                  {"5", []string{me, "", "", "", "other"}, waited, 2},
		"it shares two with two others":                 {"5", []string{me, "", "second", "third", ""}, waited, 1},
		"none is free":                                  {"2", []string{me, "other"}, waited, 0},
		"the leader declares another number":            {"3", []string{me, ""}, waited, 0},
		"it holds none, and another number is declared": {"3", []string{"other", ""}, waited, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operator, since := Operator{Identity: me, Leader: leader, Count: len(tc.holders)}, Vacancies{}
			all := held(tc.declares, tc.holders...)
			d := operator.Decide(all, Sightings{}.Live(all, at(0)), at(0))
			since.see(d.Free, at(0))
			got := operator.Take(&d, since, at(0).Add(tc.free))
			if len(got) != tc.want {
				t.Errorf("it takes %v, want %d of them", got, tc.want)
			}
			for _, shard := range got {
				if tc.holders[shard] != "" {
					t.Errorf("it takes shard %d, which %s holds", shard, tc.holders[shard])
				}
			}
		})
	}
}

func TestAShardThatWasTakenMeanwhileIsLeftToOthersAgain(t *testing.T) {
	t.Parallel()
	operator, since := Operator{Identity: me, Leader: leader, Count: 2}, Vacancies{}
	for second, holder := range []string{"", "other", ""} {
		all := held("2", me, holder)
		d := operator.Decide(all, Sightings{}.Live(all, at(second)), at(second))
		if got := operator.Take(&d, since, at(second)); len(got) > 0 {
			t.Errorf("after %d s it takes %v at once", second, got)
		}
	}
}

func TestOperatorsWantDifferentShards(t *testing.T) {
	t.Parallel()
	wanted := map[int]bool{}
	for i := range 16 {
		operator := Operator{Identity: fmt.Sprintf("operator-%d", i), Leader: leader, Count: 4}
		d := Decision{MayAct: true, Free: []int{0, 1, 2, 3}}
		for _, shard := range operator.Take(&d, Vacancies{}, at(0)) {
			wanted[shard] = true
		}
	}
	if len(wanted) != 4 {
		t.Errorf("16 operators want shards %v, want that they begin at all of 4", wanted)
	}
}
