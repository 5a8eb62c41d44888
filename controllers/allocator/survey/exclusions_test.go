// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator/devices"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var start = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

func readyNode(name string, gpus string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse(gpus)},
	}}
}

// placedJob returns a job of collectors with one GPU each, by a limit alone.
func placedJob(nodes ...string) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "job", UID: "uid", CreationTimestamp: metav1.NewTime(start)}}
	job.Spec.Preemptible = true
	job.Spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(len(nodes)))}}
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","resources":{"limits":{"nvidia.com/gpu":1}}}]}}`)
	job.Status.Allocation = nodes
	return job
}

// podOf returns the pod of a rank, placed on a node and not scheduled yet.
func podOf(rank int, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "space", Name: fmt.Sprint("job-collector-", rank), UID: types.UID(fmt.Sprint("rank-", rank)), Labels: map[string]string{names.LabelTaskName: "collector"},
		Annotations: map[string]string{names.AnnotationNode: node, names.AnnotationRank: strconv.Itoa(rank)},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "di-container", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
	}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func runs(pod *corev1.Pod) { pod.Spec.NodeName = pod.Annotations[names.AnnotationNode] }

func unschedulableSince(since time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(since),
		}}
	}
}

// clusterOf returns a cluster of a job, its pods and nodes.
func clusterOf(job *v2alpha1.DIJob, pods []*corev1.Pod, nodes ...*corev1.Node) *Cluster {
	return &Cluster{
		Now: start, Jobs: []*v2alpha1.DIJob{job}, Pods: map[types.UID][]*corev1.Pod{job.UID: pods}, Nodes: nodes,
		Devices: &devices.Counted{}, Admission: &Admission{}, MaxPods: 100,
	}
}

// place decides about the only job of a cluster with the policy fit.
func place(t *testing.T, found *Cluster, memory *Memory) allocation.Placement {
	t.Helper()
	r, after := Take(found, *memory)
	*memory = after
	if len(r.Wanted) != 1 {
		t.Fatalf("the round has %d jobs: %+v", len(r.Wanted), r.Settled)
	}
	jobs := slices.Collect(maps.Values(r.Wanted))
	return allocation.Within(fit.Fit{}, &allocation.Round{
		Now: found.Now, Jobs: jobs, Nodes: r.Snapshot.Nodes, Previous: r.Previous, Quotas: r.Quotas,
	})[jobs[0].Name]
}

// placementOf returns the nodes of a job.
func placementOf(t *testing.T, memory *Memory, job *v2alpha1.DIJob, pods []*corev1.Pod, nodes []*corev1.Node, now time.Time) []string {
	t.Helper()
	found := clusterOf(job, pods, nodes...)
	found.Now = now
	return place(t, found, memory).Nodes
}

func TestRunningPodsKeepTheirNodesWhileADevicePluginRestarts(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{podOf(0, "a", runs), podOf(1, "a", runs)}
	got := placementOf(t, &Memory{}, placedJob("a", "a"), pods, []*corev1.Node{readyNode("a", "0"), readyNode("b", "4")}, start)
	expect.Equal(t, "nodes", []string{"a", "a"}, got)
}

func TestWhatAdmissionAddsToPodsCounts(t *testing.T) {
	t.Parallel()
	injected := func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("5")},
		}})
	}
	// Two such pods exceed the CPUs of node a, so the second cannot be recreated there.
	got := placementOf(t, &Memory{}, placedJob("a", "a"), []*corev1.Pod{podOf(0, "a", runs, injected)}, []*corev1.Node{readyNode("a", "4"), readyNode("b", "4")}, start)
	expect.Equal(t, "nodes", []string{"a", "b"}, got)
}

