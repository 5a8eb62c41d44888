// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// owner returns an entry of managed fields. at is in seconds after the world's start; a negative
// one sets no time.
func owner(manager, subresource string, at int, fields string) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
	if at >= 0 {
		written := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, at, 0, time.UTC))
		entry.Time = &written
	}
	return entry
}

const (
	ownsTasks   = `{"f:spec":{"f:tasks":{}}}`
	ownsElastic = `{"f:spec":{"f:elastic":{"f:replicas":{}}}}`
	ownsTotal   = `{"f:status":{"f:replicas":{}}}`
	ownsRecord  = `{"f:status":{"f:scaling":{"f:lastReplicas":{}}}}`
)

// resizedWorld returns a running job with two collectors, of one to five. Other programs wrote its
// spec and status ten seconds ago.
func resizedWorld(t *testing.T) *world {
	t.Helper()
	spec := trainingJob()
	spec.Elastic = &v2alpha1.Elastic{
		Task: "collector", MinReplicas: ptr.To(int32(1)), MaxReplicas: ptr.To(int32(5)), Replicas: ptr.To(int32(2)),
	}
	w := newWorld(t, spec)
	w.job.ManagedFields = []metav1.ManagedFieldsEntry{owner("author", "", 0, ownsTasks), owner("di-operator", "status", 9, ownsRecord)}
	w.allRun()
	return w
}

// resizesTold returns the events about resizes of the next decision.
func (w *world) resizesTold() []string {
	var told []string
	for _, event := range Decide(w.observe()).Events {
		if event.Reason == v2alpha1.ReasonResized {
			told = append(told, event.Message)
		}
	}
	return told
}

