// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/allocation/shares"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// levels are the labels of the topology.
var levels = []string{"topology.kubernetes.io/zone", "example.com/rack"}

const gpus = corev1.ResourceName("nvidia.com/gpu")

// cluster is nodes and jobs that train as a policy places them.
type cluster struct {
	random *rand.Rand
	now    time.Time
	nodes  []*corev1.Node
	jobs   []*trainer
	groups map[string]*allocation.Group
	// tenants share the cluster; nil if all jobs compete alike.
	tenants *shares.Tenants
	added   int
}

// trainer is a job with its true speed.
type trainer struct {
	name string
	// team is the namespace.
	team     string
	created  time.Time
	priority int32
	group    string
	min, max int32
	// fixed is what one learner requests beside the elastic task, nil for none.
	fixed, elastic *corev1.PodSpec
	truth          model.Throughput
	steps          []profilings.Step
	done, total    float64
	// runs is set for a job whose pods run as soon as they are placed.
	runs, isSilent bool
	isLive         bool
	// noise is by which part of them at most reported times are wrong.
	noise float64
	// speeds are how many times as fast as its truth the job is by the type of devices; nil for a job that names none.
	// profiles is set for a job that has measured one of each.
	speeds   map[string]float64
	profiles bool
	placed   []string
	usage    allocation.Usage
}

func newCluster(seed uint64) *cluster {
	return &cluster{random: rand.New(rand.NewPCG(seed, 7)), now: midnight, groups: map[string]*allocation.Group{}}
}

func (c *cluster) addNodes(count, gpusEach int, labels map[string]string) {
	for range count {
		c.nodes = append(c.nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%03d", len(c.nodes)), Labels: labels},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Allocatable: corev1.ResourceList{
					corev1.ResourceCPU: *resource.NewQuantity(32, resource.DecimalSI), gpus: *resource.NewQuantity(int64(gpusEach), resource.DecimalSI),
					corev1.ResourcePods: *resource.NewQuantity(110, resource.DecimalSI),
				},
			},
		})
	}
}

func podOf(gpuCount, cores int64, tolerated ...string) *corev1.PodSpec {
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI)}
	if gpuCount > 0 {
		requests[gpus] = *resource.NewQuantity(gpuCount, resource.DecimalSI)
	}
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}}}
	for _, key := range tolerated {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return spec
}

// add submits a job of up to so many replicas of one GPU.
func (c *cluster) add(most int32) *trainer {
	t := &trainer{
		name: fmt.Sprintf("job-%03d", c.added), team: "test", created: c.now.Add(-time.Duration(c.random.IntN(50)) * time.Second), min: 1, max: most,
		elastic: podOf(1, 1), runs: c.added%4 != 3, total: 1e5 * (1 + 100*c.random.Float64()),
		truth: model.Throughput{
			AlphaC: 0.02 + 0.1*c.random.Float64(), BetaC: 0.001 + 0.004*c.random.Float64(), AlphaN: 0.02 + 0.2*c.random.Float64(),
			BetaN: 0.005 * c.random.Float64(), AlphaR: 0.01 + 0.05*c.random.Float64(), BetaR: 0.002 * c.random.Float64(), Gamma: 1 + 3*c.random.Float64(),
		},
	}
	c.jobs = append(c.jobs, t)
	c.added++
	return t
}

var bounds = model.Bounds{Initial: 128, Max: 4096, MinAtomic: 16, MaxAtomic: 256}

func (t *trainer) report(random *rand.Rand) *profilings.Report {
	if t.isSilent {
		return nil
	}
	report := &profilings.Report{
		Batch: &profilings.Batch{Initial: bounds.Initial, Max: bounds.Max, MinPerReplica: bounds.MinAtomic, MaxPerReplica: bounds.MaxAtomic},
		Steps: slices.Clone(t.steps), Gradient: &profilings.Gradient{Sqr: 0.01, Var: 1 + 4*t.done/t.total},
	}
	for i := range report.Steps {
		report.Steps[i].Seconds *= 1 + t.noise*(2*random.Float64()-1)
	}
	if t.done > 0 {
		report.Progress = &profilings.Progress{Done: t.done, Total: t.total}
	}
	return report
}

// round returns what the allocator would ask a policy now.
func (c *cluster) round() *allocation.Round {
	snapshot := allocation.NewSnapshot(c.nodes)
	snapshot.Locate(levels)
	// Jobs may share a pod, so that its requirements are computed once.
	required := map[*corev1.PodSpec]*allocation.Requirements{}
	of := func(pod *corev1.PodSpec) *allocation.Requirements {
		if required[pod] == nil {
			required[pod] = snapshot.RequirementsOf(pod)
		}
		return required[pod]
	}
	round := &allocation.Round{Now: c.now, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{}, Groups: c.groups, Tenants: c.tenants}
	for _, t := range c.jobs {
		job := &allocation.Job{
			Name: types.NamespacedName{Namespace: t.team, Name: t.name}, Created: t.created, Priority: t.priority, Group: t.group,
			Min: t.min, Wanted: t.max, Report: t.report(c.random), ReportedAt: c.now, Usage: t.usage, ResizesLive: t.isLive,
		}
		if t.fixed != nil {
			job.Tasks = append(job.Tasks, allocation.Task{Name: "learner", Replicas: 1, Pod: of(t.fixed)})
		}
		job.Elastic = -1
		if t.elastic != nil {
			job.Elastic = len(job.Tasks)
			job.Tasks = append(job.Tasks, allocation.Task{Name: "collector", Pod: of(t.elastic)})
		}
		round.Jobs = append(round.Jobs, job)
		if len(t.placed) > 0 {
			round.Previous[job.Name] = t.placed
		}
		if t.runs {
			job.Running = map[int]string{}
			for rank, node := range t.placed {
				job.Running[rank] = node
			}
		}
	}
	return round
}

