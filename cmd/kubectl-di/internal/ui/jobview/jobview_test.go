// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"fmt"
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
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
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
			"needs 4 GPUs", "4 GPUs become free"},
		{"without an image", blocked(v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, v2alpha1.ReasonImagePull, "no image"), "no image", "Correct the image's name"},
		{"of another controller", func(job *v2alpha1.DIJob) { job.Spec.ManagedBy = ptr.To("example.com/other") }, "Controller example.com/other runs this job", "spec.managedBy"},
		{"allocated", blocked(v2alpha1.ConditionAllocated, corev1.ConditionTrue, "Allocated", "placed"), "The job has no pods yet.", ""},
	} {
		job := learner("pong", 2, 2)
		c.change(job)
		row := Row(job)
		waiting := Waiting(job, &row)
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

func TestAnActionThatIsNotPossibleSaysWhy(t *testing.T) {
	t.Parallel()
	rights := map[string]bool{"suspend": true, "resume": true, "restart": true, "delete": true}
	for change, want := range map[string]map[string]string{
		"none": {"resume": "The job is not suspended.", "resize": "You do not have the right."},
		"suspended": {"suspend": "The job is suspended.", "restart": "The job is suspended.",
			"resize": "You do not have the right."},
		"finished": {"suspend": "The job has finished: Succeeded.", "resume": "The job has finished: Succeeded.",
			"resize": "The job has finished: Succeeded.", "restart": "The job has finished: Succeeded."},
	} {
		job := learner("pong", 2, 0)
		switch change {
		case "suspended":
			job.Spec.Suspend = ptr.To(true)
		case "finished":
			job.Status.Phase = v2alpha1.JobSucceeded
		}
		for _, action := range Actions(job, rights) {
			if why := want[action.Name]; action.Reason != why || action.Allowed != (why == "") {
				t.Errorf("%s: action %s is %+v, want %q", change, action.Name, action, why)
			}
		}
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

func TestQueuesCountTheJobsThatHaveNotFinished(t *testing.T) {
	t.Parallel()
	var state ClusterState
	for name, phase := range map[string]v2alpha1.Phase{"a": v2alpha1.JobRunning, "b": v2alpha1.JobPending, "c": v2alpha1.JobSucceeded} {
		job := learner(name, 2, 2)
		job.Status.Phase = phase
		job.Spec.Scheduling = &v2alpha1.Scheduling{Queue: "team"}
		row := Row(job)
		state.Jobs = append(state.Jobs, Job{job, &row})
	}
	want := []api.Queue{{Namespace: "rl", Name: "team", Jobs: 2, Waiting: 1, GPUs: 8}}
	if got := Cluster(&state).Queues; !slices.Equal(got, want) {
		t.Errorf("the queues are %+v, want %+v", got, want)
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
