// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// node returns a node with that many CPUs and GPUs, and with changes.
func node(name string, cpus, gpus int64, changes ...func(*corev1.Node)) *corev1.Node {
	made := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
				corev1.ResourceMemory: resource.MustParse("256Gi"),
				corev1.ResourcePods:   resource.MustParse("110"),
				gpu:                   *resource.NewQuantity(gpus, resource.DecimalSI),
			},
		},
	}
	for _, change := range changes {
		change(made)
	}
	return made
}

// pod returns the spec of a pod that requests that many CPUs and GPUs.
func pod(cpu string, gpus int64) *corev1.PodSpec {
	return &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu),
		gpu:                *resource.NewQuantity(gpus, resource.DecimalSI),
	}}}}}
}

// collectors returns a job of elastic collectors.
func collectors(snapshot *allocation.Snapshot, name string, least, wanted int32, spec *corev1.PodSpec) *allocation.Job {
	return &allocation.Job{
		Name:  types.NamespacedName{Namespace: "space", Name: name},
		Tasks: []allocation.Task{{Name: "collector", Pod: snapshot.RequirementsOf(spec)}},
		Min:   least, Wanted: wanted,
	}
}

func TestAJobIsPlacedOnTheFewestNodesThatHoldIt(t *testing.T) {
	t.Parallel()
	big, small := []*corev1.Node{node("a", 64, 8), node("b", 64, 4), node("c", 64, 8)}, []*corev1.Node{node("a", 4, 2), node("b", 4, 2)}
	tests := map[string]struct {
		nodes  []*corev1.Node
		wanted int32
		gpus   int64
		want   allocation.Placement
	}{
		"the tightest node that holds it": {big, 4, 1, allocation.Placement{
			Nodes: []string{"b", "b", "b", "b"}, Reason: allocation.ReasonPlaced, Message: "4 replicas on 1 node",
		}},
		"the nodes that hold most of it": {big, 3, 4, allocation.Placement{
			Nodes: []string{"a", "a", "b"}, Reason: allocation.ReasonPlaced, Message: "3 replicas on 2 nodes",
		}},
		"as many as fit": {small, 7, 1, allocation.Placement{
			Nodes: []string{"a", "a", "b", "b"}, Reason: allocation.ReasonPartiallyPlaced, Message: "4 replicas on 2 nodes: there is capacity for 4 replicas of task collector, 7 are desired",
		}},
		"nowhere": {small, 3, 8, allocation.Placement{
			Nodes: nil, Reason: allocation.ReasonInsufficientCapacity, Message: "insufficient capacity on 2 nodes; task collector wants 1: there is capacity for 0 on its own, 2 nodes lack nvidia.com/gpu",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot(tc.nodes)
			got := Fit{}.Allocate(collectors(snapshot, "job", 1, tc.wanted, pod("100m", tc.gpus)), snapshot.Nodes)
			expect.Equal(t, "placement", tc.want, got)
		})
	}
}

func TestRanksFollowTheTasks(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("gpus", 4, 2), node("cpus", 64, 0)})
	job := &allocation.Job{
		Name: types.NamespacedName{Name: "job"}, Elastic: 1, Min: 1, Wanted: 3,
		Tasks: []allocation.Task{
			{Name: "learner", Replicas: 2, Pod: snapshot.RequirementsOf(pod("2", 1))},
			{Name: "collector", Pod: snapshot.RequirementsOf(pod("4", 0))},
			{Name: "evaluator", Replicas: 1, Pod: snapshot.RequirementsOf(pod("1", 0))},
		},
	}
	want := []string{"gpus", "gpus", "cpus", "cpus", "cpus", "cpus"}
	expect.Equal(t, "nodes by rank", want, Fit{}.Allocate(job, snapshot.Nodes).Nodes)
}

func TestNodesThatDoNotAcceptThePodsAreSkipped(t *testing.T) {
	t.Parallel()
	unready := func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown }
	cordoned := func(node *corev1.Node) { node.Spec.Unschedulable = true }
	tainted := func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: "team", Value: "vision", Effect: corev1.TaintEffectNoSchedule}}
	}
	disliked := func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectPreferNoSchedule}}
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	recovered := func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{notReady} }
	unwell := func(node *corev1.Node) {
		unready(node)
		recovered(node)
	}
	labelled := func(node *corev1.Node) { node.Labels["zone"] = "east" }
	toleration := []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpEqual, Value: "vision"}}
	east := map[string]string{"zone": "east"}
	tests := map[string]struct {
		change      func(*corev1.Node)
		tolerations []corev1.Toleration
		selector    map[string]string
		placed      bool
	}{
		"not ready":                  {unready, nil, nil, false},
		"cordoned":                   {cordoned, nil, nil, false},
		"tainted":                    {tainted, nil, nil, false},
		"tainted, and tolerated":     {tainted, toleration, nil, true},
		"tainted mildly":             {disliked, nil, nil, true},
		"tainted until a moment ago": {recovered, nil, nil, true},
		"tainted and not ready":      {unwell, nil, nil, false},
		"of the wanted zone":         {labelled, nil, east, true},
		"of another than the zone":   {func(*corev1.Node) {}, nil, east, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0, tc.change)})
			spec := pod("1", 0)
			spec.Tolerations, spec.NodeSelector = tc.tolerations, tc.selector
			placement := Fit{}.Allocate(collectors(snapshot, "job", 1, 1, spec), snapshot.Nodes)
			if placed := len(placement.Nodes) > 0; placed != tc.placed {
				t.Errorf("got %+v", placement)
			}
		})
	}
}

