// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/observe"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
)

const mebibyte = 1 << 20

func TestPeaksAreTheHighestOfWhatWasMeasuredAndOfTheOptimizer(t *testing.T) {
	t.Parallel()
	job := trained()
	seen := observe.Observation{Job: job, Now: at(10)}
	var recorded record.Job
	expect := func(want ...record.Peak) {
		t.Helper()
		var err error
		if recorded, err = observe.Record(recorded, seen); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(recorded.Peaks, want) {
			t.Errorf("the peaks are %+v, want %+v", recorded.Peaks, want)
		}
	}
	expect()
	seen.Used = map[string]record.Peak{"worker": {CPU: 500, Memory: 100 * mebibyte}}
	expect(record.Peak{Task: "worker", CPU: 500, Memory: 100 * mebibyte})
	seen.Used = map[string]record.Peak{"worker": {CPU: 700, Memory: 90 * mebibyte}}
	expect(record.Peak{Task: "worker", CPU: 700, Memory: 100 * mebibyte})
	// A small step is not worth a write.
	seen.Used = map[string]record.Peak{"worker": {CPU: 700, Memory: 101 * mebibyte}}
	expect(record.Peak{Task: "worker", CPU: 700, Memory: 100 * mebibyte})
	seen.Used = nil
	job.Status.Autoscaling = &v2alpha1.AutoscalingStatus{Optimizer: &v2alpha1.OptimizerStatus{Peaks: []v2alpha1.TaskPeak{{Task: "worker", CPU: 600, Memory: 200 * mebibyte}}}}
	expect(record.Peak{Task: "worker", CPU: 700, Memory: 200 * mebibyte})
}

func TestAReplicaThatWasKilledOutOfMemoryNotesItsLimitOrItsRequest(t *testing.T) {
	t.Parallel()
	memory := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	}
	pod := corev1.Pod{}
	pod.UID, pod.Labels = "p", map[string]string{names.LabelTaskName: "worker"}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: memory("2Gi"), Requests: memory("1Gi")}}}
	killed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 1, LastTerminationState: killed}}
	for _, want := range []int64{2 << 30, 1 << 30} {
		recorded, err := observe.Record(record.Job{}, observe.Observation{Job: trained(), Pods: []corev1.Pod{pod}, Now: at(10)})
		if err != nil {
			t.Fatal(err)
		}
		if wanted := []record.Peak{{Task: "worker", Killed: want}}; !slices.Equal(recorded.Peaks, wanted) {
			t.Errorf("the peaks are %+v, want %+v", recorded.Peaks, wanted)
		}
		pod.Spec.Containers[0].Resources.Limits = nil
	}
}
