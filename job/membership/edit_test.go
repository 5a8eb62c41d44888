// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestGrow(t *testing.T) {
	for name, tc := range map[string]struct {
		before   string
		demand   membership.Demand
		suffixes []string
		want     []string
	}{
		"collectors are named after the job and their role": {
			demand: membership.Demand{Task: collector, Replicas: 2},
			want:   []string{"cartpole-collector-00001", "cartpole-collector-00002"},
		},
		"a learner of several GPUs is named as an aggregator": {
			demand: membership.Demand{Task: learner, Replicas: 1, DDPGPUs: []int32{2}},
			want:   []string{"cartpole-aggregator-00001"},
		},
		"a name that another member has is not given again": {
			before:   "c",
			demand:   membership.Demand{Task: collector, Replicas: 2},
			suffixes: []string{"00001", "00002", "00002", "00003"},
			want:     []string{"cartpole-collector-00002", "cartpole-collector-00003"},
		},
		"nothing asked for adds nothing": {
			before: "cl",
			demand: membership.Demand{Task: collector},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := members(t, tc.before)
			random := counting()
			if tc.suffixes != nil {
				random = func(int) string {
					next := tc.suffixes[0]
					tc.suffixes = tc.suffixes[1:]
					return next
				}
			}
			added := apply(t, grow(random, tc.demand), spec)
			expect.Equal(t, "added", tc.want, podNames(added))
			expect.Equal(t, "list", append(podNames(members(t, tc.before).Members), tc.want...), podNames(spec.Members))
		})
	}
}

func TestGrowRefusesMoreMembersThanAJobMayHave(t *testing.T) {
	spec := members(t, "c")
	demand := membership.Demand{Task: collector, Replicas: membership.MaxMembers}
	if _, err := grow(counting(), demand).Apply(spec, &v2alpha1.MembershipStatus{}); err == nil {
		t.Fatal("want an error")
	}
	expect.Equal(t, "result", 1, len(spec.Members))
}

func TestTheFirstGrowOfARestartedCoordinatorAddsWhatIsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		before string
		want   []string
	}{
		"an empty list is filled":                 {want: []string{"cartpole-collector-00001", "cartpole-collector-00002"}},
		"only what is missing is added":           {before: "cl", want: []string{"cartpole-collector-00001", "cartpole-collector-00003"}},
		"more than asked for is returned whole":   {before: "ccc", want: []string{"cartpole-collector-00001", "cartpole-collector-00002", "cartpole-collector-00003"}},
		"exactly what is asked for is left as is": {before: "lcc", want: []string{"cartpole-collector-00002", "cartpole-collector-00003"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := members(t, tc.before)
			random := counting()
			for range tc.before {
				random(5)
			}
			spec.CoordinatorInstance = "uid/0"
			edit := grow(random, membership.Demand{Task: collector, Replicas: 2})
			edit.Coordinator = "uid/1"
			got := apply(t, edit, spec)
			expect.Equal(t, "members", tc.want, podNames(got))
			listed := slices.DeleteFunc(slices.Clone(spec.Members), func(member v2alpha1.Member) bool { return member.Task != collector })
			expect.Equal(t, "list", tc.want, podNames(listed))
		})
	}
}

func TestShrink(t *testing.T) {
	for name, tc := range map[string]struct {
		before               string
		collectors, learners int32
		want                 []string
		left                 []string
	}{
		"the newest collectors go": {
			before: "clcc", collectors: 2,
			want: []string{"cartpole-collector-00004", "cartpole-collector-00003"},
			left: []string{"cartpole-collector-00001", "cartpole-learner-00002"},
		},
		"plain learners go before newer units": {
			before: "lulu", learners: 3,
			want: []string{"cartpole-learner-00003", "cartpole-learner-00001", "cartpole-aggregator-00004"},
			left: []string{"cartpole-aggregator-00002"},
		},
		"units go where there is no plain learner": {
			before: "uc", learners: 1,
			want: []string{"cartpole-aggregator-00001"},
			left: []string{"cartpole-collector-00002"},
		},
		"more than there are takes all": {
			before: "cl", collectors: 9,
			want: []string{"cartpole-collector-00001"},
			left: []string{"cartpole-learner-00002"},
		},
		"none asked for takes none": {
			before: "c",
			left:   []string{"cartpole-collector-00001"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := members(t, tc.before)
			edit := membership.Shrink{Job: job, Collectors: tc.collectors, Learners: tc.learners}
			expect.Equal(t, "removed", tc.want, podNames(apply(t, edit, spec)))
			expect.Equal(t, "left", tc.left, podNames(spec.Members))
		})
	}
}