func TestForeignPodsOccupyCapacity(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 8, 2), node("b", 8, 2)})
	for _, name := range []string{"a", "elsewhere"} {
		running := &corev1.Pod{Spec: *pod("6", 0)}
		running.Spec.NodeName = name
		snapshot.Occupy(running)
	}
	got := Fit{}.Allocate(collectors(snapshot, "job", 1, 9, pod("2", 0)), snapshot.Nodes)
	expect.Equal(t, "nodes", []string{"b", "b", "b", "b", "a"}, got.Nodes)
}

func TestJobsKeepTheirNodesAndHigherAndOlderOnesAreFirst(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 4, 0)})
	running := collectors(snapshot, "running", 1, 4, pod("1", 0))
	old, young, urgent := collectors(snapshot, "old", 2, 2, pod("1", 0)), collectors(snapshot, "young", 2, 2, pod("1", 0)), collectors(snapshot, "urgent", 2, 2, pod("1", 0))
	young.Created, urgent.Created, urgent.Priority = time.Unix(1, 0), time.Unix(2, 0), 1
	previous := map[types.NamespacedName][]string{running.Name: {"b", "b", "b", "b"}}
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{young, urgent, old, running}, Nodes: snapshot.Nodes, Previous: previous})
	for job, want := range map[*allocation.Job][]string{running: {"b", "b", "b", "b"}, urgent: {"a", "a"}, old: {"a", "a"}, young: nil} {
		expect.Equal(t, job.Name.Name, want, got[job.Name].Nodes)
	}
}

func TestAJobWhoseNodeIsGoneGetsAnother(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("b", 4, 0)})
	job := collectors(snapshot, "job", 1, 2, pod("1", 0))
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{job.Name: {"a", "b"}}})
	expect.Equal(t, "nodes", []string{"b", "b"}, got[job.Name].Nodes)
}

func TestAJobStaysOnAClosedNodeAndLeavesOneThatEvictsIt(t *testing.T) {
	t.Parallel()
	taint := func(effect corev1.TaintEffect, key string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	tests := map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"cordoned":           {func(node *corev1.Node) { node.Spec.Unschedulable = true }, "a"},
		"out of reach":       {taint(corev1.TaintEffectNoExecute, corev1.TaintNodeUnreachable), "a"},
		"closed to others":   {taint(corev1.TaintEffectNoSchedule, "team"), "a"},
		"drained by a taint": {taint(corev1.TaintEffectNoExecute, "repair"), "b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0, tc.change), node("b", 4, 0)})
			job := collectors(snapshot, "job", 1, 1, pod("1", 0))
			got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{job.Name: {"a"}}})
			expect.Equal(t, "nodes", []string{tc.want}, got[job.Name].Nodes)
		})
	}
}

func TestAPartiallyPlacedJobGrowsWhileNoJobWaits(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0)})
	job := collectors(snapshot, "job", 1, 4, pod("1", 0))
	previous := map[types.NamespacedName][]string{job.Name: {"a", "a"}}
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: previous})
	if len(got[job.Name].Nodes) != 4 {
		t.Errorf("alone it gets %+v", got[job.Name])
	}
	waiting := collectors(snapshot, "waiting", 3, 3, pod("1", 0))
	got = Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job, waiting}, Nodes: snapshot.Nodes, Previous: previous})
	if len(got[job.Name].Nodes) != 2 || len(got[waiting.Name].Nodes) != 0 {
		t.Errorf("beside one that waits it gets %+v", got[job.Name])
	}
}

