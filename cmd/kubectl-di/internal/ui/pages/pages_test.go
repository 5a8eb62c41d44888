// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// learner returns a worker-led job whose learners request GPUs.
func learner(name string, replicas int32, gpus int) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: name}}
	job.Spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner, Replicas: &replicas}}
	job.Spec.Tasks[0].Template.Raw = fmt.Appendf(nil, `{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"%d"}}}]}}`, gpus)
	job.Status.Phase, job.Status.ObservedGeneration = v2alpha1.JobRunning, 1
	return job
}

func TestAWaitingJobSaysWhyAndWhatWouldLetItRun(t *testing.T) {
	t.Parallel()
	blocked := func(kind string, status corev1.ConditionStatus, reason, message string) func(*v2alpha1.DIJob) {
		return func(job *v2alpha1.DIJob) {
			job.Status.Phase = v2alpha1.JobPending
			job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: kind, Status: status, Reason: reason, Message: message}}
		}
	}
	for _, c := range []struct {
		name        string
		change      func(*v2alpha1.DIJob)
		why, remedy string
	}{
		{"running", func(*v2alpha1.DIJob) {}, "", ""},
		{"finished", func(job *v2alpha1.DIJob) { job.Status.Phase = v2alpha1.JobFailed }, "", ""},
		{"suspended", func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) }, "The job is suspended.", "Resume the job."},
		{"not observed", func(job *v2alpha1.DIJob) { job.Status = v2alpha1.DIJobStatus{} }, "The operator has not observed the job.", "Check that the operator runs"},
		{"without room", blocked(v2alpha1.ConditionAllocated, corev1.ConditionFalse, v2alpha1.ReasonInsufficientCapacity, "needs 4 GPUs"),
			"needs 4 GPUs", "GPUs that the job requests: 4."},
		{"without an image", blocked(v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, v2alpha1.ReasonImagePull, "no image"), "no image", "Correct the image's name"},
		{"without requests", blocked(v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue, v2alpha1.ReasonResourcesMissing, "failed quota: q: must specify requests.cpu for: di-container"),
			"failed quota", "Set the requests and limits"},
		{"outside of a LimitRange", blocked(v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue, v2alpha1.ReasonLimitRangeViolation, "maximum cpu usage per Container is 1, but limit is 2"),
			"maximum cpu", "LimitRange"},
		{"without GPUs", blocked(v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, v2alpha1.ReasonUnschedulable, "no node is available: Insufficient nvidia.com/gpu"),
			"no node", "GPUs that the job requests: 4."},
		{"without CPUs", blocked(v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, v2alpha1.ReasonUnschedulable, "no node is available: Insufficient cpu"),
			"no node", "request less CPU"},
		{"of another controller", func(job *v2alpha1.DIJob) { job.Spec.ManagedBy = ptr.To("example.com/other") }, "Controller example.com/other runs this job", "spec.managedBy"},
		{"allocated", blocked(v2alpha1.ConditionAllocated, corev1.ConditionTrue, "Allocated", "placed"), "The job has no pods yet.", ""},
	} {
		job := learner("pong", 2, 2)
		c.change(job)
		row := Row(job)
		waiting := Waiting(job, row.GPUs)
		if c.why == "" {
			if waiting != nil {
				t.Errorf("%s: the job waits: %+v", c.name, waiting)
			}
			continue
		}
		if waiting == nil || !strings.HasPrefix(waiting.Why, c.why) || !strings.Contains(strings.Join(waiting.Remedies, " "), c.remedy) {
			t.Errorf("%s: got %+v, want %q and %q", c.name, waiting, c.why, c.remedy)
		}
	}
}

func TestAJobKeepsTheWholeTextOfItsFailureAndItsCreator(t *testing.T) {
	t.Parallel()
	job := learner("pong", 2, 2)
	job.Annotations = map[string]string{names.AnnotationCreator: "jane"}
	text := strings.Repeat("  File \"train.py\", line 12\n", 30) + "ValueError: the shapes differ"
	job.Status.LastFailure = &v2alpha1.LastFailure{Pod: "pong-learner-0", Reason: "Error", Message: text, Time: ptr.To(metav1.Now())}
	detail := Detail(&Observed{Observed: jobview.Observed{Job: job}})
	if detail.Job.Creator != "jane" {
		t.Errorf("the creator is %q", detail.Job.Creator)
	}
	at := slices.IndexFunc(detail.Timeline, func(moment api.Moment) bool { return moment.Kind == "failure" })
	if at < 0 || !strings.HasSuffix(detail.Timeline[at].Text, "\nValueError: the shapes differ") {
		t.Errorf("the timeline is %+v", detail.Timeline)
	}
}

