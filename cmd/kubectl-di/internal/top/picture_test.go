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

// TestThePictureOfTheViewIsCurrent draws the view of a job that learns.
func TestThePictureOfTheViewIsCurrent(t *testing.T) {
	t.Parallel()
	job := pong()
	job.Spec.Preemptible, job.Spec.Tasks[1].Replicas = false, ptr.To[int32](4)
	job.Status = v2alpha1.DIJobStatus{
		Phase: v2alpha1.JobRunning, Replicas: 5, ReadyReplicas: 5,
		Conditions: []v2alpha1.DIJobCondition{
			{Type: "Running", Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonJobRunning, Message: "all 5 replicas are ready"},
		},
		Autoscaling: &v2alpha1.AutoscalingStatus{Ratio: &v2alpha1.RatioStatus{Reason: "Grown", Message: "from 2 to 4 producers"}},
	}
	all := []cluster.Change{
		{Object: worker(v2alpha1.TaskTypeLearner, 0, "gpu-1", true)},
		{Object: happened("job", v2alpha1.ReasonJobRunning, "pong", "all 5 replicas are ready", time.Minute)},
	}
	for index := range int32(4) {
		all = append(all, cluster.Change{Object: worker(v2alpha1.TaskTypeCollector, index, fmt.Sprintf("cpu-%d", 1+index%2), true)})
	}
	for round := range 60 {
		reward := 20 * float64(round) / (20 + float64(round))
		report := fmt.Sprintf(`{"reward":{"mean":%.2f},"loss":%.3f,"samples/s":%d}`, reward-6, 2/(1+0.1*float64(round)), 800+40*(round/15))
		all = append(all, cluster.Change{Object: reported(job, report)})
	}
	m := shown(size(100, 15), changed(all...), tick(began.Add(42*time.Minute)))
	picture.Check(t, *update, "kubectl-di-top", "kubectl di top pong", m.View().Content)
}
