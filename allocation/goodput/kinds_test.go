// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/goodput"
)

const deviceKey = "nvidia.com/gpu.product"

// mixed adds nodes of a type.
func (c *cluster) mixed(count, gpusEach int, device string) {
	c.addNodes(count, gpusEach, map[string]string{deviceKey: device})
}

// deviceOf returns the type of the nodes; empty if they are of several.
func (c *cluster) deviceOf(nodes []string) string {
	found := map[string]bool{}
	for _, node := range c.nodes {
		if slices.Contains(nodes, node.Name) {
			found[node.Labels[deviceKey]] = true
		}
	}
	if len(found) == 1 {
		return slices.Collect(maps.Keys(found))[0]
	}
	return ""
}

func TestAJobRunsOnDevicesOfOneType(t *testing.T) {
	for seed := range uint64(20) {
		c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
		c.mixed(1+c.random.IntN(3), 4, "slow")
		c.mixed(1+c.random.IntN(3), 4, "fast")
		c.mixed(1+c.random.IntN(3), 8, "huge")
		c.addNodes(1, 0, nil)
		for range 3 + c.random.IntN(10) {
			one := c.add(int32(1 + c.random.IntN(16)))
			one.speeds = map[string]float64{"slow": 1, "fast": 1 + 4*c.random.Float64(), "huge": 1 + 8*c.random.Float64()}
			one.isSilent = c.random.IntN(4) == 0
			one.isLive = c.random.IntN(3) == 0
			one.total = math.Inf(1)
		}
		for range 20 {
			round := c.round()
			answer := policy.Optimize(round)
			check(t, round, answer)
			for name, placement := range answer {
				if len(placement.Nodes) > 0 && c.deviceOf(placement.Nodes) == "" {
					t.Fatalf("seed %d: %s is on nodes of several types: %v", seed, name, placement.Nodes)
				}
			}
			c.apply(answer)
			c.train(20 + c.random.IntN(200))
		}
	}
}

func TestAJobGetsTheTypeThatItGainsBy(t *testing.T) {
	c, policy := newCluster(3), goodput.New(goodput.DefaultSettings())
	c.mixed(1, 1, "slow")
	c.mixed(1, 1, "fast")
	gains, other := c.add(1), c.add(1)
	gains.speeds = map[string]float64{"slow": 1, "fast": 5}
	other.speeds = map[string]float64{"slow": 1, "fast": 1.05}
	for _, one := range c.jobs {
		one.total, one.profiles = math.Inf(1), true
	}
	c.rounds(policy, 20)
	if c.deviceOf(gains.placed) != "fast" || c.deviceOf(other.placed) != "slow" {
		t.Errorf("the job that is five times as fast is on %v, the other on %v", gains.placed, other.placed)
	}
}

func TestAMessageSaysWhatAnotherTypeWouldGain(t *testing.T) {
	c, policy := newCluster(3), goodput.New(goodput.DefaultSettings())
	c.mixed(1, 1, "slow")
	c.mixed(1, 1, "fast")
	for _, times := range []float64{8, 2.2} {
		one := c.add(1)
		one.speeds, one.total, one.profiles = map[string]float64{"slow": 1, "fast": times}, math.Inf(1), true
	}
	c.rounds(policy, 20)
	answer := policy.Optimize(c.round())
	for i, want := range []string{
		"1 replica on 1 node",
		"1 replica on 1 node; the same on fast would gain about 100 %, less than a restart of 30s or what other jobs gain",
	} {
		if got := answer[types.NamespacedName{Namespace: "test", Name: c.jobs[i].name}].Message; got != want {
			t.Errorf("job %d: %q, want %q", i, got, want)
		}
	}
}

func TestAnUntriedTypeIsJudgedByTheJobsThatKnowIt(t *testing.T) {
	for _, times := range []float64{6, 1.0 / 6} {
		c, policy := newCluster(4), goodput.New(goodput.DefaultSettings())
		c.mixed(2, 1, "one")
		teacher, learner := c.add(1), c.add(1)
		for _, job := range c.jobs {
			job.speeds, job.total = map[string]float64{"one": 1, "other": times}, math.Inf(1)
		}
		teacher.profiles, teacher.elastic = true, podOf(1, 1)
		teacher.elastic.NodeSelector = map[string]string{deviceKey: "one"}
		c.rounds(policy, 5)
		c.mixed(1, 1, "other")
		c.rounds(policy, 20)
		if isThere := c.deviceOf(learner.placed) == "other"; isThere != (times > 1) {
			t.Errorf("a type that is %.2f times as fast by another job: the job is on %v", times, learner.placed)
		}
	}
}

func TestOneTypeIsDecidedAsIfNodesHadNone(t *testing.T) {
	for seed := range uint64(10) {
		plain, typed := randomCluster(seed), randomCluster(seed)
		for _, node := range typed.nodes {
			node.Labels = maps.Clone(node.Labels)
			if node.Labels == nil {
				node.Labels = map[string]string{}
			}
			node.Labels[deviceKey] = "only"
		}
		one, other := goodput.New(goodput.DefaultSettings()), goodput.New(goodput.DefaultSettings())
		for range 8 {
			first, second := one.Optimize(plain.round()), other.Optimize(typed.round())
			if !reflect.DeepEqual(first, second) {
				t.Fatalf("seed %d: one type decides\n%v, none\n%v", seed, second, first)
			}
			plain.apply(first)
			typed.apply(second)
			plain.train(60)
			typed.train(60)
		}
	}
}

func TestAJobStaysOnTheTypeThatItAsksFor(t *testing.T) {
	c, policy := newCluster(5), goodput.New(goodput.DefaultSettings())
	c.mixed(1, 4, "slow")
	c.mixed(1, 4, "fast")
	one := c.add(8)
	one.speeds, one.total, one.profiles = map[string]float64{"slow": 1, "fast": 9}, math.Inf(1), true
	one.elastic = podOf(1, 1)
	one.elastic.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: deviceKey, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"fast"}},
		}}},
	}}}
	for range 15 {
		c.apply(policy.Optimize(c.round()))
		c.train(60)
		if got := c.deviceOf(one.placed); got != "slow" {
			t.Fatalf("the job that forbids fast devices is on %q", got)
		}
	}
	if len(one.placed) != 4 {
		t.Errorf("the job has %d replicas, want all 4 of the slow type", len(one.placed))
	}
}