func TestReplace(t *testing.T) {
	const unit = "cartpole-aggregator-00003"
	for name, tc := range map[string]struct {
		pods []string
		want []int32 // reports of each member of "clu"
	}{
		"a name counts once however often it is repeated": {
			pods: []string{"cartpole-collector-00001", "cartpole-collector-00001"},
			want: []int32{1, 0, 0},
		},
		"an aggregator replaces its unit": {
			pods: []string{unit},
			want: []int32{0, 0, 1},
		},
		"a DDP learner replaces its unit": {
			pods: []string{membership.DDPPodName(job, unit, 1)},
			want: []int32{0, 0, 1},
		},
		"an aggregator and its DDP learners replace the unit once": {
			pods: []string{membership.DDPPodName(job, unit, 0), unit, membership.DDPPodName(job, unit, 1)},
			want: []int32{0, 0, 1},
		},
		"a name that the job's replicas may have had is left alone": {
			pods: []string{"cartpole-collector-zzzzz", "cartpole-ddp-learner-zzzzz", "cartpole-learner-00002"},
			want: []int32{0, 1, 0},
		},
		"nothing reported changes nothing": {
			want: []int32{0, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := members(t, "clu")
			replaced := apply(t, membership.Replace{Job: job, Pods: tc.pods}, spec)
			var got []int32
			changed := 0
			for i := range spec.Members {
				got = append(got, spec.Members[i].FailureReports)
				changed += int(spec.Members[i].FailureReports)
			}
			expect.Equal(t, "reports", tc.want, got)
			expect.Equal(t, "returned", changed, len(replaced))
		})
	}
}

func TestReplaceRefusesForeignNamesWhole(t *testing.T) {
	for name, pod := range map[string]string{
		"the coordinator":                 "cartpole-coordinator",
		"another job's replica":           "pong-collector-00001",
		"a suffix of another length":      "cartpole-collector-0001",
		"a job whose name begins alike":   "cartpole-2-collector-00001",
		"a name that is none of anything": "x",
	} {
		t.Run(name, func(t *testing.T) {
			spec := members(t, "c")
			edit := membership.Replace{Job: job, Pods: []string{"cartpole-collector-00001", pod}}
			_, err := edit.Apply(spec, &v2alpha1.MembershipStatus{})
			var foreign *membership.ForeignNameError
			if !errors.As(err, &foreign) || foreign.Name != pod {
				t.Fatalf("got error %v, want a ForeignNameError of %q", err, pod)
			}
			expect.Equal(t, "a refused request changed the list", 0, spec.Members[0].FailureReports)
		})
	}
}

