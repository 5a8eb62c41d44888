// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// job returns a job of one learner and four collectors.
func job() *v2alpha1.DIJob {
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "job-uid"},
		Spec: v2alpha1.DIJobSpec{
			Tasks: []v2alpha1.Task{
				{Type: v2alpha1.TaskTypeLearner, Replicas: ptr.To[int32](1)}, {Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To[int32](4)},
			},
			Elastic: &v2alpha1.Elastic{Task: "collector", MinReplicas: ptr.To[int32](2), MaxReplicas: ptr.To[int32](8)},
		},
	}
}

// planAt returns a plan that was created some seconds after the start.
func planAt(name string, seconds int, spec v2alpha1.ScalePlanSpec) *v2alpha1.ScalePlan {
	spec.Job = "job"
	return &v2alpha1.ScalePlan{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "space", UID: types.UID(name), CreationTimestamp: metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)),
		},
		Spec: spec,
	}
}

func TestTheLaterOfTwoPlansOfASecondIsTheNewer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"job", strings.Repeat("long-", 40)} {
		led := job()
		led.Name = name
		var plans []*v2alpha1.ScalePlan
		for i, suffix := range []string{"zzzzz", "bbbbb"} {
			plan := NewPlan(led, &v2alpha1.ScalePlanSpec{}, start.Add(time.Duration(i)*time.Millisecond))
			if len(plan.GenerateName) > 58 || plan.Spec.Job != name || plan.Namespace != led.Namespace {
				t.Errorf("got a plan with generateName %s for job %s of namespace %s", plan.GenerateName, plan.Spec.Job, plan.Namespace)
			}
			// The API server appends random letters, and keeps seconds only.
			plan.Name, plan.CreationTimestamp = plan.GenerateName+suffix, metav1.NewTime(start)
			plan.UID = types.UID(plan.Name)
			plan.OwnerReferences = []metav1.OwnerReference{{Kind: "DIJob", Name: name, UID: led.UID}}
			meta.SetStatusCondition(&plan.Status.Conditions, metav1.Condition{Type: v2alpha1.PlanConditionAccepted, Status: metav1.ConditionTrue})
			plans = append(plans, plan)
		}
		if next := Next(led, plans); next != plans[1] {
			t.Errorf("next is %v, want %s", next, plans[1].Name)
		}
	}
}

func collectors(count int32) v2alpha1.ScalePlanSpec {
	return v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: &count}}}
}

func memoryOf(quantity string) v2alpha1.ReplicaResources {
	return v2alpha1.ReplicaResources{Memory: ptr.To(resource.MustParse(quantity))}
}

func TestAPlanThatCannotBeExecutedIsRefusedWithTheFieldAndWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for want, tc := range map[string]struct {
		spec v2alpha1.ScalePlanSpec
		edit func(*v2alpha1.DIJob)
	}{
		`spec.tasks[0].name: "actor": must be a task of job job`:            {spec: v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "actor"}}}},
		"9 replicas of task collector: must be at most 8":                   {spec: collectors(9)},
		"1 replica of task collector: must be at least 2":                   {spec: collectors(1)},
		`spec.launch[0]: "job-collector-3": exists already`:                 {spec: v2alpha1.ScalePlanSpec{Launch: []string{"job-collector-3"}}},
		`spec.launch[0]: "job-collector-03": must be the name of a pod`:     {spec: v2alpha1.ScalePlanSpec{Launch: []string{"job-collector-03"}}},
		`spec.remove[0]: "job-collector-4": must be a pod of the job`:       {spec: v2alpha1.ScalePlanSpec{Remove: []string{"job-collector-4"}}},
		`spec.remove[0]: "other-pod": must be the name of a pod of the job`: {spec: v2alpha1.ScalePlanSpec{Remove: []string{"other-pod"}}},
		`spec.migrate[0].pod: "job-collector-7": must be a pod`:             {spec: v2alpha1.ScalePlanSpec{Migrate: []v2alpha1.PodMigration{{Pod: "job-collector-7"}}}},
		"4 replicas of task collector: must be 3, the number that results":  {spec: v2alpha1.ScalePlanSpec{Tasks: collectors(4).Tasks, Remove: []string{"job-collector-3"}}},
		"maximum number of pods of a job here":                              {spec: v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "learner", Replicas: ptr.To[int32](100)}}}},
		"the allocator sizes a preemptible job":                             {spec: collectors(5), edit: func(job *v2alpha1.DIJob) { job.Spec.Preemptible = true }},
		"they follow spec.autoscale.ratio":                                  {spec: collectors(5), edit: func(job *v2alpha1.DIJob) { job.Spec.Autoscale = &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{}} }},
		"job job has finished":                                              {spec: collectors(5), edit: func(job *v2alpha1.DIJob) { job.Status.Phase = v2alpha1.JobSucceeded }},
		"task collector would have replicas 0,2-3: must be without gaps":    {spec: v2alpha1.ScalePlanSpec{Remove: []string{"job-collector-1"}}, edit: func(job *v2alpha1.DIJob) { job.Spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch} }},
		"the allocator chooses the nodes of a preemptible job":              {spec: v2alpha1.ScalePlanSpec{Migrate: []v2alpha1.PodMigration{{Pod: "job-collector-1"}}}, edit: func(job *v2alpha1.DIJob) { job.Spec.Preemptible = true }},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			job := job()
			if tc.edit != nil {
				tc.edit(job)
			}
			_, problems := Read(planAt("plan", 0, tc.spec), job, nil, 50)
			if text := strings.Join(problems, "; "); !strings.Contains(text, want) {
				t.Fatalf("got %q, want %q", text, want)
			}
		})
	}
}

