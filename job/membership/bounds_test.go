// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func endpointsOfJob() Endpoints {
	return Endpoints{Namespace: "space", Job: "job", Ports: func(string, names.ReplicaType) int32 { return 22270 }}
}

// lossy returns a list of collectors that each lost a number of pods.
func lossy(members int, lost int32) (*v2alpha1.MembershipSpec, *v2alpha1.MembershipStatus) {
	spec, status := &v2alpha1.MembershipSpec{}, &v2alpha1.MembershipStatus{}
	for i := range members {
		slot := fmt.Sprintf("collector-%05d", i)
		spec.Members = append(spec.Members, v2alpha1.Member{Slot: slot, Task: v2alpha1.TaskTypeCollector, PodName: "job-" + slot})
		status.Slots = append(status.Slots, v2alpha1.SlotStatus{Slot: slot, Losses: lost})
	}
	return spec, status
}

// shrink removes collectors.
func shrink(t *testing.T, job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, collectors int32) {
	t.Helper()
	if _, err := (Shrink{Job: job, Collectors: collectors}).Apply(spec, status); err != nil {
		t.Fatal(err)
	}
}

func TestTheListIsNotSizedByHowOftenPodsWereLost(t *testing.T) {
	for _, lost := range []int32{1_000_000, math.MaxInt32} {
		for _, members := range []int{1, 3, 500} {
			spec, status := lossy(members, lost)
			got := len(endpointsOfJob().Listed(spec, status).Collectors)
			if most := limits.LostListed + members; got > most || got < members+members {
				t.Errorf("%d members that lost %d pods each have %d URLs, want at most %d", members, lost, got, most)
			}
		}
	}
}

func TestLostPodsStayListedWhileThereIsRoom(t *testing.T) {
	spec, status := lossy(4, 499)
	expect.Equal(t, "URLs", 4*500, len(endpointsOfJob().Listed(spec, status).Collectors))
	// A slot with more losses than all others drops its own oldest pods.
	status.Slots[3].Losses = 5000
	urls := endpointsOfJob().Listed(spec, status).Collectors
	for i := range 3 {
		if first := names.ReplicaURL(spec.Members[i].PodName, "space", 22270); !slices.Contains(urls, first) {
			t.Errorf("the URL %s is gone", first)
		}
	}
	if len(urls) > limits.LostListed+4 {
		t.Errorf("got %d URLs", len(urls))
	}
}

func TestRetainedPodsStayWithinTheirMaximum(t *testing.T) {
	spec, status := lossy(10, math.MaxInt32)
	for range 10 {
		shrink(t, "job", spec, status, 1)
	}
	expect.Equal(t, "result", limits.LostListed, len(spec.RetainedPods))
}

func TestALearnerIsCutIntoNoMorePodsThanItMayHaveGPUs(t *testing.T) {
	expect.Equal(t, "result", limits.GPUs, len(SplitGPUs(math.MaxInt32, 1)))
	member := &v2alpha1.Member{DDPGPUs: []int32{math.MaxInt32, math.MaxInt32, -1}}
	expect.Equal(t, "result", limits.GPUs, len(endpointsOfJob().DDPURLs(member, "job-aggregator-xxxxx")))
}

func FuzzForgedMembers(f *testing.F) {
	f.Add(int32(0), int32(0), int32(0), int32(0))
	f.Add(int32(math.MaxInt32), int32(math.MaxInt32), int32(0), int32(5))
	f.Add(int32(5), int32(3), int32(9), int32(6))
	f.Add(int32(-5), int32(7), int32(-9), int32(math.MinInt32))
	f.Fuzz(func(t *testing.T, reported, lost, advertisedFrom, withdrawn int32) {
		spec, status := lossy(2, lost)
		member := &spec.Members[0]
		member.FailureReports, member.AdvertisedFrom, member.Withdrawn = reported, advertisedFrom, []int32{withdrawn}
		if got := len(endpointsOfJob().Listed(spec, status).Collectors); got > limits.LostListed+2 {
			t.Fatalf("got %d URLs", got)
		}
		current := PodName("job", member, max(lost, 0))
		if _, err := (Replace{Job: "job", Pods: []string{current}}).Apply(spec, status); err != nil && IsReplicaName("job", current) {
			t.Errorf("reporting %s: %v", current, err)
		}
		shrink(t, "job", spec, status, 2)
		if got := len(spec.RetainedPods); got > limits.LostListed {
			t.Fatalf("%d pods are retained", got)
		}
	})
}

