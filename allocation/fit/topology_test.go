// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/topology"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// levels are the labels of the tests' nodes.
var levels = []string{"topology.kubernetes.io/zone", "example.com/rack"}

// in labels a node with its zone and rack.
func in(zone, rack string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Labels[levels[0]], node.Labels[levels[1]] = zone, rack }
}

// located returns a snapshot of nodes with domains.
func located(nodes ...*corev1.Node) *allocation.Snapshot {
	snapshot := allocation.NewSnapshot(nodes)
	snapshot.Locate(levels)
	return snapshot
}

func TestAJobOfSeveralNodesGetsTheNarrowestDomainThatHoldsIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wanted int32
		gpus   int64
		want   []string
	}{
		"a node, in any rack":              {4, 1, []string{"d", "d", "d", "d"}},
		"the tightest rack":                {2, 8, []string{"e", "f"}},
		"the only rack":                    {3, 8, []string{"a", "b", "c"}},
		"the only zone, and not all racks": {4, 8, []string{"a", "b", "c", "e"}},
		"all zones":                        {6, 8, []string{"a", "b", "c", "e", "f", "g"}},
		"the rack of fewer nodes":          {12, 1, []string{"g", "g", "g", "g", "g", "g", "g", "g", "h", "h", "h", "h"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := located(node("a", 64, 8, in("x", "1")), node("b", 64, 8, in("x", "1")), node("c", 64, 8, in("x", "1")),
				node("d", 64, 4, in("x", "2")), node("e", 64, 8, in("x", "3")), node("f", 64, 8, in("x", "3")), node("g", 64, 8, in("y", "1")), node("h", 64, 5, in("y", "1")),
				node("i", 64, 4, in("y", "2")), node("j", 64, 4, in("y", "2")), node("k", 64, 4, in("y", "2")))
			got := Fit{}.Allocate(collectors(snapshot, "job", 1, tc.wanted, pod("100m", tc.gpus)), snapshot.Nodes)
			expect.Equal(t, "nodes", tc.want, slices.Sorted(slices.Values(got.Nodes)))
			expect.Equal(t, "reason", allocation.ReasonPlaced, got.Reason)
		})
	}
}

func TestTasksOfAJobShareARack(t *testing.T) {
	t.Parallel()
	snapshot := located(node("a", 8, 8, in("x", "1")), node("b", 64, 0, in("x", "2")), node("c", 8, 8, in("x", "2")))
	job := collectors(snapshot, "job", 8, 8, pod("4", 0))
	job.Tasks = append(job.Tasks, allocation.Task{Name: "learner", Replicas: 1, Pod: snapshot.RequirementsOf(pod("4", 8))})
	got := Fit{}.Allocate(job, snapshot.Nodes)
	expect.Equal(t, "nodes", []string{"b", "b", "b", "b", "b", "b", "b", "b", "c"}, slices.Sorted(slices.Values(got.Nodes)))
}

func TestALostNodeIsReplacedInItsRack(t *testing.T) {
	t.Parallel()
	snapshot := located(node("a", 4, 0, in("x", "1")), node("b", 4, 0, in("x", "2")), node("c", 4, 0, in("x", "2")))
	job := collectors(snapshot, "job", 8, 8, pod("1", 0))
	previous := map[types.NamespacedName][]string{job.Name: {"c", "c", "c", "c", "gone", "gone", "gone", "gone"}}
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: previous})
	expect.Equal(t, "nodes", []string{"c", "c", "c", "c", "b", "b", "b", "b"}, got[job.Name].Nodes)
}

// scatter gives random nodes domains. One in ten has no rack.
func scatter(random *rand.Rand, snapshot *allocation.Snapshot, racks int) {
	for _, node := range snapshot.Nodes {
		rack := random.IntN(racks)
		in(string(rune('a'+rack%3)), fmt.Sprint("r", rack))(node.Object)
		if random.IntN(10) == 0 {
			delete(node.Object.Labels, levels[1])
		}
	}
	snapshot.Locate(levels)
}

// flat returns the nodes without their domains.
func flat(nodes []*allocation.Node) []*allocation.Node {
	var all []*allocation.Node
	for _, node := range nodes {
		without := *node
		without.Domains = nil
		all = append(all, &without)
	}
	return all
}

func places(snapshot *allocation.Snapshot, nodes []string) []int {
	var found []int
	for at, node := range snapshot.Nodes {
		if slices.Contains(nodes, node.Object.Name) {
			found = append(found, at)
		}
	}
	return found
}