func TestAnActionThatIsNotPossibleSaysWhy(t *testing.T) {
	t.Parallel()
	rights := map[string]bool{"suspend": true, "resume": true, "restart": true, "delete": true}
	for change, want := range map[string]map[string]string{
		"none":      {"suspend": "", "resize": "You do not have the right.", "restart": "", "delete": ""},
		"suspended": {"resume": "", "resize": "You do not have the right.", "restart": "The job is suspended.", "delete": ""},
		"finished":  {"delete": ""},
	} {
		job := learner("pong", 2, 0)
		switch change {
		case "suspended":
			job.Spec.Suspend = ptr.To(true)
		case "finished":
			job.Status.Phase = v2alpha1.JobSucceeded
		}
		saysWhy(t, change, Actions(job, nil, []api.Part{{Pod: "pong-learner-0", Restartable: true}}, rights), want)
	}
}

func TestWhoHasNoRightIsNotToldThatNoPodExists(t *testing.T) {
	t.Parallel()
	want := map[string]string{"suspend": noRight, "resize": noRight, "restart": noRight, "delete": noRight}
	saysWhy(t, "no rights, no pods", Actions(learner("pong", 2, 0), nil, nil, nil), want)
}

// saysWhy compares the actions that are offered, and the reasons of those that are not possible.
func saysWhy(t *testing.T, what string, actions []api.Action, want map[string]string) {
	t.Helper()
	if len(actions) != len(want) {
		t.Errorf("%s: the actions are %+v, want %v", what, actions, want)
	}
	for _, action := range actions {
		if why, isWanted := want[action.Name]; !isWanted || action.Reason != why || action.Allowed != (why == "") {
			t.Errorf("%s: action %s is %+v, want %q", what, action.Name, action, why)
		}
	}
}

// led returns a coordinator-led job with two collectors and a learner of three GPUs, its Membership and its pods.
func led(t *testing.T) (job *v2alpha1.DIJob, list *v2alpha1.Membership, pods []*corev1.Pod) {
	t.Helper()
	job = &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "pong", UID: "1"}}
	job.Spec.Lifecycle, job.Status.Phase = v2alpha1.LifecycleCoordinatorLed, v2alpha1.JobRunning
	for _, kind := range []v2alpha1.TaskType{v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		job.Spec.Tasks = append(job.Spec.Tasks, v2alpha1.Task{Type: kind})
	}
	list = &v2alpha1.Membership{Spec: v2alpha1.MembershipSpec{JobUID: job.UID, Members: []v2alpha1.Member{
		{Slot: "a", Task: v2alpha1.TaskTypeCollector, PodName: "pong-collector-a"},
		{Slot: "b", Task: v2alpha1.TaskTypeCollector, PodName: "pong-collector-b"},
		{Slot: "c", Task: v2alpha1.TaskTypeLearner, PodName: "pong-aggregator-c", DDPGPUs: []int32{2, 1}},
	}}}
	for name, role := range map[string]names.ReplicaType{
		"pong-coordinator": names.ReplicaTypeCoordinator, "pong-collector-a": names.ReplicaTypeCollector, "pong-collector-lost": names.ReplicaTypeCollector,
		"pong-aggregator-c": names.ReplicaTypeAggregator, "pong-ddp-learner-c-0": names.ReplicaTypeDDPLearner,
	} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "rl", Name: name, Labels: names.ReplicaLabels("pong", role, name),
			OwnerReferences: jobs.Owner(job),
		}})
	}
	return job, list, pods
}

func partsOf(job *v2alpha1.DIJob, pods []*corev1.Pod, list *v2alpha1.Membership) []api.Part {
	return Parts(job, jobview.Of(&jobview.Observed{Job: job, Pods: pods, Members: jobview.ReadMembers(list)}), list)
}

