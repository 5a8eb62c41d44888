// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// gpuQuota returns a quota on GPUs.
func gpuQuota(hard, used string) corev1.ResourceQuota {
	return corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse(hard)}},
		Status:     corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse(used)}},
	}
}

// elasticJob returns a job of 1 to 8 collectors with one GPU each.
func elasticJob(nodes ...string) *v2alpha1.DIJob {
	job := placedJob(nodes...)
	job.Spec.Tasks[0].Replicas = nil
	job.Spec.Elastic = &v2alpha1.Elastic{MinReplicas: ptr.To(int32(1)), MaxReplicas: ptr.To(int32(8))}
	return job
}

// within decides about one job in a namespace with quotas and limit ranges.
func within(t *testing.T, memory *Memory, admission *Admission, job *v2alpha1.DIJob, pods []*corev1.Pod, now time.Time) allocation.Placement {
	t.Helper()
	found := clusterOf(job, pods, readyNode("a", "8"))
	found.Now, found.Admission = now, admission
	return place(t, found, memory)
}

func with(quotas ...corev1.ResourceQuota) *Admission { return NewAdmission(quotas, nil) }

func TestAQuotaBoundsAPlacementAndPodsThatExistCountOnce(t *testing.T) {
	t.Parallel()
	running := func(count int) (pods []*corev1.Pod) {
		for rank := range count {
			pods = append(pods, podOf(rank, "a", runs))
		}
		return pods
	}
	for name, tc := range map[string]struct {
		hard, used string
		allocation []string
		pods       []*corev1.Pod
		want       int
	}{
		"a new job":                                    {"2", "0", nil, nil, 2},
		"others use a part":                            {"5", "3", nil, nil, 2},
		"its own pods count once":                      {"2", "2", []string{"a", "a"}, running(2), 2},
		"its pods beside others":                       {"4", "4", []string{"a", "a"}, running(2), 2},
		"two of eight pods exist":                      {"2", "2", []string{"a", "a", "a", "a", "a", "a", "a", "a"}, running(2), 2},
		"a pod is replaced and the used amount is old": {"2", "2", []string{"a", "a"}, running(1), 2},
		"nothing is left":                              {"2", "2", nil, nil, 0},
	} {
		got := within(t, &Memory{}, with(gpuQuota(tc.hard, tc.used)), elasticJob(tc.allocation...), tc.pods, start)
		if len(got.Nodes) != tc.want {
			t.Errorf("%s: %d replicas are placed, want %d: %s: %s", name, len(got.Nodes), tc.want, got.Reason, got.Message)
		}
		if isRefused := got.Reason == v2alpha1.ReasonQuotaExceeded; isRefused != (tc.want == 0) {
			t.Errorf("%s: reason %s", name, got.Reason)
		}
	}
}

func TestAPlacementWhosePodsAreRefusedShrinksToThoseThatExist(t *testing.T) {
	t.Parallel()
	job := elasticJob("a", "a", "a", "a")
	since := metav1.NewTime(start)
	job.Status.Conditions = []v2alpha1.DIJobCondition{{
		Type: v2alpha1.ConditionReplicaFailure, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonQuotaExceeded,
		Message: "pod job-collector-2 (collector) is refused: exceeded quota: hidden", LastTransitionTime: &since,
	}}
	job.Status.AllocationUsage = &v2alpha1.AllocationUsage{PlacedAt: ptr.To(metav1.NewMicroTime(start))}
	pods, known := []*corev1.Pod{podOf(0, "a", runs), podOf(1, "a", runs)}, &Memory{}
	sizeAt := func(job *v2alpha1.DIJob, admission *Admission, after time.Duration) int {
		return len(within(t, known, admission, job, pods, start.Add(after)).Nodes)
	}
	if got := sizeAt(job, &Admission{}, 10*time.Second); got < 4 {
		t.Errorf("at once it has %d replicas, want at least 4: the pods of a former placement may still go", got)
	}
	got := within(t, known, &Admission{}, job, pods, start.Add(time.Minute))
	if len(got.Nodes) != 2 || got.Message != "2 replicas on 1 node; 8 of task  are desired: "+job.Status.Conditions[0].Message {
		t.Errorf("after the grace period: %+v", got)
	}
	if got := sizeAt(elasticJob("a", "a"), &Admission{}, 20*time.Minute); got != 2 {
		t.Errorf("it gets %d replicas, want 2: each attempt restarts it", got)
	}
	pods = nil
	if got := sizeAt(elasticJob(), &Admission{}, 32*time.Minute); got != 8 {
		t.Errorf("after half an hour it gets %d replicas, want 8", got)
	}
	known = &Memory{refusals: refusals{job.UID: {allocation.Bound{Replicas: 2}, start.Add(time.Hour), ""}}}
	if got := sizeAt(elasticJob(), with(gpuQuota("9", "0")), 2*time.Minute); got != 8 {
		t.Errorf("after a change of the quotas it gets %d replicas, want 8", got)
	}
}

func TestALimitRangeSetsRequestsAndKeepsPodsThatItForbidsFromBeingPlaced(t *testing.T) {
	t.Parallel()
	limits := func(item corev1.LimitRangeItem) *Admission {
		return &Admission{ranges: map[string][]*corev1.LimitRange{"space": {{
			ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
		}}}}
	}
	cpu := func(amount string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(amount)} }
	// The node has 8 CPUs, so 3 of the default fit twice.
	if got := within(t, &Memory{}, limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: cpu("3")}), elasticJob(), nil, start); len(got.Nodes) != 2 {
		t.Errorf("%d replicas are placed, want 2: %s", len(got.Nodes), got.Message)
	}
	want := allocation.Placement{Reason: v2alpha1.ReasonQuotaExceeded, Message: fmt.Sprintf(
		"the API server does not admit the least replicas: task %s: limit range small: container di-container must request at least 1 of cpu", "collector")}
	expect.Equal(t, "placement", want, within(t, &Memory{}, limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpu("1")}), elasticJob(), nil, start))
}