func TestAResizeIsToldWithItsLastWriter(t *testing.T) {
	elastic := func(count int32) func(*v2alpha1.DIJob) {
		return func(job *v2alpha1.DIJob) { job.Spec.Elastic.Replicas = &count }
	}
	level := func(count int32) func(*v2alpha1.DIJob) {
		return func(job *v2alpha1.DIJob) { job.Spec.Elastic.Replicas, job.Spec.Tasks[1].Replicas = &count, &count }
	}
	total := func(count int32) func(*v2alpha1.DIJob) {
		return func(job *v2alpha1.DIJob) { job.Status.Replicas = count }
	}
	for name, tc := range map[string]struct {
		write  func(*v2alpha1.DIJob)
		owners []metav1.ManagedFieldsEntry
		want   string
	}{
		"the replicas of the task":                 {level(4), []metav1.ManagedFieldsEntry{owner("editor", "", 10, ownsTasks)}, "2 -> 4 replicas of task collector, by editor"},
		"the count in elastic":                     {level(4), []metav1.ManagedFieldsEntry{owner("editor", "", 10, ownsElastic)}, "2 -> 4 replicas of task collector, by editor"},
		"the task after the count in elastic":      {level(4), []metav1.ManagedFieldsEntry{owner("first", "", 4, ownsElastic), owner("editor", "", 10, ownsTasks)}, "2 -> 4 replicas of task collector, by editor"},
		"the task after the scale":                 {level(4), []metav1.ManagedFieldsEntry{owner("kubectl", "scale", -1, ownsElastic), owner("editor", "", 10, ownsTasks)}, "2 -> 4 replicas of task collector, by editor"},
		"the scale":                                {elastic(4), []metav1.ManagedFieldsEntry{owner("kubectl", "scale", -1, ownsElastic)}, "2 -> 4 replicas of task collector, by kubectl through /scale"},
		"the scale, to what the task says":         {level(4), []metav1.ManagedFieldsEntry{owner("kubectl", "scale", -1, ownsElastic)}, "2 -> 4 replicas of task collector, by kubectl through /scale"},
		"the scale, where nobody owned the count":  {elastic(4), nil, "2 -> 4 replicas of task collector, through /scale"},
		"the total":                                {total(6), []metav1.ManagedFieldsEntry{owner("script", "status", 10, ownsTotal)}, "2 -> 4 replicas of task collector, by script through /status"},
		"the total, by di-server":                  {total(6), []metav1.ManagedFieldsEntry{owner("di-server", "status", 10, ownsTotal)}, "2 -> 4 replicas of task collector, by di-server through /status"},
		"the total, in fields that cannot be read": {total(6), []metav1.ManagedFieldsEntry{owner("script", "status", 10, `[]`)}, "2 -> 4 replicas of task collector, by an unknown writer"},
		"the total, above the bounds":              {total(99), []metav1.ManagedFieldsEntry{owner("script", "status", 10, ownsTotal)}, "2 -> 5 replicas of task collector (97 asked for), by script through /status"},
		"a bound": {func(job *v2alpha1.DIJob) { job.Spec.Elastic.MaxReplicas = ptr.To(int32(1)) },
			[]metav1.ManagedFieldsEntry{owner("editor", "", 10, `{"f:spec":{"f:elastic":{"f:maxReplicas":{}}}}`)}, "2 -> 1 replica of task collector (2 asked for), by editor"},
		"another task, and a task that goes": {func(job *v2alpha1.DIJob) {
			job.Spec.Tasks = job.Spec.Tasks[:2]
			job.Spec.Tasks[0].Replicas = ptr.To(int32(2))
		}, []metav1.ManagedFieldsEntry{owner("editor", "", 10, ownsTasks)}, "1 -> 0 replicas of task evaluator, by editor; 1 -> 2 replicas of task learner, by editor"},
		"of two, the total later": {func(job *v2alpha1.DIJob) { level(4)(job); total(5)(job) },
			[]metav1.ManagedFieldsEntry{owner("editor", "", 10, ownsTasks), owner("script", "status", 11, ownsTotal)}, "2 -> 3 replicas of task collector, by script through /status"},
		"of two, the spec later": {func(job *v2alpha1.DIJob) { level(4)(job); total(5)(job) },
			[]metav1.ManagedFieldsEntry{owner("editor", "", 11, ownsTasks), owner("script", "status", 10, ownsTotal)}, "2 -> 4 replicas of task collector, by editor"},
		"of two in one second, the spec": {func(job *v2alpha1.DIJob) { level(4)(job); total(5)(job) },
			[]metav1.ManagedFieldsEntry{owner("editor", "", 10, ownsTasks), owner("script", "status", 10, ownsTotal)}, "2 -> 4 replicas of task collector, by editor"},
		"of two, the scale, of which no time is known": {func(job *v2alpha1.DIJob) { elastic(4)(job); total(5)(job) },
			[]metav1.ManagedFieldsEntry{owner("kubectl", "scale", -1, ownsElastic), owner("script", "status", 11, ownsTotal)}, "2 -> 4 replicas of task collector, by kubectl through /scale"},
	} {
		t.Run(name, func(t *testing.T) {
			w := resizedWorld(t)
			if sizing.IsResized(w.observe()) {
				t.Fatal("the job is resized before anybody wrote")
			}
			tc.write(w.job)
			w.job.ManagedFields = append(w.job.ManagedFields, tc.owners...)
			if !sizing.IsResized(w.observe()) {
				t.Error("the job is not resized")
			}
			expect.Equal(t, "told of resizes", []string{tc.want}, w.resizesTold())
			w.settle()
			if sizing.IsResized(w.observe()) || w.resizesTold() != nil {
				t.Errorf("the job is still resized: %v", w.resizesTold())
			}
		})
	}
}

func TestWhereTheRecordOfCountsIsLostThePodsTellOfAResize(t *testing.T) {
	for name, tc := range map[string]struct {
		total  int32
		writer string
		want   []string
	}{
		"growth":             {6, "script", []string{"2 -> 4 replicas of task collector, by script through /status"}},
		"shrinking":          {3, "script", []string{"2 -> 1 replica of task collector, by script through /status"}},
		"no other size":      {4, "script", nil},
		"nobody but us":      {6, "di-operator", nil},
		"an earlier release": {6, "di-orchestrator", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := resizedWorld(t)
			w.job.Status.Scaling, w.job.Status.Replicas = nil, tc.total
			w.job.ManagedFields = append(w.job.ManagedFields, owner(tc.writer, "status", 10, ownsTotal))
			expect.Equal(t, "told of resizes", tc.want, w.resizesTold())
			w.settle()
			expect.Equal(t, "result", tc.total, int32(len(w.pods)))
		})
	}
}