func TestOnlyMembersOfACoordinatorLedJobAreResizedAndRestarted(t *testing.T) {
	t.Parallel()
	job, list, pods := led(t)
	var restartable []string
	for _, part := range partsOf(job, pods, list) {
		if part.Restartable {
			restartable = append(restartable, part.Name)
		}
	}
	if want := []string{"collector-a", "aggregator-c"}; !slices.Equal(restartable, want) {
		t.Errorf("restartable are %q, want %q", restartable, want)
	}
	tasks := Resizables(job, list)
	if want := []api.Resizable{{Task: "collector", Replicas: 2}, {Task: "learner", Replicas: 1}}; !slices.Equal(tasks, want) {
		t.Errorf("resizable are %+v, want %+v", tasks, want)
	}
	for count, want := range map[int32]string{
		3: "Replicas that are added: 2, with GPUs: 6.", 0: "Replicas that are removed: 1. GPUs that become free: 3.",
	} {
		if effects := ResizeEffects(job, list, &tasks[1], count); effects[1] != want {
			t.Errorf("%d learners: %q, want %q", count, effects, want)
		}
	}
	if effects := SuspendEffects(job, list); !slices.Contains(effects, "GPUs that become free: 3.") {
		t.Errorf("suspending does %q", effects)
	}
}

func TestACoordinatorLedJobSaysWhyItIsNotResizedOrRestarted(t *testing.T) {
	t.Parallel()
	rights := map[string]bool{"suspend": true, "resume": true, "resize": true, "restart": true, "delete": true}
	const noPod = "No collector or learner has a pod, and a coordinator cannot be restarted alone."
	for change, want := range map[string]map[string]string{
		"none":       {"suspend": "", "resize": "", "restart": "", "delete": ""},
		"no members": {"suspend": "", "restart": noPod, "resize": "No task has replicas yet: the coordinator requests the first one of each task.", "delete": ""},
		"suspended":  {"resume": "", "restart": "The job is suspended.", "resize": "The job is suspended.", "delete": ""},
		"ratio":      {"suspend": "", "resize": "The ratio rule in spec.autoscale.ratio sets the number of replicas.", "restart": "", "delete": ""},
	} {
		job, list, pods := led(t)
		switch change {
		case "no members":
			list.Spec.Members = nil
		case "suspended":
			job.Spec.Suspend = ptr.To(true)
		case "ratio":
			list.Spec.Members = list.Spec.Members[:2]
			job.Spec.Autoscale = &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{Producers: []v2alpha1.ProducerPool{{Task: "collector"}}}}
		}
		saysWhy(t, change, Actions(job, list, partsOf(job, pods, list), rights), want)
	}
}

func TestNodesSayWhoHoldsTheirGPUs(t *testing.T) {
	t.Parallel()
	node := func(name string, gpus string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{names.DefaultGPU: resource.MustParse(gpus)},
		}}
	}
	use := func(on, job string, gpus int64, active bool) *PodUse {
		return &PodUse{ObjectMeta: metav1.ObjectMeta{Namespace: "rl"}, Node: on, Job: job, GPUs: gpus, Active: active}
	}
	page := Cluster(&ClusterState{
		Nodes: []*corev1.Node{node("small", "2"), node("large", "8")},
		Pods: []*PodUse{
			use("large", "pong", 2, true), use("large", "pong", 2, true), use("large", "breakout", 1, true), use("large", "", 1, true),
			use("large", "ended", 4, false), use("", "unbound", 4, true), use("gone", "lost", 4, true),
		},
	})
	if want := (api.GPUs{Total: 10, Used: 6, Free: 4}); page.GPUs != want {
		t.Errorf("the cluster has %+v, want %+v", page.GPUs, want)
	}
	if page.Nodes[0].Name != "large" || page.Nodes[1].GPUs.Free != 2 {
		t.Errorf("the nodes are %+v", page.Nodes)
	}
	want := []api.Share{{Namespace: "rl", Name: "pong", Pods: 2, GPUs: 4}, {Pods: 1, GPUs: 1}, {Namespace: "rl", Name: "breakout", Pods: 1, GPUs: 1}}
	if !slices.Equal(page.Nodes[0].Jobs, want) {
		t.Errorf("the GPUs are held by %+v, want %+v", page.Nodes[0].Jobs, want)
	}
}