// bruteForce returns the least counts of domains of all lists of nodes on which a job with equal replicas fits.
func bruteForce(snapshot *allocation.Snapshot, tree *topology.Tree, job *allocation.Job, count int32) []int {
	var best []int
	board := allocation.NewBoard(snapshot.Nodes)
	accepting := board.Accepting(job, 0)
	for set := 1; set < 1<<len(snapshot.Nodes); set++ {
		var nodes []int
		room := int32(0)
		for at, node := range snapshot.Nodes {
			if set&(1<<at) != 0 && accepting[at] {
				nodes, room = append(nodes, at), room+job.Tasks[0].Pod.Room(node.Free, count)
			}
		}
		if room < count {
			continue
		}
		if counts := tree.Counts(nodes); best == nil || slices.Compare(counts, best) < 0 {
			best = counts
		}
	}
	return best
}

func TestAJobHasNoMoreDomainsThanTheBestOfAllPlacements(t *testing.T) {
	t.Parallel()
	compared := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 12))
		snapshot, jobs := anyCluster(random, 3+random.IntN(7), 1)
		scatter(random, snapshot, 1+random.IntN(5))
		job := jobs[0]
		job.Tasks, job.Wanted = job.Tasks[:1], int32(2+random.IntN(30))
		tree := allocation.TreeOf(snapshot.Nodes)
		got := Fit{}.Allocate(job, snapshot.Nodes)
		if tree == nil || len(got.Nodes) == 0 {
			continue
		}
		compared++
		want, counts := bruteForce(snapshot, tree, job, int32(len(got.Nodes))), tree.Counts(places(snapshot, got.Nodes))
		if counts[0] != want[0] || want[0] == 1 && counts[1] != want[1] {
			t.Errorf("seed %d: %d replicas are in %v domains, want %v", seed, len(got.Nodes), counts, want)
		}
	}
	if compared < 100 {
		t.Errorf("only %d jobs are compared", compared)
	}
}

func TestATopologyTakesNoReplicaFromAJob(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 13))
		snapshot, jobs := anyCluster(random, 1+random.IntN(12), 1)
		scatter(random, snapshot, 1+random.IntN(6))
		jobs[0].Wanted = int32(3 + random.IntN(40))
		with, without := Fit{}.Allocate(jobs[0], snapshot.Nodes), Fit{}.Allocate(jobs[0], flat(snapshot.Nodes))
		if len(with.Nodes) != len(without.Nodes) || with.Reason != without.Reason {
			t.Errorf("seed %d: %s with domains, %s without", seed, with.Message, without.Message)
		}
	}
}

func TestRoundsWithDomainsStayWithinCapacityAndSettle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 14))
		snapshot, jobs := anyCluster(random, 4+random.IntN(20), 1+random.IntN(40))
		scatter(random, snapshot, 6)
		previous := map[types.NamespacedName][]string{}
		for round := range 3 {
			got := Fit{GrowAfter: time.Hour}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: previous})
			if message := overCapacity(snapshot, jobs, got); message != "" {
				t.Fatalf("seed %d, round %d: %s", seed, round, message)
			}
			board := allocation.NewBoard(snapshot.Nodes)
			for _, job := range jobs {
				if nodes := got[job.Name].Nodes; round > 0 && len(previous[job.Name]) > 0 && !slices.Equal(nodes, previous[job.Name]) {
					t.Errorf("seed %d, round %d: job %s moves from %v to %v", seed, round, job.Name, previous[job.Name], nodes)
				}
				previous[job.Name] = got[job.Name].Nodes
				board.Hold(job, previous[job.Name])
			}
			for _, job := range jobs {
				if _, fits := board.PlaceLeast(job); fits && len(previous[job.Name]) == 0 {
					t.Errorf("seed %d, round %d: job %s waits though it fits", seed, round, job.Name)
				}
			}
		}
	}
}

func TestOneDomainDecidesAsNone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 15))
		snapshot, jobs := anyCluster(random, 1+random.IntN(20), 1+random.IntN(40))
		for _, node := range snapshot.Nodes {
			in("a", "r")(node.Object)
		}
		snapshot.Locate(levels)
		with := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes})
		without := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: flat(snapshot.Nodes)})
		expect.Equal(t, "placements", without, with)
	}
}

// BenchmarkFitOfRacks measures rounds of new jobs with levels of zones and racks of 16 nodes.
func BenchmarkFitOfRacks(b *testing.B) {
	for _, size := range []int{512, 1024, 2048} {
		snapshot, jobs := anyCluster(rand.New(rand.NewPCG(1, 1)), size, 1000)
		scatter(rand.New(rand.NewPCG(1, 2)), snapshot, size/16)
		for name, nodes := range map[string][]*allocation.Node{"racks": snapshot.Nodes, "none": flat(snapshot.Nodes)} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				for b.Loop() {
					Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: nodes})
				}
			})
		}
	}
}
