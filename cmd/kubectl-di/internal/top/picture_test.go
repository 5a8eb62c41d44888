// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/test/testkit/picture"
)

// moment is what a job looks like at one time.
type moment struct {
	minutes           int
	collectors, ready int32
	rounds            int
	why               string
}

// viewOf returns the view of a job at a moment.
func viewOf(at moment) string {
	job := pong()
	job.Spec.Preemptible, job.Spec.Tasks[1].Replicas = false, ptr.To(at.collectors)
	job.Status = v2alpha1.DIJobStatus{
		Phase: v2alpha1.JobRunning, Replicas: at.collectors + 1, ReadyReplicas: at.ready + 1,
		Conditions: []v2alpha1.DIJobCondition{
			{Type: "Running", Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonJobRunning, Message: "all replicas are ready"},
		},
	}
	if at.why != "" {
		job.Status.Autoscaling = &v2alpha1.AutoscalingStatus{Ratio: &v2alpha1.RatioStatus{Reason: "Grown", Message: at.why}}
	}
	all := []cluster.Change{
		{Object: worker(v2alpha1.TaskTypeLearner, 0, "gpu-1", true)},
		{Object: happened("job", v2alpha1.ReasonJobRunning, "pong", "all replicas are ready", time.Minute)},
	}
	for index := range at.collectors {
		all = append(all, cluster.Change{Object: worker(v2alpha1.TaskTypeCollector, index, fmt.Sprintf("cpu-%d", 1+index%2), index < at.ready)})
	}
	for round := range at.rounds {
		reward := 20 * float64(round) / (20 + float64(round))
		report := fmt.Sprintf(`{"reward":{"mean":%.2f},"loss":%.3f,"samples/s":%d}`, reward-6, 2/(1+0.1*float64(round)), 800+40*(round/15))
		all = append(all, cluster.Change{Object: reported(job, report)})
	}
	return shown(size(100, 15), changed(all...), tick(began.Add(time.Duration(at.minutes)*time.Minute))).View().Content
}

// TestThePictureOfTheViewIsCurrent draws the view of a job that learns, and grows while it does.
func TestThePictureOfTheViewIsCurrent(t *testing.T) {
	t.Parallel()
	const grown = "from 2 to 4 producers"
	var views []string
	for _, at := range []moment{
		{minutes: 2, collectors: 2, ready: 2, rounds: 4},
		{minutes: 8, collectors: 2, ready: 2, rounds: 12},
		{minutes: 14, collectors: 4, ready: 2, rounds: 20, why: grown},
		{minutes: 15, collectors: 4, ready: 4, rounds: 24, why: grown},
		{minutes: 28, collectors: 4, ready: 4, rounds: 42, why: grown},
		{minutes: 42, collectors: 4, ready: 4, rounds: 60, why: grown},
	} {
		views = append(views, viewOf(at))
	}
	picture.Check(t, *update, "kubectl-di-top", "kubectl di top pong", views...)
}