func TestTeamsCountTheJobsThatHaveNotFinishedAndWhatTheirPodsHold(t *testing.T) {
	t.Parallel()
	var state ClusterState
	for name, phase := range map[string]v2alpha1.Phase{"a": v2alpha1.JobRunning, "b": v2alpha1.JobPending, "c": v2alpha1.JobSucceeded} {
		job := learner(name, 2, 2)
		job.Status.Phase, job.Spec.Group = phase, "sweep"
		job.Spec.Scheduling = &v2alpha1.Scheduling{Queue: "team"}
		row := Row(job)
		state.Jobs = append(state.Jobs, Job{job, &row})
	}
	for _, on := range []string{"large", "large", ""} {
		state.Pods = append(state.Pods, &PodUse{ObjectMeta: metav1.ObjectMeta{Namespace: "rl"}, Node: on, Job: "a", GPUs: 2, CPU: 500, Memory: 1 << 30, Active: true})
	}
	var want []api.Team
	for kind, name := range map[string]string{"group": "sweep", "namespace": "rl", "queue": "team"} {
		want = append(want, api.Team{Kind: kind, Namespace: "rl", Name: name, Jobs: 2, Waiting: 1, GPUs: 4, CPU: 1000, Memory: 2 << 30})
	}
	slices.SortFunc(want, func(a, b api.Team) int { return strings.Compare(a.Kind, b.Kind) })
	if got := Cluster(&state).Teams; !slices.Equal(got, want) {
		t.Errorf("the teams are %+v, want %+v", got, want)
	}
}

func TestNodesAreSummedUpByTheProductOfTheirGPUs(t *testing.T) {
	t.Parallel()
	node := func(name, product, gpus string) *corev1.Node {
		one := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelProduct: product}}}
		one.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		one.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("64Gi")}
		if gpus != "" {
			one.Status.Allocatable[names.DefaultGPU] = resource.MustParse(gpus)
		}
		return one
	}
	use := func(on string, gpus int64) *PodUse {
		return &PodUse{ObjectMeta: metav1.ObjectMeta{Namespace: "rl"}, Node: on, Job: "pong", GPUs: gpus, CPU: 2000, Memory: 4 << 30, Active: true}
	}
	cordoned := node("cordoned", "A100", "8")
	cordoned.Spec.Unschedulable = true
	page := Cluster(&ClusterState{
		Nodes: []*corev1.Node{node("a", "A100", "8"), node("b", "A100", "8"), node("c", "", "4"), node("d", "", ""), cordoned},
		Pods:  []*PodUse{use("a", 2), use("a", 2), use("b", 2), use("b", 5), use("c", 3)},
	})
	got := map[string]string{}
	for _, one := range page.Types {
		got[one.Name] = fmt.Sprintf("%d nodes, %d of %d GPUs, %d of %d CPU", one.Nodes, one.GPUs.Used, one.GPUs.Total, one.CPU.Requested, one.CPU.Allocatable)
	}
	want := map[string]string{
		"A100": "3 nodes, 11 of 24 GPUs, 8000 of 30000 CPU", string(names.DefaultGPU): "1 nodes, 3 of 4 GPUs, 2000 of 10000 CPU", "": "1 nodes, 0 of 0 GPUs, 0 of 10000 CPU",
	}
	if !maps.Equal(got, want) {
		t.Errorf("the types are %v, want %v", got, want)
	}
	// Most pods request two GPUs. Node a has four left, b and c one each, and nothing starts on a cordoned node.
	if fit := page.Fit; fit == nil || *fit != (api.Fit{GPUs: 2, CPU: 2000, Memory: 4 << 30, Pods: 2, Nodes: 1, Stranded: 10}) {
		t.Errorf("what fits is %+v", fit)
	}
}

func TestJobsThatWaitForRoomAreInLineByPriorityAndAge(t *testing.T) {
	t.Parallel()
	var state ClusterState
	for i, name := range []string{"old", "young", "urgent", "broken", "paused"} {
		job := learner(name, 1, 1)
		job.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
		job.Status.Phase = v2alpha1.JobPending
		reason := map[string]string{"broken": v2alpha1.ReasonImagePull}[name]
		kind, status := v2alpha1.ConditionAllocated, corev1.ConditionFalse
		if reason != "" {
			kind, status = v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue
		}
		job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: kind, Status: status, Reason: cmp.Or(reason, v2alpha1.ReasonInsufficientCapacity)}}
		switch name {
		case "urgent":
			job.Spec.Priority = v2alpha1.PriorityHigh
		case "paused":
			job.Spec.Suspend = ptr.To(true)
		}
		row := Row(job)
		state.Jobs = append(state.Jobs, Job{job, &row})
	}
	var got []string
	for _, one := range Cluster(&state).Waiting {
		got = append(got, fmt.Sprintf("%d %s %t", one.Place, one.Name, one.Suspended))
	}
	if want := []string{"1 urgent false", "2 old false", "3 young false", "0 broken false", "0 paused true"}; !slices.Equal(got, want) {
		t.Errorf("the line is %q, want %q", got, want)
	}
}