func TestANodeWhereAPodIsUnschedulableIsExcludedForAWhile(t *testing.T) {
	t.Parallel()
	nodes := []*corev1.Node{readyNode("a", "4"), readyNode("b", "4")}
	memory := &Memory{}
	at := func(job *v2alpha1.DIJob, after time.Duration, pods ...*corev1.Pod) string {
		return fmt.Sprint(placementOf(t, memory, job, pods, nodes, start.Add(after)))
	}
	// The clock of the scheduler is an hour behind.
	pending := podOf(0, "a", unschedulableSince(start.Add(-time.Hour)))
	for _, after := range []time.Duration{0, 2 * time.Minute} {
		if got := at(placedJob("a"), after, pending); got != "[a]" {
			t.Errorf("after %s, too soon, it gets %s", after, got)
		}
	}
	terminating := podOf(1, "a", runs, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: start} })
	if got := at(placedJob("a"), 3*time.Minute, pending, terminating); got != "[a]" {
		t.Errorf("while a pod terminates there it gets %s", got)
	}
	if got := at(placedJob("a"), 3*time.Minute, pending); got != "[b]" {
		t.Errorf("after the grace period it gets %s", got)
	}
	if got := at(placedJob(""), 32*time.Minute); got != "[b]" {
		t.Errorf("after the pod is gone it gets %s", got)
	}
	if got := at(placedJob(""), 33*time.Minute); got != "[a]" {
		t.Errorf("after the exclusion has expired it gets %s", got)
	}
	if _, after := Take(&Cluster{Devices: &devices.Counted{}, Admission: &Admission{}}, *memory); len(after.exclusions) > 0 {
		t.Errorf("exclusions of deleted jobs stay: %v", after.exclusions)
	}
}

func TestANodeIsLostAfterItWasObservedNotReadyForFiveMinutes(t *testing.T) {
	t.Parallel()
	lost := readyNode("a", "4")
	nodes, memory := []*corev1.Node{lost, readyNode("b", "4")}, &Memory{}
	unreadySince := func(since time.Time) {
		lost.Status.Conditions[0].Status, lost.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(since)
	}
	for _, step := range []struct {
		after time.Duration
		since time.Time
		want  string
	}{
		// The clock of the node is an hour behind, then ahead.
		{0, start.Add(-time.Hour), "a"},
		{5 * time.Minute, start.Add(-time.Hour), "a"},
		{6 * time.Minute, start.Add(-time.Minute), "a"},
		{11 * time.Minute, start.Add(-time.Minute), "a"},
		{12 * time.Minute, start.Add(-time.Minute), "b"},
		{13 * time.Minute, start.Add(time.Hour), "a"},
		{19 * time.Minute, start.Add(time.Hour), "b"},
	} {
		unreadySince(step.since)
		got := placementOf(t, memory, placedJob("a"), []*corev1.Pod{podOf(0, "a", runs)}, nodes, start.Add(step.after))
		expect.Equal(t, fmt.Sprint("nodes after ", step.after), []string{step.want}, got)
	}
}

func TestAPodThatIsUnschedulableEverywhereRestartsItsJobALimitedNumberOfTimes(t *testing.T) {
	t.Parallel()
	var nodes []*corev1.Node
	for i := range 3 * maxExcluded {
		nodes = append(nodes, readyNode(fmt.Sprintf("node-%02d", i), "4"))
	}
	memory, job, moves := &Memory{}, placedJob("node-00"), 0
	for round := range 2 * 29 {
		now := start.Add(time.Duration(round) * time.Minute / 2)
		pod := podOf(0, job.Status.Allocation[0], unschedulableSince(start), func(pod *corev1.Pod) { pod.UID = types.UID(strconv.Itoa(moves)) })
		got := placementOf(t, memory, job, []*corev1.Pod{pod}, nodes, now)
		if len(got) != 1 {
			t.Fatalf("round %d: it gets %v", round, got)
		}
		if got[0] != job.Status.Allocation[0] {
			job.Status.Allocation, moves = got, moves+1
		}
	}
	if moves != maxExcluded {
		t.Errorf("it moved %d times, want %d", moves, maxExcluded)
	}
}