func TestResourcesOfATaskReplaceThoseOfItsReplicasButNotMoreMemoryAfterAFailure(t *testing.T) {
	t.Parallel()
	job := job()
	job.Status.Scaling = &v2alpha1.ScalingStatus{Resources: []v2alpha1.ResourceOverride{
		{Task: "collector", Index: ptr.To[int32](0), Resources: memoryOf("1Gi"), Reason: v2alpha1.OverrideScalePlan},
		{Task: "collector", Index: ptr.To[int32](1), Resources: memoryOf("8Gi"), Reason: v2alpha1.OverrideOutOfMemory},
	}}
	change, problems := Read(planAt("plan", 0, v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Resources: memoryOf("2Gi")}}}), job, nil, 50)
	if len(problems) > 0 || len(change.Resources) != 2 {
		t.Fatalf("problems %v, resources %+v", problems, change.Resources)
	}
	if kept := change.Resources[0]; kept.Reason != v2alpha1.OverrideOutOfMemory || *kept.Index != 1 {
		t.Errorf("kept %+v", kept)
	}
	if added := change.Resources[1]; added.Index != nil || added.Reason != v2alpha1.OverrideScalePlan || added.Resources.Memory.String() != "2Gi" {
		t.Errorf("added %+v", added)
	}
}

// statuses applies verdicts to plans, and returns those that are left.
func statuses(verdicts []Verdict, owner types.UID) []*v2alpha1.ScalePlan {
	var kept []*v2alpha1.ScalePlan
	for i := range verdicts {
		if verdicts[i].Delete {
			continue
		}
		plan := verdicts[i].Plan.DeepCopy()
		plan.Status = verdicts[i].Status
		if verdicts[i].Own {
			plan.OwnerReferences = []metav1.OwnerReference{{Kind: "DIJob", Name: "job", UID: owner}}
		}
		kept = append(kept, plan)
	}
	return kept
}

func TestTenThousandPlansLeaveTheHistoryAndTheNewestPlan(t *testing.T) {
	t.Parallel()
	var plans []*v2alpha1.ScalePlan
	for i := range 10000 {
		plans = append(plans, planAt(fmt.Sprintf("plan-%05d", i), i/10, collectors(2+int32(i%6))))
	}
	verdicts, _ := Review(job(), nil, plans, 50, start.Add(time.Hour))
	left := statuses(verdicts, "job-uid")
	if len(left) != History+1 {
		t.Fatalf("%d plans are left, want %d", len(left), History+1)
	}
	unfinished := 0
	for _, plan := range left {
		if !IsFinished(plan.Status.Phase) {
			unfinished++
		}
	}
	if next := Next(job(), left); unfinished != 1 || next == nil || next.Name != "plan-09999" {
		t.Fatalf("%d plans are unfinished, next is %v; want only plan-09999", unfinished, next)
	}
}

func TestARepeatedReviewChangesNothing(t *testing.T) {
	t.Parallel()
	plans := []*v2alpha1.ScalePlan{
		planAt("a", 0, collectors(3)), planAt("b", 1, collectors(4)), planAt("c", 2, collectors(40)),
	}
	now := start.Add(time.Minute)
	verdicts, _ := Review(job(), nil, plans, 50, now)
	again, _ := Review(job(), nil, statuses(verdicts, "job-uid"), 50, now.Add(time.Second))
	for i := range again {
		if again[i].IsChanged() || again[i].Own || again[i].Delete || again[i].Reason != "" {
			t.Errorf("plan %s changes again: %+v", again[i].Plan.Name, again[i])
		}
	}
	phases := map[string]v2alpha1.PlanPhase{}
	for i := range verdicts {
		phases[verdicts[i].Plan.Name] = verdicts[i].Status.Phase
	}
	if phases["a"] != v2alpha1.PlanSuperseded || phases["b"] != v2alpha1.PlanPending || phases["c"] != v2alpha1.PlanRefused {
		t.Errorf("phases are %v", phases)
	}
}