func TestAJobCostsWhatItsPodsRequestForAsLongAsTheyRan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	pod := func(phase corev1.PodPhase, began time.Duration, gpus string) *corev1.Pod {
		one := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		if began > 0 {
			one.Status.StartTime = ptr.To(metav1.NewTime(now.Add(-began)))
		}
		one.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("2Gi")},
			Limits:   corev1.ResourceList{names.DefaultGPU: resource.MustParse(gpus)},
		}}}
		return one
	}
	ended := pod(corev1.PodFailed, 3*time.Hour, "2")
	ended.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-2 * time.Hour))}}}}
	job := learner("pong", 2, 2)
	of := func(pods ...*corev1.Pod) *cost.Cost {
		return Detail(&Observed{Observed: jobview.Observed{Job: job, Pods: pods, Now: now}}).Cost
	}
	// One ran for an hour, one has run for four, and one has not started.
	want := cost.Cost{Pods: 2, PodHours: 5, CPUHours: 2.5, MemoryHours: 10, GPUHours: 6}
	if got := of(ended, pod(corev1.PodRunning, 4*time.Hour, "1"), pod(corev1.PodPending, 0, "8")); got == nil || *got != want {
		t.Errorf("the cost is %+v, want %+v", got, want)
	}
	want = cost.Cost{Pods: 1, PodHours: 1.23, CPUHours: 0.617, MemoryHours: 2.47}
	if got := of(pod(corev1.PodRunning, 4444*time.Second, "0")); got == nil || *got != want {
		t.Errorf("the cost in three digits is %+v, want %+v", got, want)
	}
	if got := of(pod(corev1.PodPending, 0, "8")); got != nil {
		t.Errorf("a job without a started pod costs %+v", got)
	}
}

func TestAJobWithGPUsSaysWhoIsInLineForThem(t *testing.T) {
	t.Parallel()
	var others []Job
	for name, gpus := range map[string]int{"waiting": 2, "without": 0, "pong": 2} {
		job := learner(name, 1, gpus)
		job.Status.Phase = v2alpha1.JobPending
		job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: v2alpha1.ConditionAllocated, Status: corev1.ConditionFalse, Reason: v2alpha1.ReasonInsufficientCapacity}}
		row := Row(job)
		others = append(others, Job{job, &row})
	}
	job := learner("pong", 2, 2)
	job.Status.Replicas, job.Status.ReadyReplicas = 2, 2
	row := Row(job)
	if got := Awaited(&row, others); len(got) != 1 || got[0].Name != "waiting" {
		t.Errorf("in line are %+v", got)
	}
	row.Ready = 0
	if got := Awaited(&row, others); len(got) != 0 {
		t.Errorf("in line for what no replica holds are %+v", got)
	}
}