// TestTheLargestMembershipFitsIntoEtcd builds a list with the maximum number of members. Their
// names are as long as those of pods, all are replaced, as many pods are retained, and the answer
// has all URLs. It has no learners of many pods, and no ports that change repeatedly. The API
// server records the writer of each field in the items of a list that is not atomic.
func TestTheLargestMembershipFitsIntoEtcd(t *testing.T) {
	job, namespace := strings.Repeat("j", 63-len("-ddp-learner-xxxxx")), strings.Repeat("n", 63)
	spec, status := &v2alpha1.MembershipSpec{JobUID: "01234567-89ab-cdef-0123-456789abcdef"}, &v2alpha1.MembershipStatus{}
	given := 0
	random := func(int) string { given++; return fmt.Sprintf("%05d", given) }
	demand := Demand{Task: v2alpha1.TaskTypeCollector, Replicas: limits.Members, Resources: v2alpha1.MemberResources{
		CPUs: ptr.To(resource.MustParse("1500m")), GPUs: ptr.To(resource.MustParse("8")), Memory: ptr.To(resource.MustParse("1024Gi")),
	}}
	fill := func() {
		edit := Grow{Job: job, Demands: []Demand{demand}, MaxMembers: limits.Members, Random: random}
		if _, err := edit.Apply(spec, status); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	for i := range spec.Members {
		status.Slots = append(status.Slots, v2alpha1.SlotStatus{Slot: spec.Members[i].Slot, Losses: 1})
	}
	shrink(t, job, spec, status, limits.Members)
	fill()
	status.Slots = nil
	for i := range spec.Members {
		member := &spec.Members[i]
		member.FailureReports, member.AdvertisedFrom, member.Withdrawn = limits.Losses, limits.Losses, []int32{limits.Losses + 2}
		status.Slots = append(status.Slots, v2alpha1.SlotStatus{
			Slot: member.Slot, Losses: limits.Losses, ObservedPod: PodName(job, member, limits.Losses), Phase: "Succeeded",
			Ports: []v2alpha1.SlotPort{{Port: 22270}},
		})
	}
	place := Endpoints{Namespace: namespace, Job: job, Ports: func(string, names.ReplicaType) int32 { return 22270 }}
	Record(spec, Request{ID: strings.Repeat("i", 36), Container: strings.Repeat("c", 64)}, place.URLs(spec.Members, status), time.Now(), Unaged)
	sizes := map[string]int{}
	for name, part := range map[string]any{"members": spec.Members, "retainedPods": spec.RetainedPods, "requests": spec.Requests, "slots": status.Slots} {
		encoded, err := json.Marshal(part)
		expect.NoError(t, err)
		sizes[name] = len(encoded)
		sizes["all"] += len(encoded)
	}
	if len(spec.RetainedPods) != limits.LostListed || len(spec.Requests[0].Collectors) != limits.Members {
		t.Fatalf("%d pods are retained, and the answer lists %d", len(spec.RetainedPods), len(spec.Requests[0].Collectors))
	}
	definition, err := os.ReadFile("../../config/crd/bases/diengine.opendilab.org_memberships.yaml")
	if err != nil || strings.Contains(string(definition), "x-kubernetes-list-type: map") {
		t.Fatalf("a list is not atomic, or its definition cannot be read: %v", err)
	}
	const most = 3 << 19
	t.Logf("bytes of JSON: %v of %d", sizes, most)
	if sizes["all"] > most {
		t.Errorf("it takes %d bytes, %v, and etcd takes %d", sizes["all"], sizes, most)
	}
}