func TestReportsAndLossesGiveNewNamesEachTime(t *testing.T) {
	spec := members(t, "u")
	status := &v2alpha1.MembershipStatus{Slots: []v2alpha1.SlotStatus{{Slot: spec.Members[0].Slot}}}
	seen := map[string]bool{}
	for round := range 20 {
		pod := membership.PodName(job, &spec.Members[0], membership.Losses(status, spec.Members[0].Slot))
		for _, name := range []string{pod, membership.DDPPodName(job, pod, 0), membership.DDPPodName(job, pod, 1)} {
			if seen[name] {
				t.Fatalf("round %d gives the name %s again", round, name)
			}
			if !membership.IsReplicaName(job, name) {
				t.Fatalf("%s has not the form of the job's names", name)
			}
			seen[name] = true
		}
		if round%3 == 0 {
			status.Slots[0].Losses++
			continue
		}
		if _, err := (membership.Replace{Job: job, Pods: []string{pod}}).Apply(spec, status); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGrowOfACoordinatorOrOfAUser(t *testing.T) {
	demand := membership.Demand{Task: collector, Replicas: 2}
	for name, tc := range map[string]struct {
		before, by, after string
		members           int
		retained          int
	}{
		"the first request of a coordinator adds":           {"", "uid/0", "uid/0", 4, 1},
		"a further request of the same coordinator adds":    {"uid/0", "uid/0", "uid/0", 4, 1},
		"a restarted coordinator repeats and forgets":       {"uid/0", "uid/1", "uid/1", 2, 0},
		"a user adds and leaves the coordinator's requests": {"uid/0", "", "uid/0", 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			random := counting()
			spec := &v2alpha1.MembershipSpec{CoordinatorInstance: tc.before, RetainedPods: []v2alpha1.RetainedPod{{PodName: "old"}}}
			apply(t, grow(random, demand), spec)
			edit := grow(random, demand)
			edit.Coordinator = tc.by
			apply(t, edit, spec)
			if len(spec.Members) != tc.members || spec.CoordinatorInstance != tc.after || len(spec.RetainedPods) != tc.retained {
				t.Errorf("got %d members, instance %q, %d retained pods, want %+v", len(spec.Members), spec.CoordinatorInstance, len(spec.RetainedPods), tc)
			}
		})
	}
}

func TestGrowIsBoundedByTheJobsLimit(t *testing.T) {
	edit := grow(counting(), membership.Demand{Task: collector, Replicas: 2})
	edit.MaxMembers = 2
	spec := members(t, "c")
	const want = "replicas: the job would have 3 replicas, more than the 2 that one may have"
	if _, err := edit.Apply(spec, &v2alpha1.MembershipStatus{}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAnAggregatorIsAnsweredWithDDPLearnersAndACoordinatorWithAggregators(t *testing.T) {
	for by, want := range map[names.ReplicaType]int{names.ReplicaTypeCoordinator: 1, names.ReplicaTypeAggregator: 10} {
		spec, status := members(t, "u"), &v2alpha1.MembershipStatus{}
		answer, err := membership.Replace{Job: job, By: by, Pods: []string{"cartpole-aggregator-00001"}}.Apply(spec, status)
		expect.NoError(t, err)
		if got := answer.URLs(place(), status); len(got.Learners) != want || got.Collectors == nil {
			t.Errorf("%s is answered with %v, want %d learners and an empty list of collectors", by, got, want)
		}
	}
}

func TestAnEditOfTheSameListHasTheSameResult(t *testing.T) {
	for name, edit := range map[string]func() membership.Edit{
		"grow": func() membership.Edit {
			return grow(counting(), membership.Demand{Task: learner, Replicas: 2, DDPGPUs: []int32{8, 2}})
		},
		"shrink":  func() membership.Edit { return membership.Shrink{Job: job, Collectors: 1, Learners: 2} },
		"replace": func() membership.Edit { return membership.Replace{Job: job, Pods: []string{"cartpole-learner-00002"}} },
	} {
		first, again := members(t, "cluc"), members(t, "cluc")
		if diff := cmp.Diff(apply(t, edit(), first), apply(t, edit(), again)); diff != "" {
			t.Errorf("%s: answers (-first +again):\n%s", name, diff)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("%s: lists (-first +again):\n%s", name, diff)
		}
	}
}

func TestARatioRuleLetsOnlyTheFirstRequestSetTheNumberOfCollectors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, by string
		demand     membership.Demand
		members    int
		refused    bool
	}{
		"the first request of a coordinator adds":           {"", "uid/0", membership.Demand{Task: collector, Replicas: 3}, 5, false},
		"a further request is refused":                      {"uid/0", "uid/0", membership.Demand{Task: collector, Replicas: 1}, 2, true},
		"a further request for no collectors is granted":    {"uid/0", "uid/0", membership.Demand{Task: learner, Replicas: 1}, 3, false},
		"a restarted coordinator gets those that there are": {"uid/0", "uid/1", membership.Demand{Task: collector, Replicas: 3}, 2, false},
		"a user is refused":                                 {"uid/0", "", membership.Demand{Task: collector, Replicas: 1}, 2, true},
		"a user is refused before the first request":        {"", "", membership.Demand{Task: collector, Replicas: 1}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := counting()
			spec := &v2alpha1.MembershipSpec{}
			apply(t, grow(random, membership.Demand{Task: collector, Replicas: 2}), spec)
			spec.CoordinatorInstance = tc.before
			edit := grow(random, tc.demand)
			edit.Coordinator, edit.IsSizedByRule = tc.by, true
			answer, err := edit.Apply(spec, &v2alpha1.MembershipStatus{})
			if tc.refused != errors.Is(err, membership.ErrSizedByRule) || !tc.refused && err != nil {
				t.Fatalf("got error %v", err)
			}
			expect.Equal(t, "members", tc.members, len(spec.Members))
			if tc.by == "uid/1" {
				expect.Equal(t, "answer", podNames(spec.Members), podNames(answer.Members))
			}
		})
	}
	_, err := membership.Shrink{Job: job, Collectors: 1, IsSizedByRule: true}.Apply(members(t, "cc"), &v2alpha1.MembershipStatus{})
	expect.Equal(t, "removal of a collector is refused", true, errors.Is(err, membership.ErrSizedByRule))
	if _, err := (membership.Shrink{Job: job, Learners: 1, IsSizedByRule: true}).Apply(members(t, "cl"), &v2alpha1.MembershipStatus{}); err != nil {
		t.Error(err)
	}
}