func TestTheTypesOfGPUsAreThoseThatTheTemplatesName(t *testing.T) {
	t.Parallel()
	job := learner("pong", 1, 2)
	if got := Row(job).GPUType; got != "" {
		t.Errorf("without a selector the type is %q", got)
	}
	job.Spec.Tasks = append(job.Spec.Tasks, *job.Spec.Tasks[0].DeepCopy(), *job.Spec.Tasks[0].DeepCopy())
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"nodeSelector":{"nvidia.com/gpu.product":"A100"},"containers":[{"resources":{"limits":{"nvidia.com/gpu":1}}}]}}`)
	job.Spec.Tasks[1].Template.Raw = []byte(`{"spec":{"containers":[{"resources":{"limits":{"amd.com/gpu":"1"}}}]}}`)
	if got := Row(job).GPUType; got != "A100, amd.com/gpu" {
		t.Errorf("the type is %q", got)
	}
}

func TestCurvesCoverTheWholeTimeInFewPoints(t *testing.T) {
	t.Parallel()
	var history History
	job := learner("pong", 1, 0)
	begun := time.Unix(1_700_000_000, 0)
	for i := range 1000 {
		job.Status.Profilings = &v2alpha1.RawObject{}
		job.Status.Profilings.Raw = fmt.Appendf(nil, `{"reward": %d}`, i)
		history.Record(job, begun.Add(time.Duration(i)*time.Second))
	}
	curves := history.Curves()
	if len(curves) != 1 || len(curves[0].Points) > mostPoints || len(curves[0].Points) < mostPoints/2 {
		t.Fatalf("the curves are %+v", curves)
	}
	points := curves[0].Points
	if points[0][1] != 0 || points[len(points)-1][1] != 999 || !slices.IsSortedFunc(points, func(a, b [2]float64) int { return int(a[0] - b[0]) }) {
		t.Errorf("the points are %v", points)
	}
}

func TestTheCurveThatMattersIsTheRewardOrWhatTheReportNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ report, want string }{
		"a reward":                         {`{"accuracy": 1, "mean_return": 2, "throughput": [{"replicas": 1, "per_second": 3}]}`, "mean_return throughput accuracy"},
		"none, so what is known to matter": {`{"accuracy": 1, "throughput": [{"replicas": 1, "per_second": 3}]}`, "throughput accuracy"},
		"what is named":                    {`{"curve": "success", "accuracy": 1, "mean_return": 2, "success": 3}`, "success mean_return accuracy"},
		"a name of progress":               {`{"curve": "progress", "accuracy": 1, "progress": {"done": 3}}`, "progress accuracy"},
		"a name of nothing":                {`{"curve": "nothing", "accuracy": 1, "mean_return": 2}`, "mean_return accuracy"},
		"no name":                          {`{"curve": 7, "accuracy": 1}`, "accuracy curve"},
	} {
		var history History
		job := learner("pong", 1, 0)
		job.Status.Profilings = &v2alpha1.RawObject{}
		job.Status.Profilings.Raw = []byte(c.report)
		history.Record(job, time.Unix(1_700_000_000, 0))
		var got []string
		for _, curve := range history.Curves() {
			if curve.X == "" {
				got = append(got, curve.Name)
			}
		}
		if best := history.Best(); strings.Join(got, " ") != c.want || best.Name != got[0] {
			t.Errorf("%s: got %s and best %s, want %s", name, got, best.Name, c.want)
		}
	}
}

func TestANameThatComesLaterCounts(t *testing.T) {
	t.Parallel()
	var history History
	job := learner("pong", 1, 0)
	for i, report := range []string{`{"accuracy": 1, "loss": 5}`, `{"curve": "loss", "accuracy": 2, "loss": 4}`} {
		job.Status.Profilings = &v2alpha1.RawObject{}
		job.Status.Profilings.Raw = []byte(report)
		history.Record(job, time.Unix(1_700_000_000+int64(i), 0))
	}
	if best := history.Best(); best.Name != "loss" || len(best.Points) != 2 || history.Last() != 4 {
		t.Errorf("got %+v", best)
	}
}

func TestAHostileReportIsBounded(t *testing.T) {
	t.Parallel()
	var history History
	job := learner("pong", 1, 0)
	fields := make([]string, 0, 1000)
	for i := range 1000 {
		fields = append(fields, fmt.Sprintf(`"number-%04d": %d`, i, i))
	}
	steps := strings.Repeat(`{"replicas": 1, "per_second": 2},`, 1000)
	for _, report := range []string{
		`{` + strings.Join(fields, ",") + `}`, `{"throughput": [` + strings.TrimSuffix(steps, ",") + `]}`,
		`{"reward": 1e999}`, `{"reward": "x"}`, `[]`, `nonsense`, ``, strings.Repeat(`{"a":`, 20_000),
	} {
		job.Status.Profilings = &v2alpha1.RawObject{}
		job.Status.Profilings.Raw = []byte(report)
		history.Record(job, time.Unix(1_700_000_000, 0))
	}
	curves := history.Curves()
	if len(curves) > mostCurves+1 {
		t.Errorf("there are %d curves", len(curves))
	}
	for _, curve := range curves {
		if len(curve.Points) > mostPoints || slices.ContainsFunc(curve.Points, func(p [2]float64) bool { return math.IsInf(p[1], 0) || math.IsNaN(p[1]) }) {
			t.Errorf("curve %s has points %v", curve.Name, curve.Points)
		}
	}
}
