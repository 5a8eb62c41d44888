// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/history/observe"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
)

func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func stamp(seconds int) *metav1.Time {
	return &metav1.Time{Time: at(seconds)}
}

// trained returns a worker-led job as a user has applied it, which runs.
func trained() *v2alpha1.DIJob {
	two := int32(2)
	job := &v2alpha1.DIJob{}
	job.Namespace, job.Name, job.UID, job.Generation, job.CreationTimestamp = "team", "ppo", "u-1", 1, *stamp(0)
	job.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "team/note": "kept", names.AnnotationCreator: "alice"}
	job.ManagedFields = []metav1.ManagedFieldsEntry{
		wrote("kubectl", "v2alpha1", "", 0), wrote(names.ControllerName, "v2alpha1", "status", 9),
	}
	job.Spec.Lifecycle, job.Spec.Group = v2alpha1.LifecycleWorkerLed, "atari"
	job.Spec.Scheduling = &v2alpha1.Scheduling{Queue: "night"}
	job.Spec.Tasks = []v2alpha1.Task{{Name: "worker", Type: v2alpha1.TaskTypeNone, Replicas: &two}}
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"initContainers":[{"image":"init:1"}],"containers":[{"image":"ding:2","resources":{"requests":{"cpu":"500m"},"limits":{"memory":"1Gi","nvidia.com/gpu":"2"}}},{"image":"ding:2"}]}}`)
	job.Status.Phase = v2alpha1.JobRunning
	job.Status.Conditions = []v2alpha1.DIJobCondition{
		{Type: "Running", Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonJobRunning, Message: "all run", LastTransitionTime: stamp(5)},
	}
	return job
}

func wrote(manager, version, subresource string, seconds int) metav1.ManagedFieldsEntry {
	fields := metav1.NewFieldsV1(`{"f:spec":{"f:tasks":{}}}`)
	return metav1.ManagedFieldsEntry{
		Manager: manager, APIVersion: v2alpha1.GroupName + "/" + version, Subresource: subresource, Time: stamp(seconds), FieldsV1: fields,
	}
}

func pod(name string, change ...func(*corev1.Pod)) corev1.Pod {
	made := corev1.Pod{}
	made.Name, made.UID, made.CreationTimestamp = name, types.UID("pod-"+name), *stamp(1)
	made.Labels = map[string]string{names.LabelTaskName: "worker"}
	made.Annotations = map[string]string{names.AnnotationTaskRank: "1", names.AnnotationContainers: "main"}
	made.Spec.NodeName, made.Status.Phase = "node-a", corev1.PodRunning
	made.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *stamp(3)}}},
	}
	for _, c := range change {
		c(&made)
	}
	return made
}

func died(code int32, reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: "the last line", StartedAt: *stamp(3), FinishedAt: *stamp(40),
		}}
	}
}

func observed(t *testing.T, before record.Job, seen observe.Observation) record.Job {
	t.Helper()
	after, err := observe.Record(before, seen)
	if err != nil {
		t.Fatal(err)
	}
	again, err := observe.Record(after, seen)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, again); diff != "" {
		t.Errorf("the same observation changes the record: %s", diff)
	}
	return after
}

func TestARunningJobIsRecorded(t *testing.T) {
	after := observed(t, record.Job{}, observe.Observation{Job: trained(), Pods: []corev1.Pod{pod("ppo-0")}, GPU: "nvidia.com/gpu", Now: at(10)})
	var manifest map[string]any
	if err := json.Unmarshal(after.Manifest, &manifest); err != nil {
		t.Fatal(err)
	}
	metadata := map[string]any{"namespace": "team", "name": "ppo", "annotations": map[string]any{"team/note": "kept", names.AnnotationCreator: "alice"}}
	if diff := cmp.Diff(metadata, manifest["metadata"]); diff != "" || manifest["apiVersion"] != v2alpha1.GroupVersion.String() || manifest["status"] != nil {
		t.Errorf("%s %v", diff, manifest)
	}
	after.Manifest = nil
	want := record.Job{
		UID: "u-1", Namespace: "team", Name: "ppo", Group: "atari", Queue: "night", Creator: "alice", Version: "v2alpha1", Images: []string{"ding:2", "init:1"},
		Created: at(0), Started: at(3), Phase: "Running",
		Phases:   []record.Phase{{Phase: "Running", Since: at(5)}},
		Attempts: []record.Attempt{{Started: at(0)}},
		Replicas: []record.Replica{{
			PodUID: "pod-ppo-0", Pod: "ppo-0", Task: "worker", Index: 1, Node: "node-a", Created: at(1), Started: at(3), Phase: "Running",
		}},
		Conditions: []record.Condition{{Type: "Running", Status: "True", Reason: "JobRunning", Message: "all run", At: at(5)}},
		Requests:   []record.Request{{Task: "worker", CPU: 500, Memory: 1 << 30, GPUs: 2}},
		Seen:       record.Seen{Generation: 1, Desired: map[string]int32{"worker": 2}},
	}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error(diff)
	}
}

// TestTheManifestIsInTheVersionInWhichItWasWritten uses a job that an earlier release has stored.
func TestTheManifestIsInTheVersionInWhichItWasWritten(t *testing.T) {
	stored, err := os.ReadFile(filepath.Join("..", "..", "conversion", "testdata", "golden", "v1alpha1", "stored-by-v0.2.2.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSON(stored)
	if err == nil {
		raw, err = conversion.Convert(raw, v2alpha1.GroupVersion.String())
	}
	job := &v2alpha1.DIJob{}
	if err == nil {
		err = json.Unmarshal(raw, job)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := observed(t, record.Job{}, observe.Observation{Job: job, Now: at(0)})
	var manifest struct {
		APIVersion string
		Spec       struct{ Coordinator, Collector, Learner *struct{} }
	}
	if err := json.Unmarshal(after.Manifest, &manifest); err != nil {
		t.Fatal(err)
	}
	if after.Version != "v1alpha1" || manifest.APIVersion != v1alpha1.GroupVersion.String() || manifest.Spec.Coordinator == nil || manifest.Spec.Learner == nil {
		t.Errorf("%s: %s", after.Version, after.Manifest)
	}
	if diff := cmp.Diff([]string{"diorchestrator/ding:v0.1.1"}, after.Images); diff != "" {
		t.Error(diff)
	}
}

func TestTheVersionIsThatOfTheLastForeignWriterOfTheSpec(t *testing.T) {
	for name, test := range map[string]struct {
		managed []metav1.ManagedFieldsEntry
		want    string
	}{
		"no manager is named":     {nil, "v2alpha1"},
		"the last one":            {[]metav1.ManagedFieldsEntry{wrote("old", "v1alpha1", "", 1), wrote("new", "v2alpha1", "", 2)}, "v2alpha1"},
		"in any order":            {[]metav1.ManagedFieldsEntry{wrote("new", "v1alpha1", "", 2), wrote("old", "v2alpha1", "", 1)}, "v1alpha1"},
		"not those of this":       {[]metav1.ManagedFieldsEntry{wrote("user", "v1alpha1", "", 1), wrote(names.ServerName, "v2alpha1", "", 2)}, "v1alpha1"},
		"not that of the status":  {[]metav1.ManagedFieldsEntry{wrote("user", "v1alpha1", "", 1), wrote("tool", "v2alpha1", "status", 2)}, "v1alpha1"},
		"not of an unknown group": {[]metav1.ManagedFieldsEntry{wrote("user", "v9", "", 1)}, "v2alpha1"},
	} {
		job := trained()
		job.ManagedFields = test.managed
		if after := observed(t, record.Job{}, observe.Observation{Job: job, Now: at(1)}); after.Version != test.want {
			t.Errorf("%s: %s, want %s", name, after.Version, test.want)
		}
	}
}

func TestARestartHasItsCauseAndEndsTheAttempt(t *testing.T) {
	job := trained()
	before := observed(t, record.Job{}, observe.Observation{Job: job, Pods: []corev1.Pod{pod("ppo-0")}, Now: at(10)})
	job = trained()
	job.Status.Phase, job.Status.Restarts, job.Status.Reschedules = v2alpha1.JobRestarting, 2, 1
	job.Status.ReplicaRestarts = map[string]int32{"worker/1": 1}
	job.Status.LastFailure = &v2alpha1.LastFailure{Reason: "OOMKilled", Message: "too much", Time: stamp(40)}
	after := observed(t, before, observe.Observation{Job: job, Pods: []corev1.Pod{pod("ppo-0", died(137, "OOMKilled"))}, Now: at(41)})
	want := []record.Restart{
		{At: at(40), Kind: record.RestartOfJob},
		{At: at(40), Kind: record.RestartOfJob, Reason: "OOMKilled", Message: "too much"},
		{At: at(41), Kind: record.RestartElsewhere},
		{At: at(40), Kind: record.RestartOfReplica, Replica: "worker/1", Reason: "OOMKilled", Message: "too much"},
	}
	if diff := cmp.Diff(want, after.Restarts); diff != "" {
		t.Error(diff)
	}
	attempts := []record.Attempt{{Started: at(0), Ended: at(40), Reason: "OOMKilled", Message: "too much"}, {Number: 2, Started: at(41)}}
	if diff := cmp.Diff(attempts, after.Attempts); diff != "" {
		t.Error(diff)
	}
	code := int32(137)
	replica := record.Replica{
		PodUID: "pod-ppo-0", Pod: "ppo-0", Task: "worker", Index: 1, Node: "node-a", Created: at(1), Started: at(3), Ended: at(40),
		Phase: "Failed", Reason: "OOMKilled", Message: "the last line", ExitCode: &code,
	}
	if diff := cmp.Diff([]record.Replica{replica}, after.Replicas); diff != "" {
		t.Error(diff)
	}
	if len(before.Restarts) != 0 || !before.Attempts[0].Ended.IsZero() {
		t.Error("the record before was changed")
	}
}

func TestAPodThatDisappearsHasAnEnd(t *testing.T) {
	before := observed(t, record.Job{}, observe.Observation{Job: trained(), Pods: []corev1.Pod{pod("ppo-0"), pod("ppo-1")}, Now: at(10)})
	after := observed(t, before, observe.Observation{Job: trained(), Pods: []corev1.Pod{pod("ppo-1")}, Now: at(20)})
	if gone := after.Replicas[0]; !gone.Ended.Equal(at(20)) || gone.Reason != "PodDeleted" || !after.Replicas[1].Ended.IsZero() {
		t.Errorf("%+v", after.Replicas)
	}
}

func TestAFailedJobHasItsEndAndCause(t *testing.T) {
	job := trained()
	before := observed(t, record.Job{}, observe.Observation{Job: job, Now: at(10)})
	job = trained()
	job.Status.Phase, job.Status.CompletionTimestamp = v2alpha1.JobFailed, stamp(60)
	job.Status.Conditions = append(job.Status.Conditions, v2alpha1.DIJobCondition{
		Type: "Failed", Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonJobFailed, Message: "replica 1 failed", LastTransitionTime: stamp(60),
	})
	job.Status.LastFailure = &v2alpha1.LastFailure{Reason: "Error", Message: "exit 1"}
	after := observed(t, before, observe.Observation{Job: job, Now: at(70)})
	if !after.Ended.Equal(at(60)) || after.Reason != "Error" || after.Message != "replica 1 failed" || after.Unseen || !after.Attempts[0].Ended.Equal(at(60)) {
		t.Errorf("%+v", after)
	}
	if diff := cmp.Diff([]record.Phase{{Phase: "Running", Since: at(5)}, {Phase: "Failed", Since: at(60)}}, after.Phases); diff != "" {
		t.Error(diff)
	}
	if gone := observe.Gone(after, true, at(80)); cmp.Diff(after, gone) != "" {
		t.Error("the deletion of a finished job changes its record")
	}
}

func TestAJobThatIsGoneHasEnded(t *testing.T) {
	before := observed(t, record.Job{}, observe.Observation{Job: trained(), Pods: []corev1.Pod{pod("ppo-0")}, Now: at(10)})
	deleted, unseen := observe.Gone(before, true, at(20)), observe.Gone(before, false, at(20))
	if !deleted.Ended.Equal(at(20)) || !deleted.Deleted || deleted.Unseen || !deleted.Replicas[0].Ended.Equal(at(20)) || !deleted.Attempts[0].Ended.Equal(at(20)) {
		t.Errorf("%+v", deleted)
	}
	if !unseen.Unseen || unseen.Deleted || !before.Ended.IsZero() || !before.Replicas[0].Ended.IsZero() {
		t.Errorf("%+v, before %+v", unseen, before)
	}
	job := trained()
	job.Status.Phase, job.Status.CompletionTimestamp = v2alpha1.JobSucceeded, stamp(15)
	if after := observed(t, unseen, observe.Observation{Job: job, Now: at(30)}); after.Unseen || !after.Ended.Equal(at(15)) {
		t.Errorf("the true end is not recorded: %+v", after)
	}
}

func TestAResizeNamesWhoAskedForIt(t *testing.T) {
	four := int32(4)
	resized := func(change func(*v2alpha1.DIJob)) *v2alpha1.DIJob {
		job := trained()
		job.Spec.Tasks[0].Replicas, job.Generation = &four, 2
		change(job)
		return job
	}
	for by, job := range map[string]*v2alpha1.DIJob{
		"kubectl": resized(func(*v2alpha1.DIJob) {}),
		"hpa": resized(func(job *v2alpha1.DIJob) {
			job.ManagedFields = append(job.ManagedFields, wrote("hpa", "v2alpha1", "scale", 8))
		}),
		"ScalePlan grow": resized(func(job *v2alpha1.DIJob) {
			job.Status.Scaling = &v2alpha1.ScalingStatus{Plan: &v2alpha1.PlanRecord{Name: "grow", Replicas: map[string]int32{"worker": 4}}}
		}),
	} {
		before := observed(t, record.Job{}, observe.Observation{Job: trained(), Now: at(10)})
		after := observed(t, before, observe.Observation{Job: job, Now: at(20)})
		if diff := cmp.Diff([]record.Resize{{At: at(20), Task: "worker", From: 2, To: 4, By: by}}, after.Resizes); diff != "" {
			t.Error(by, diff)
		}
	}
}

func TestMembersOfACoordinatorAreItsResizes(t *testing.T) {
	job := trained()
	job.Spec.Lifecycle = v2alpha1.LifecycleCoordinatorLed
	members := func(count int) *v2alpha1.Membership {
		of := &v2alpha1.Membership{}
		for range count {
			of.Spec.Members = append(of.Spec.Members, v2alpha1.Member{Task: v2alpha1.TaskTypeCollector})
		}
		return of
	}
	before := observed(t, record.Job{}, observe.Observation{Job: job, Now: at(1)})
	before = observed(t, before, observe.Observation{Job: job, Membership: members(0), Now: at(2)})
	after := observed(t, before, observe.Observation{Job: job, Membership: members(3), Now: at(3)})
	if diff := cmp.Diff([]record.Resize{{At: at(3), Task: "collector", To: 3, By: "coordinator"}}, after.Resizes); diff != "" {
		t.Error(diff)
	}
}

func TestPlacementsAndPlansAreNoted(t *testing.T) {
	job := trained()
	job.Status.Allocation = []string{"a", "b"}
	three := int32(3)
	plan := v2alpha1.ScalePlan{Spec: v2alpha1.ScalePlanSpec{
		Job: "ppo", Origin: v2alpha1.PlanManual, Reason: "more", Tasks: []v2alpha1.TaskScale{{Name: "worker", Replicas: &three}},
	}}
	plan.Name, plan.UID, plan.CreationTimestamp = "grow", "p-1", *stamp(4)
	before := observed(t, record.Job{}, observe.Observation{Job: job, Plans: []v2alpha1.ScalePlan{plan}, Now: at(10)})
	plan.Status = v2alpha1.ScalePlanStatus{Phase: v2alpha1.PlanSucceeded, StartTime: stamp(5), CompletionTime: stamp(6)}
	before = observed(t, before, observe.Observation{Job: job, Plans: []v2alpha1.ScalePlan{plan}, Now: at(11)})
	job.Status.Allocation = []string{"a"}
	after := observed(t, before, observe.Observation{Job: job, Now: at(12)})
	if diff := cmp.Diff([]record.Placement{{At: at(10), Nodes: []string{"a", "b"}}, {At: at(12), Nodes: []string{"a"}}}, after.Placements); diff != "" {
		t.Error(diff)
	}
	want := []record.Plan{{
		UID: "p-1", Name: "grow", Origin: "Manual", Reason: "more", Phase: "Succeeded", Created: at(4), Started: at(5), Ended: at(6),
		Replicas: map[string]int32{"worker": 3},
	}}
	if diff := cmp.Diff(want, after.Plans); diff != "" {
		t.Error(diff)
	}
}

func TestListsAtTheirBoundsDoNotGrowByTheSameObservation(t *testing.T) {
	seen := observe.Observation{Job: trained(), Now: at(100)}
	for i := range record.MaxReplicas + 2 {
		seen.Pods = append(seen.Pods, pod("ppo", died(0, ""), func(pod *corev1.Pod) {
			pod.Name, pod.UID = pod.Name+string(rune('a'+i)), types.UID(string(rune('a'+i)))
			pod.Status.Phase = corev1.PodSucceeded
		}))
	}
	for i := range record.MaxChanges + 2 {
		plan := v2alpha1.ScalePlan{}
		plan.UID, plan.CreationTimestamp = types.UID(string(rune('a'+i))), *stamp(i)
		seen.Plans = append(seen.Plans, plan)
	}
	if after := observed(t, record.Job{}, seen); after.Dropped["replicas"] != 2 || after.Dropped["plans"] != 2 {
		t.Errorf("%v", after.Dropped)
	}
}

func TestTheCurveIsTheOneThatReportsNamedLast(t *testing.T) {
	t.Parallel()
	job := &v2alpha1.DIJob{}
	job.Name, job.CreationTimestamp = "ppo", *stamp(0)
	before := record.Job{}
	for _, step := range []struct{ report, want string }{
		{`{"loss": 1}`, ""}, {`{"curve": "loss", "loss": 1}`, "loss"}, {`{"loss": 1}`, "loss"}, {`{"curve": 7}`, "loss"}, {`nonsense`, "loss"}, {`{"curve": "success"}`, "success"},
	} {
		job.Status.Profilings = &v2alpha1.RawObject{}
		job.Status.Profilings.Raw = []byte(step.report)
		after, err := observe.Record(before, observe.Observation{Job: job, Now: at(5)})
		if err != nil || after.Curve != step.want {
			t.Errorf("%s: got %q and %v, want %q", step.report, after.Curve, err, step.want)
		}
		before = after
	}
}

func TestASampleHasTheNumbersOfANewReport(t *testing.T) {
	job := trained()
	job.Status.Profilings = &v2alpha1.RawObject{}
	report := `{"version":1,"gradient":{"var":0.5},"steps":[{"seconds":9},{"seconds":0.25}],"progress":{"done":12,"unit":"step"},"none":null,"empty":[]}`
	job.Status.Profilings.Raw = []byte(report)
	sample, ok := observe.Sample(job, nil, at(5))
	want := record.Sample{At: at(5), Values: map[string]record.Mean{
		"gradient.var": {Sum: 0.5, Count: 1}, "steps.seconds": {Sum: 0.25, Count: 1}, "progress.done": {Sum: 12, Count: 1},
	}}
	if diff := cmp.Diff(want, sample); !ok || diff != "" {
		t.Error(ok, diff)
	}
	for name, test := range map[string]struct{ report, last string }{
		"the same":     {report, report},
		"no number":    {`{"version":1,"unit":"x"}`, ""},
		"not JSON":     {`{`, ""},
		"no object":    {`null`, ""},
		"too deep":     {`{"a":{"b":{"c":{"d":{"e":1}}}}}`, ""},
		"not a number": {`{"a":1e999}`, ""},
	} {
		job.Status.Profilings.Raw = []byte(test.report)
		if sample, ok := observe.Sample(job, []byte(test.last), at(5)); ok {
			t.Errorf("%s: %v", name, sample.Values)
		}
	}
	job.Status.Profilings = nil
	if _, ok := observe.Sample(job, nil, at(5)); ok {
		t.Error("a job without a report has a sample")
	}
}
