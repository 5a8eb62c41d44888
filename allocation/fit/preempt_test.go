// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAJobPreemptsJobsOfLowerPriority(t *testing.T) {
	t.Parallel()
	// Three jobs of 1 to 4 replicas run on three nodes of 4 CPUs; c is the youngest.
	full := map[string]string{"a": "x x x x", "b": "y y y y", "c": "z z z z"}
	tests := map[string]struct {
		least, cpus int32
		priorities  map[string]int32
		minimum     map[string]int32
		want        map[string]string
	}{
		"the youngest shrinks":                   {3, 1, nil, nil, map[string]string{"a": "x x x x", "b": "y y y y", "c": "z", "urgent": "z z z"}},
		"two shrink if one is not enough":        {6, 1, nil, nil, map[string]string{"a": "x x x x", "b": "y", "c": "z", "urgent": "y y y z z z"}},
		"all shrink before one stops":            {9, 1, nil, nil, map[string]string{"a": "x", "b": "y", "c": "z", "urgent": "x x x y y y z z z"}},
		"the youngest stops":                     {1, 4, nil, nil, map[string]string{"a": "x x x x", "b": "y y y y", "c": "", "urgent": "z"}},
		"one that cannot shrink stops":           {4, 1, nil, map[string]int32{"a": 4, "b": 4, "c": 4}, map[string]string{"a": "x x x x", "b": "y y y y", "c": "", "urgent": "z z z z"}},
		"shrinking is preferred to stopping":     {3, 1, nil, map[string]int32{"b": 4, "c": 4}, map[string]string{"a": "x", "b": "y y y y", "c": "z z z z", "urgent": "x x x"}},
		"none is preempted in vain":              {13, 1, nil, nil, map[string]string{"a": "x x x x", "b": "y y y y", "c": "z z z z", "urgent": ""}},
		"equal and higher priorities are spared": {3, 1, map[string]int32{"b": 1, "c": 2}, nil, map[string]string{"a": "x", "b": "y y y y", "c": "z z z z", "urgent": "x x x"}},
		"the lowest priority is first":           {3, 1, map[string]int32{"b": -1}, nil, map[string]string{"a": "x x x x", "b": "y", "c": "z z z z", "urgent": "y y y"}},
		"it gets only its least size":            {1, 2, nil, nil, map[string]string{"a": "x x x x", "b": "y y y y", "c": "z", "urgent": "z"}},
		"one that need not shrink is spared":     {1, 4, nil, map[string]int32{"c": 4}, map[string]string{"a": "x x x x", "b": "y y y y", "c": "", "urgent": "z"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("x", 4, 0), node("y", 4, 0), node("z", 4, 0)})
			urgent := collectors(snapshot, "urgent", tc.least, tc.least, pod(string('0'+tc.cpus), 0))
			urgent.Priority, urgent.Created = 1, time.Unix(100, 0)
			jobs, previous := []*allocation.Job{urgent}, map[types.NamespacedName][]string{}
			for i, name := range []string{"a", "b", "c"} {
				job := collectors(snapshot, name, max(tc.minimum[name], 1), 4, pod("1", 0))
				job.Created, job.Priority = time.Unix(int64(i), 0), tc.priorities[name]
				jobs, previous[job.Name] = append(jobs, job), strings.Fields(full[name])
			}
			got := map[string]string{}
			for name, placement := range (Fit{GrowAfter: time.Hour}).Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: previous}) {
				got[name.Name] = strings.Join(placement.Nodes, " ")
			}
			expect.Equal(t, "nodes", tc.want, got)
		})
	}
}

func TestAPreemptedJobSaysForWhichJob(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("x", 4, 0), node("y", 4, 0)})
	elastic, fixed := collectors(snapshot, "elastic", 1, 4, pod("1", 0)), collectors(snapshot, "fixed", 4, 4, pod("1", 0))
	urgent := collectors(snapshot, "urgent", 7, 7, pod("1", 0))
	urgent.Priority = 1
	got := Fit{}.Optimize(&allocation.Round{
		Jobs: []*allocation.Job{elastic, fixed, urgent}, Nodes: snapshot.Nodes,
		Previous: map[types.NamespacedName][]string{elastic.Name: {"x", "x", "x", "x"}, fixed.Name: {"y", "y", "y", "y"}},
	})
	if want := "shrunk for job space/urgent of higher priority: 1 replica on 1 node"; !strings.HasPrefix(got[elastic.Name].Message, want) {
		t.Errorf("got %q, want %q", got[elastic.Name].Message, want)
	}
	if want := "stopped for job space/urgent of higher priority: insufficient capacity on 2 nodes"; !strings.HasPrefix(got[fixed.Name].Message, want) {
		t.Errorf("got %q, want %q", got[fixed.Name].Message, want)
	}
}

func TestNoJobIsPreemptedInVainOrForAJobOfNoHigherPriority(t *testing.T) {
	t.Parallel()
	preempted := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		snapshot, jobs := anyCluster(random, 2+random.IntN(8), 5+random.IntN(20))
		for _, job := range jobs {
			job.Priority = 0
		}
		running := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes})
		previous := map[types.NamespacedName][]string{}
		for name, placement := range running {
			previous[name] = placement.Nodes
		}
		for _, job := range jobs {
			job.Priority = int32(random.IntN(3))
		}
		got := Fit{GrowAfter: time.Hour}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: previous})
		if message := overCapacity(snapshot, jobs, got); message != "" {
			t.Fatalf("seed %d: %s", seed, message)
		}
		preempted += checkPreemption(t, seed, jobs, previous, got)
	}
	if preempted < 20 {
		t.Errorf("only %d jobs were preempted", preempted)
	}
}

// checkPreemption checks that a job of higher priority was placed for each preempted job. It returns the
// number of preempted jobs.
func checkPreemption(t *testing.T, seed uint64, jobs []*allocation.Job, previous map[types.NamespacedName][]string, got map[types.NamespacedName]allocation.Placement) int {
	t.Helper()
	highest, preempted := int32(-1), 0
	for _, job := range jobs {
		if len(previous[job.Name]) == 0 && len(got[job.Name].Nodes) > 0 {
			highest = max(highest, job.Priority)
		}
	}
	for _, job := range jobs {
		before, after := previous[job.Name], got[job.Name].Nodes
		if len(before) == 0 || slices.Equal(before, after) {
			continue
		}
		preempted++
		if job.Priority >= highest {
			t.Errorf("seed %d: job %s of priority %d is preempted, and no job of a higher one was placed", seed, job.Name, job.Priority)
		}
	}
	return preempted
}