// apply carries an answer out.
func (c *cluster) apply(answer map[types.NamespacedName]allocation.Placement) {
	for _, t := range c.jobs {
		placement := answer[types.NamespacedName{Namespace: t.team, Name: t.name}]
		t.placed, t.usage = placement.Nodes, placement.Usage
	}
}

// train lets the jobs run for a while.
func (c *cluster) train(seconds int) {
	c.now = c.now.Add(time.Duration(seconds) * time.Second)
	c.jobs = slices.DeleteFunc(c.jobs, func(t *trainer) bool {
		t.train(seconds, c.deviceOf(t.placed))
		return t.done >= t.total
	})
}

func (t *trainer) train(seconds int, device string) {
	replicas := len(t.placed)
	if t.fixed != nil {
		replicas--
	}
	if replicas <= 0 || t.elastic == nil {
		return
	}
	nodes := slices.Clone(t.placed[len(t.placed)-replicas:])
	slices.Sort(nodes)
	at := model.Config{Nodes: len(slices.Compact(nodes)), Replicas: replicas, Atomic: max(bounds.Initial/replicas, bounds.MinAtomic)}
	if t.profiles && len(t.steps) == 0 {
		for _, device := range slices.Sorted(maps.Keys(t.speeds)) {
			t.measure(model.Config{Nodes: 1, Replicas: 1, Atomic: bounds.Initial}, device)
		}
	}
	t.done += float64(seconds) * float64(at.Batch()) / t.measure(at, device)
}

// measure notes a step on devices of a type, and returns its seconds.
func (t *trainer) measure(at model.Config, device string) float64 {
	step := profilings.Step{Nodes: at.Nodes, Replicas: at.Replicas, Samples: at.Atomic, Seconds: t.truth.StepTime(at)}
	if times := t.speeds[device]; times > 0 {
		step.Seconds, step.Device = step.Seconds/times, device
	}
	if !slices.ContainsFunc(t.steps, func(s profilings.Step) bool {
		return s.Nodes == step.Nodes && s.Replicas == step.Replicas && s.Device == step.Device
	}) {
		t.steps = append(t.steps, step)
	}
	return step.Seconds
}

// check fails where an answer is more than the nodes have, or where they do not accept it.
func check(t *testing.T, round *allocation.Round, answer map[types.NamespacedName]allocation.Placement) {
	t.Helper()
	board, nodes := allocation.NewBoard(round.Nodes), map[string]int{}
	for i, node := range round.Nodes {
		nodes[node.Object.Name] = i
	}
	for _, job := range round.Jobs {
		placed := answer[job.Name].Nodes
		if len(placed) == 0 {
			continue
		}
		elastic, fits := job.ElasticOf(len(placed))
		if !fits || job.Elastic >= 0 && (elastic < job.Min || elastic > job.Wanted) {
			t.Fatalf("job %s has %d replicas of %d to %d", job.Name, len(placed), job.Min, job.Wanted)
		}
		board.Hold(job, placed)
		rank := 0
		for task := range job.Tasks {
			accepts := board.Accepting(job, task)
			for range job.Tasks[task].Replicas + map[bool]int32{true: elastic}[task == job.Elastic] {
				if i, exists := nodes[placed[rank]]; !exists || !accepts[i] {
					t.Fatalf("rank %d of job %s is on %q, which does not accept it", rank, job.Name, placed[rank])
				}
				rank++
			}
		}
	}
	if over := board.Overcommitted(); over != "" {
		t.Fatalf("over capacity: %s", over)
	}
}

// randomCluster has several resources, fixed tasks, taints, priorities and silent jobs.
func randomCluster(seed uint64) *cluster {
	c := newCluster(seed)
	c.addNodes(2+c.random.IntN(6), 4, map[string]string{"topology.kubernetes.io/zone": "a"})
	c.addNodes(c.random.IntN(6), 4, map[string]string{"topology.kubernetes.io/zone": "b"})
	c.addNodes(c.random.IntN(4), 8, nil)
	tainted := len(c.nodes)
	c.addNodes(c.random.IntN(4), 4, nil)
	for _, node := range c.nodes[tainted:] {
		node.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
	}
	for range 3 + c.random.IntN(12) {
		c.addRandom()
	}
	if seed%2 == 1 {
		c.rack(2 + int(seed%3))
	}
	return c
}

// rack puts so many neighbouring nodes into a rack.
func (c *cluster) rack(nodes int) {
	for i, node := range c.nodes {
		labels := map[string]string{levels[1]: fmt.Sprint("rack-", i/nodes)}
		maps.Copy(labels, node.Labels)
		node.Labels = labels
	}
}

func (c *cluster) addRandom() {
	t := c.add(int32(1 + c.random.IntN(24)))
	t.min = 1 + int32(c.random.IntN(int(min(t.max, 4))))
	t.priority = int32(c.random.IntN(2))
	t.isSilent = c.random.IntN(5) == 0
	t.isLive = c.added%3 == 0
	switch c.random.IntN(6) {
	case 0:
		t.fixed = podOf(1, 2)
	case 1:
		t.fixed, t.elastic = podOf(0, 4), podOf(1, 2)
	case 2:
		t.elastic = podOf(0, int64(1+c.random.IntN(6)))
	case 3:
		t.elastic = podOf(1, 1, "team")
	case 4:
		t.fixed, t.elastic = podOf(2, 2), nil
	}
	if c.random.IntN(2) == 0 {
		t.group = fmt.Sprintf("group-%d", c.random.IntN(3))
	}
}