// anyCluster returns random nodes, some of them busy, and random jobs.
func anyCluster(random *rand.Rand, nodes, jobs int) (*allocation.Snapshot, []*allocation.Job) {
	var objects []*corev1.Node
	for i := range nodes {
		objects = append(objects, node(fmt.Sprintf("node-%03d", i), 8<<random.IntN(4), int64(random.IntN(3)*4), func(node *corev1.Node) {
			if random.IntN(8) == 0 {
				node.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
			}
			node.Labels["zone"] = string(rune('a' + random.IntN(3)))
			node.Status.Allocatable[corev1.ResourcePods] = *resource.NewQuantity(int64(3+random.IntN(30)), resource.DecimalSI)
			node.Status.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(int64(8+random.IntN(64))<<30, resource.BinarySI)
		}))
	}
	snapshot := allocation.NewSnapshot(objects)
	var listed []*allocation.Job
	for i := range jobs {
		job := collectors(snapshot, fmt.Sprintf("job-%04d", i), int32(random.IntN(3)), int32(3+random.IntN(8)), pod("1", int64(random.IntN(2))))
		job.Priority, job.Created = int32(random.IntN(2)), time.Unix(int64(i), 0)
		learner := pod("4", int64(random.IntN(5)))
		learner.Containers[0].Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(int64(random.IntN(16))<<30, resource.BinarySI)
		if random.IntN(4) == 0 {
			learner.NodeSelector = map[string]string{"zone": "a"}
			learner.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		job.Tasks = append(job.Tasks, allocation.Task{Name: "learner", Replicas: int32(1 + random.IntN(2)), Pod: snapshot.RequirementsOf(learner)})
		listed = append(listed, job)
	}
	return snapshot, listed
}

func TestNoNodeIsOvercommitted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 2))
		snapshot, jobs := anyCluster(random, 1+random.IntN(20), 1+random.IntN(40))
		previous := map[types.NamespacedName][]string{}
		for round := range 3 {
			got := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: previous})
			if message := overCapacity(snapshot, jobs, got); message != "" {
				t.Fatalf("seed %d, round %d: %s", seed, round, message)
			}
			for _, job := range jobs {
				previous[job.Name] = got[job.Name].Nodes
				job.Running = map[int]string{}
				for rank, node := range got[job.Name].Nodes {
					job.Running[rank] = node
				}
			}
			// One job finishes, and one node is removed.
			jobs = append(jobs[:0:0], jobs[min(1, len(jobs)-1):]...)
			if len(snapshot.Nodes) > 1 {
				snapshot.Nodes = snapshot.Nodes[1:]
			}
		}
	}
}

// overCapacity describes what is wrong with placements, "" for nothing.
func overCapacity(snapshot *allocation.Snapshot, jobs []*allocation.Job, placements map[types.NamespacedName]allocation.Placement) string {
	nodes := map[string]*corev1.Node{}
	for _, node := range snapshot.Nodes {
		nodes[node.Object.Name] = node.Object
	}
	board := allocation.NewBoard(snapshot.Nodes)
	for _, job := range jobs {
		placement, decided := placements[job.Name]
		if !decided || placement.Reason == "" || (len(placement.Nodes) == 0) != (placement.Reason == allocation.ReasonInsufficientCapacity) {
			return fmt.Sprintf("%s is decided as %+v", job.Name, placement)
		}
		if len(placement.Nodes) == 0 {
			continue
		}
		elastic, fits := job.ElasticOf(len(placement.Nodes))
		if !fits {
			return fmt.Sprintf("%s has %d replicas", job.Name, len(placement.Nodes))
		}
		for rank, pod := range job.Ranks(elastic) {
			if node := nodes[placement.Nodes[rank]]; node == nil || !pod.MayStay(node) {
				return fmt.Sprintf("%s has rank %d on %q", job.Name, rank, placement.Nodes[rank])
			}
		}
		board.Hold(job, placement.Nodes)
	}
	return board.Overcommitted()
}

func TestEqualRoundsGiveEqualPlacements(t *testing.T) {
	t.Parallel()
	var want map[types.NamespacedName]allocation.Placement
	for round := range uint64(1000) {
		snapshot, jobs := anyCluster(rand.New(rand.NewPCG(11, 3)), 6, 14)
		random := rand.New(rand.NewPCG(round, 1))
		previous := map[types.NamespacedName][]string{}
		for _, job := range jobs[:7] {
			previous[job.Name] = []string{"node-001", "node-002", "node-001"}
		}
		for i, job := range jobs {
			// Neither the order nor the age tells them apart.
			job.Created, job.Waiting = time.Time{}, time.Duration(i)*time.Minute
		}
		random.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
		nodes := slices.Clone(snapshot.Nodes)
		random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		got := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: nodes, Previous: previous})
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d differs (-first +this):\n%s", round, diff)
		}
	}
}

func TestASecondRoundChangesNoPlacement(t *testing.T) {
	t.Parallel()
	snapshot, jobs := anyCluster(rand.New(rand.NewPCG(7, 7)), 12, 30)
	first := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: nil})
	previous := map[types.NamespacedName][]string{}
	for name, placement := range first {
		previous[name] = placement.Nodes
	}
	second := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: previous})
	for name, placement := range second {
		if diff := cmp.Diff(strings.Join(previous[name], " "), strings.Join(placement.Nodes, " ")); diff != "" {
			t.Errorf("%s moved (-before +after):\n%s", name, diff)
		}
	}
}

// BenchmarkFit measures a round of 1,000 jobs on 512 nodes: with new jobs, and with jobs that stay.
func BenchmarkFit(b *testing.B) {
	snapshot, jobs := anyCluster(rand.New(rand.NewPCG(1, 1)), 512, 1000)
	first := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: nil})
	previous := map[types.NamespacedName][]string{}
	for name, placement := range first {
		previous[name] = placement.Nodes
	}
	b.Run("all are new", func(b *testing.B) {
		for b.Loop() {
			Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: nil})
		}
	})
	b.Run("all stay", func(b *testing.B) {
		for b.Loop() {
			Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: previous})
		}
	})
}