func TestAStoredJobIsToldOnceWhatMayBeResized(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*v2alpha1.DIJob)
		want *v2alpha1.Elastic
	}{
		"without elastic": {func(*v2alpha1.DIJob) {}, &v2alpha1.Elastic{Task: "collector", Replicas: ptr.To(int32(2))}},
		"with bounds only": {func(job *v2alpha1.DIJob) { job.Spec.Elastic = &v2alpha1.Elastic{MaxReplicas: ptr.To(int32(5))} },
			&v2alpha1.Elastic{Task: "collector", Replicas: ptr.To(int32(2)), MaxReplicas: ptr.To(int32(5))}},
		"with all of it": {func(job *v2alpha1.DIJob) {
			job.Spec.Elastic = &v2alpha1.Elastic{Task: "learner", Replicas: ptr.To(int32(1))}
		}, nil},
		"without a task that may be resized": {func(job *v2alpha1.DIJob) {
			job.Spec.Tasks[1].Type, job.Spec.Tasks[1].Name = v2alpha1.TaskTypeNone, "other"
		}, nil},
		"finished": {func(job *v2alpha1.DIJob) {
			job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: string(v2alpha1.JobSucceeded), Status: "True"}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, trainingJob())
			tc.edit(w.job)
			expect.Equal(t, "elastic", tc.want, Decide(w.observe()).Elastic)
		})
	}
}

func TestAConditionTellsOfAResizeWhileItIsUnderWay(t *testing.T) {
	w := resizedWorld(t)
	under := func(want corev1.ConditionStatus, message string) {
		t.Helper()
		w.expectPhase(v2alpha1.JobRunning)
		got := conditions.Find(&w.job.Status, v2alpha1.ConditionResizing)
		switch {
		case got == nil:
			t.Fatal("there is no condition")
		case got.Status != want || got.Message != message:
			t.Fatalf("the condition is %s: %q, want %s: %q", got.Status, got.Message, want, message)
		}
	}
	if conditions.Find(&w.job.Status, v2alpha1.ConditionResizing) != nil {
		t.Fatal("a job that starts is not resized")
	}
	w.change(func(job *v2alpha1.DIJob) { job.Status.Replicas = 6 })
	const grown = "2 -> 4 replicas of task collector, by an unknown writer"
	w.step()
	under(corev1.ConditionTrue, grown)
	w.settle()
	under(corev1.ConditionTrue, grown)
	w.run("job-collector-2")
	w.settle()
	under(corev1.ConditionTrue, grown)
	w.run("job-collector-3")
	w.settle()
	under(corev1.ConditionFalse, "")

	w.change(func(job *v2alpha1.DIJob) { job.Status.Replicas = 3 })
	w.step()
	under(corev1.ConditionTrue, "4 -> 1 replica of task collector, by an unknown writer")
	w.settle()
	under(corev1.ConditionFalse, "")
}

func TestAResizeThatEndsOtherwiseIsUnderWayNoLonger(t *testing.T) {
	for name, end := range map[string]func(*world){
		"suspended": func(w *world) { w.job.Spec.Suspend = ptr.To(true) },
		"succeeded": func(w *world) {
			for _, name := range w.podNames() {
				w.end(name, 0)
			}
		},
		"restarted": func(w *world) {
			w.end("job-learner-0", 1)
			w.settle()
			w.run(w.podNames()...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := resizedWorld(t)
			w.change(func(job *v2alpha1.DIJob) { job.Status.Replicas = 6 })
			w.settle()
			if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionResizing) {
				t.Fatal("no resize is in progress")
			}
			end(w)
			w.settle()
			if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionResizing) {
				t.Error("the resize is still under way")
			}
		})
	}
}

func TestAJobOfTorchStartsAnewDenseWhenItIsResized(t *testing.T) {
	w := newWorld(t, trainingJob())
	w.job.Spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow, v2alpha1.ClusterSpecTorch}
	w.allRun()
	w.resize(1)
	w.expectReschedules(1)
	w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-evaluator-0": 2})
	expect.Equal(t, "the learner was created times", 2, w.created["job-learner-0"])
	const want = "resized from 4 to 3 replicas; restarting all replicas (spec.clusterSpec: Torch)"
	expect.Equal(t, "the event", want, w.lastEvents[v2alpha1.ReasonJobRescheduling])
}

// The counts are recorded again in every reconcile. The rest of the record must survive that.
func TestRecordOfResourcesAndPlanSurvivesAResize(t *testing.T) {
	w := resizedWorld(t)
	w.change(func(job *v2alpha1.DIJob) {
		job.Status.Scaling.Resources = []v2alpha1.ResourceOverride{{Task: "collector", Reason: v2alpha1.OverrideOutOfMemory}}
		job.Status.Scaling.Plan = &v2alpha1.PlanRecord{Name: "plan", UID: "plan-uid", Phase: v2alpha1.PlanSucceeded}
	})
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Elastic.Replicas = ptr.To(int32(3)) })
	w.settle()
	if scaling := w.job.Status.Scaling; len(scaling.Resources) != 1 || scaling.Plan == nil {
		t.Fatalf("the record lost its resources or its plan: %+v", scaling)
	}
}
