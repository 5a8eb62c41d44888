// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// following returns a job whose ratio rule asks for a number of producers.
func following(asked int32) *v2alpha1.DIJob {
	job := elasticJob()
	job.Spec.Tasks[0].Name = "collector"
	job.Spec.Autoscale = &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{}}
	job.Status.Autoscaling = &v2alpha1.AutoscalingStatus{Ratio: &v2alpha1.RatioStatus{
		ProducerCapacity: 20_000, ConsumerCapacity: 60_000, Replicas: map[string]int32{"collector": asked},
	}}
	return job
}

func TestAJobGetsNoMoreProducersThanItsRatioRuleAsksFor(t *testing.T) {
	t.Parallel()
	nodes := []*corev1.Node{readyNode("a", "8")}
	withoutRule, undecided := following(3), following(3)
	withoutRule.Spec.Autoscale, undecided.Status.Autoscaling = nil, nil
	for name, tc := range map[string]struct {
		job  *v2alpha1.DIJob
		want int
	}{
		"asked":                        {following(3), 3},
		"fewer than the minimum":       {following(0), 1},
		"more than the maximum":        {following(100), 8},
		"before the first decision":    {undecided, 8},
		"after the rule is taken away": {withoutRule, 8},
	} {
		if got := place(t, clusterOf(tc.job, nil, nodes...), &Memory{}); len(got.Nodes) != tc.want {
			t.Errorf("%s: %d replicas, want %d: %s", name, len(got.Nodes), tc.want, got.Message)
		}
	}
}

func TestTheRatioRuleTellsWhatEachProducerAdds(t *testing.T) {
	t.Parallel()
	got := Completed(following(3), nil, 4)
	expect.Equal(t, "throughput", []profilings.Rate{{Nodes: 1, Replicas: 1, PerSecond: 20}, {Nodes: 1, Replicas: 4, PerSecond: 80}}, got.Throughput)
	progress := &profilings.Report{Progress: &profilings.Progress{}}
	if got := Completed(following(3), progress, 1); got.Progress != progress.Progress || len(got.Throughput) != 1 || len(progress.Throughput) > 0 {
		t.Errorf("a report of progress becomes %+v, want the progress and one rate", got)
	}
	own := &profilings.Report{Throughput: []profilings.Rate{{Nodes: 1, Replicas: 2, PerSecond: 30}}}
	if got := Completed(following(3), own, 4); got != own {
		t.Errorf("a report of throughput becomes %+v", got)
	}
	for _, capacity := range []int64{0, -1, math.MaxInt64} {
		job := following(3)
		job.Status.Autoscaling.Ratio.ProducerCapacity = capacity
		if got := Completed(job, nil, 4); got != nil {
			t.Errorf("a capacity of %d becomes %+v", capacity, got)
		}
	}
}
