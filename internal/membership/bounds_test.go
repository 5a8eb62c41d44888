// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

func placeOfJob() Place {
	return Place{Namespace: "space", Job: "job", Ports: func(string, names.ReplicaType) int32 { return 22270 }}
}

// lossy returns a list of as many collectors, each of which lost that many pods.
func lossy(members int, lost int32) (*v2alpha1.MembershipSpec, *v2alpha1.MembershipStatus) {
	spec, status := &v2alpha1.MembershipSpec{}, &v2alpha1.MembershipStatus{}
	for i := range members {
		slot := fmt.Sprintf("collector-%05d", i)
		spec.Members = append(spec.Members, v2alpha1.Member{Slot: slot, Task: v2alpha1.TaskTypeCollector, PodName: "job-" + slot})
		status.Slots = append(status.Slots, v2alpha1.SlotStatus{Slot: slot, Lost: lost})
	}
	return spec, status
}

func TestTheListIsNotSizedByHowOftenPodsWereLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []int32{1_000_000, math.MaxInt32} {
		for _, members := range []int{1, 3, 500} {
			spec, status := lossy(members, lost)
			got := len(placeOfJob().Listed(spec, status).Collectors)
			if most := limits.LostListed + members; got > most || got < members+members {
				t.Errorf("%d members that lost %d pods each have %d URLs, want at most %d", members, lost, got, most)
			}
		}
	}
}

func TestLostPodsStayListedWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	spec, status := lossy(4, 499)
	if got := len(placeOfJob().Listed(spec, status).Collectors); got != 4*500 {
		t.Errorf("got %d URLs, want 2000", got)
	}
	// One slot that loses more than all others gives up its own oldest ones.
	status.Slots[3].Lost = 5000
	urls := placeOfJob().Listed(spec, status).Collectors
	for i := range 3 {
		if first := names.ReplicaURL(spec.Members[i].PodName, "space", 22270); !slices.Contains(urls, first) {
			t.Errorf("the URL %s is gone", first)
		}
	}
	if len(urls) > limits.LostListed+4 {
		t.Errorf("got %d URLs", len(urls))
	}
}

func TestPodsThatLingerStayWithinTheirMaximum(t *testing.T) {
	t.Parallel()
	spec, status := lossy(10, math.MaxInt32)
	for range 10 {
		Remove("job", spec, status, v2alpha1.TaskTypeCollector, 1)
	}
	if got := len(spec.Lingering); got != limits.LostListed {
		t.Errorf("%d pods linger, want %d", got, limits.LostListed)
	}
}

func TestALearnerIsCutIntoNoMorePodsThanItMayHaveGPUs(t *testing.T) {
	t.Parallel()
	if got := len(CutGPUs(math.MaxInt32, 1)); got != limits.GPUs {
		t.Errorf("got %d pods, want %d", got, limits.GPUs)
	}
	member := &v2alpha1.Member{DDPGPUs: []int32{math.MaxInt32, math.MaxInt32, -1}}
	if got := len(placeOfJob().DDPURLs(member, "job-aggregator-xxxxx")); got != limits.GPUs {
		t.Errorf("got %d URLs, want %d", got, limits.GPUs)
	}
}

func FuzzForgedMembers(f *testing.F) {
	f.Add(int32(0), int32(0), int32(0), int32(0))
	f.Add(int32(math.MaxInt32), int32(math.MaxInt32), int32(0), int32(5))
	f.Add(int32(5), int32(3), int32(9), int32(6))
	f.Add(int32(-5), int32(7), int32(-9), int32(math.MinInt32))
	f.Fuzz(func(t *testing.T, reported, lost, listedFrom, delisted int32) {
		spec, status := lossy(2, lost)
		member := &spec.Members[0]
		member.Reported, member.ListedFrom, member.Delisted = reported, listedFrom, []int32{delisted}
		if got := len(placeOfJob().Listed(spec, status).Collectors); got > limits.LostListed+2 {
			t.Fatalf("got %d URLs", got)
		}
		current := PodName("job", member, max(lost, 0))
		if _, err := ReportFailed("job", spec, status, []string{current}); err != nil && IsReplicaName("job", current) {
			t.Errorf("reporting %s: %v", current, err)
		}
		Remove("job", spec, status, v2alpha1.TaskTypeCollector, 2)
		if got := len(spec.Lingering); got > limits.LostListed {
			t.Fatalf("%d pods linger", got)
		}
	})
}