func TestTheOperatorResizesATaskAsItsNewestMember(t *testing.T) {
	t.Parallel()
	random, now := counting(), time.Unix(1_700_000_000, 0)
	spec := &v2alpha1.MembershipSpec{CoordinatorInstance: "uid/0"}
	apply(t, grow(random, membership.Demand{Task: learner, Replicas: 1}, membership.Demand{
		Task: collector, Replicas: 2, Resources: v2alpha1.MemberResources{CPUs: quantity("2")},
	}), spec)
	resize := func(count int32) {
		t.Helper()
		edit := membership.Resize{Namespace: "default", Job: job, Replicas: map[v2alpha1.TaskType]int32{collector: count}, ID: "resize", MaxMembers: 5, Random: random}
		expect.NoError(t, edit.Apply(spec, &v2alpha1.MembershipStatus{}, now))
	}
	resize(4)
	expect.Equal(t, "collectors", int32(4), membership.Count(spec, collector))
	expect.Equal(t, "CPU of a new one", "2", spec.Members[4].Resources.CPUs.String())
	expect.Equal(t, "coordinator", "uid/0", spec.CoordinatorInstance)
	newest := podNames(spec.Members[2:])
	resize(1)
	expect.Equal(t, "learners", int32(1), membership.Count(spec, learner))
	expect.Equal(t, "collectors", int32(1), membership.Count(spec, collector))
	var recorded []string
	for _, url := range spec.Requests[len(spec.Requests)-1].Collectors {
		recorded = append(recorded, names.PodOfURL(url))
	}
	slices.Reverse(recorded)
	expect.Equal(t, "removed pods, which drain", newest, recorded)
	resize(3)
	named := membership.Resize{Job: job, Remove: []string{podNames(spec.Members)[2], "gone"}, ID: "named", MaxMembers: 5, Random: random}
	expect.Equal(t, "recorded before", false, named.IsRecorded(spec))
	left := slices.Delete(podNames(spec.Members), 2, 3)
	expect.NoError(t, named.Apply(spec, &v2alpha1.MembershipStatus{}, now))
	expect.Equal(t, "members without the named one", left, podNames(spec.Members))
	expect.Equal(t, "recorded", true, named.IsRecorded(spec))
	if err := (membership.Resize{Job: job, Replicas: map[v2alpha1.TaskType]int32{collector: 9}, MaxMembers: 5, Random: random}).Apply(spec, &v2alpha1.MembershipStatus{}, now); err == nil {
		t.Error("more members than the job may have")
	}
}