func TestARankThatWaitsForAClosedNodeMovesAndTheOthersStay(t *testing.T) {
	t.Parallel()
	closed := readyNode("b", "4")
	closed.Spec.Unschedulable = true
	pods := []*corev1.Pod{podOf(0, "a", runs), podOf(1, "b")}
	got := placementOf(t, &Memory{}, placedJob("a", "b"), pods, []*corev1.Node{readyNode("a", "1"), closed, readyNode("c", "4")}, start)
	expect.Equal(t, "nodes", []string{"a", "c"}, got)
}

func TestAJobWaitsSinceItLostItsPlacement(t *testing.T) {
	t.Parallel()
	lost := placedJob()
	lost.Status.Conditions = []v2alpha1.DIJobCondition{{
		Type: v2alpha1.ConditionAllocated, Status: corev1.ConditionFalse, LastTransitionTime: &metav1.Time{Time: start.Add(time.Hour)},
	}}
	for name, tc := range map[string]struct {
		job  *v2alpha1.DIJob
		want time.Duration
	}{"new": {placedJob(), 2 * time.Hour}, "lost": {lost, time.Hour}, "placed": {placedJob("a"), 0}} {
		if got := waitingFor(tc.job, start.Add(2*time.Hour)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// The capacity of a placement that was released may be another job's already, while the pods have yet to go.
func TestPodsOfAReleasedPlacementAreNoPlacement(t *testing.T) {
	t.Parallel()
	allocated := func(status corev1.ConditionStatus) func(*v2alpha1.DIJob) {
		return func(job *v2alpha1.DIJob) {
			job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: v2alpha1.ConditionAllocated, Status: status, LastTransitionTime: &metav1.Time{Time: start}}}
		}
	}
	unplaced := func(pod *corev1.Pod) { delete(pod.Annotations, names.AnnotationNode) }
	for name, tc := range map[string]struct {
		change func(*v2alpha1.DIJob)
		pod    *corev1.Pod
		want   []string
	}{
		"released":                          {allocated(corev1.ConditionFalse), podOf(0, "a", runs), nil},
		"the status is lost":                {func(*v2alpha1.DIJob) {}, podOf(0, "a", runs), []string{"a"}},
		"an earlier release made the pods":  {allocated(corev1.ConditionFalse), podOf(0, "a", runs, unplaced), []string{"a"}},
		"released, and a pod has not begun": {allocated(corev1.ConditionFalse), podOf(0, "a"), nil},
	} {
		job := placedJob("a")
		job.Status.Allocation = nil
		tc.change(job)
		r, _ := Take(clusterOf(job, []*corev1.Pod{tc.pod}, readyNode("a", "1")), Memory{})
		expect.Equal(t, name+": the job is placed", 1, len(r.Wanted))
		expect.Equal(t, name+": on", tc.want, r.Previous[nameOf(job)])
	}
}

func TestOnlyAJobThatAsksForItIsResizedLive(t *testing.T) {
	t.Parallel()
	tasks := []v2alpha1.Task{{Name: "learner"}, {Name: "collector"}}
	for name, tc := range map[string]struct {
		elastic *v2alpha1.Elastic
		cluster []v2alpha1.ClusterSpec
		want    bool
	}{
		"Continue, and the last task":  {elastic: &v2alpha1.Elastic{Task: "collector", OnResize: v2alpha1.OnResizeContinue}, want: true},
		"Continue, and the first task": {elastic: &v2alpha1.Elastic{Task: "learner", OnResize: v2alpha1.OnResizeContinue}},
		"Restart":                      {elastic: &v2alpha1.Elastic{Task: "collector", OnResize: v2alpha1.OnResizeRestart}},
		"no choice":                    {elastic: &v2alpha1.Elastic{Task: "collector"}},
		"a fixed cluster": {
			elastic: &v2alpha1.Elastic{Task: "collector", OnResize: v2alpha1.OnResizeContinue},
			cluster: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch},
		},
	} {
		job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Tasks: tasks, Elastic: tc.elastic, ClusterSpec: tc.cluster}}
		if got := resizesLive(job, names.ElasticTask(&job.Spec)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