func TestAPlanWhoseJobDoesNotExistWaitsUntilItsDeadline(t *testing.T) {
	t.Parallel()
	plan := planAt("a", 0, collectors(3))
	plan.Spec.DeadlineSeconds = ptr.To[int32](60)
	verdicts, after := Review(nil, nil, []*v2alpha1.ScalePlan{plan}, 50, start.Add(20*time.Second))
	if verdicts[0].Status.Phase != v2alpha1.PlanPending || after != 40*time.Second {
		t.Fatalf("phase %s, again after %s", verdicts[0].Status.Phase, after)
	}
	if verdicts, _ = Review(nil, nil, []*v2alpha1.ScalePlan{plan}, 50, start.Add(time.Minute)); verdicts[0].Status.Phase != v2alpha1.PlanRefused {
		t.Fatalf("phase %s", verdicts[0].Status.Phase)
	}
}

func TestAFinishedPlanIsDeletedAfterItsTimeToLive(t *testing.T) {
	t.Parallel()
	plan := planAt("a", 0, collectors(3))
	plan.Spec.TTLSecondsAfterFinished = ptr.To[int32](60)
	plan.Status = v2alpha1.ScalePlanStatus{Phase: v2alpha1.PlanSucceeded, CompletionTime: ptr.To(metav1.NewTime(start))}
	if verdicts, after := Review(job(), nil, []*v2alpha1.ScalePlan{plan}, 50, start.Add(50*time.Second)); verdicts[0].Delete || after != 10*time.Second {
		t.Fatalf("deleted %v, again after %s", verdicts[0].Delete, after)
	}
	if verdicts, _ := Review(job(), nil, []*v2alpha1.ScalePlan{plan}, 50, start.Add(time.Minute)); !verdicts[0].Delete {
		t.Fatal("the plan is kept")
	}
}

func TestAPlanOfAnEarlierJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	plan := planAt("a", 0, collectors(3))
	plan.OwnerReferences = []metav1.OwnerReference{{Kind: "DIJob", Name: "job", UID: "earlier"}}
	if verdicts, _ := Review(job(), nil, []*v2alpha1.ScalePlan{plan}, 50, start); len(verdicts) != 0 {
		t.Fatalf("verdicts are %+v", verdicts)
	}
}

func TestAPlanOlderThanItsJobIsRefusedUnlessTheJobOwnsIt(t *testing.T) {
	t.Parallel()
	later := job()
	later.CreationTimestamp = metav1.NewTime(start.Add(time.Second))
	owner := []metav1.OwnerReference{{Kind: "DIJob", Name: "job", UID: later.UID}}
	for name, tc := range map[string]struct {
		seconds  int
		owners   []metav1.OwnerReference
		accepted bool
		want     v2alpha1.PlanPhase
	}{
		"older":                           {0, nil, false, v2alpha1.PlanRefused},
		"older, accepted for another job": {0, nil, true, v2alpha1.PlanRefused},
		"older and owned":                 {0, owner, false, v2alpha1.PlanPending},
		"of the same second":              {1, nil, false, v2alpha1.PlanPending},
	} {
		plan := planAt("a", tc.seconds, collectors(3))
		plan.OwnerReferences = tc.owners
		if tc.accepted {
			plan.Status.Conditions = []metav1.Condition{{Type: v2alpha1.PlanConditionAccepted, Status: metav1.ConditionTrue}}
		}
		verdicts, _ := Review(later, nil, []*v2alpha1.ScalePlan{plan}, 50, start.Add(time.Minute))
		if got := verdicts[0].Status; got.Phase != tc.want {
			t.Errorf("%s: phase %s, want %s: %s", name, got.Phase, tc.want, got.Message)
		}
	}
}

func TestAPlanOlderThanTheRecordedOneIsNotTaken(t *testing.T) {
	t.Parallel()
	job := job()
	job.Status.Scaling = &v2alpha1.ScalingStatus{Plan: &v2alpha1.PlanRecord{
		Name: "b", UID: "b", Phase: v2alpha1.PlanSucceeded, CreationTime: ptr.To(metav1.NewTime(start.Add(time.Second))),
	}}
	verdicts, _ := Review(job, nil, []*v2alpha1.ScalePlan{planAt("a", 0, collectors(3))}, 50, start.Add(time.Minute))
	if phase := verdicts[0].Status.Phase; phase != v2alpha1.PlanSuperseded {
		t.Fatalf("phase is %s", phase)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"job":"job","tasks":[{"name":"collector","replicas":6}]}`, `{"job":"job","tasks":[{"name":"collector","replicas":-1}]}`,
		`{"job":"job","create":[{"name":"job-collector-7"}],"remove":["job-collector-0"]}`, `{"migrate":[{"name":"job-collector-1"}]}`, `{}`, `null`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		const most = 12
		var spec v2alpha1.ScalePlanSpec
		if json.Unmarshal([]byte(content), &spec) != nil {
			return
		}
		known := job()
		change, problems := Read(planAt("plan", 1, spec), known, nil, most)
		if len(problems) > 0 {
			return
		}
		total := int32(0)
		for name, replicas := range change.Replicas {
			if taskNamed(known, name) < 0 || replicas < 0 {
				t.Fatalf("%s is read as %+v", content, change)
			}
			total += replicas
		}
		if total > most {
			t.Fatalf("%s wants %d replicas, more than %d: %+v", content, total, most, change)
		}
	})
}
