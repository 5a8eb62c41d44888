// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// expectPlan checks the phase of a plan and a part of its message.
func (w *world) expectPlan(name string, phase v2alpha1.PlanPhase, message string) {
	w.t.Helper()
	plan := w.plans[name]
	if plan == nil || plan.Status.Phase != phase || !strings.Contains(plan.Status.Message, message) {
		w.t.Fatalf("plan %s is %+v, want phase %s and a message with %q", name, plan, phase, message)
	}
}

// execute settles a job and lets its pods run until nothing changes.
func (w *world) execute() {
	w.t.Helper()
	for range 4 {
		w.settle()
		w.run(w.podNames()...)
	}
	w.settle()
}

func (w *world) rankOf(pod string) string {
	w.t.Helper()
	return w.pod(pod).Annotations[names.AnnotationRank]
}

func memory(quantity string) v2alpha1.ReplicaResources {
	return v2alpha1.ReplicaResources{Memory: ptr.To(resource.MustParse(quantity))}
}

func TestAPlanGrowsATask(t *testing.T) {
	w := resizedWorld(t)
	w.plan("grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(4))}}})
	w.settle()
	w.expectPlan("grow", v2alpha1.PlanExecuting, "2 -> 4 replicas of task collector")
	w.expectPods("job-learner-0", "job-evaluator-0", "job-collector-0", "job-collector-1", "job-collector-2", "job-collector-3")
	w.execute()
	w.expectPlan("grow", v2alpha1.PlanSucceeded, "2 -> 4")
	if count := *w.job.Spec.Elastic.Replicas; count != 4 {
		t.Fatalf("the spec has %d replicas, want 4", count)
	}
}

func TestAPlanRemovesAPodInTheMiddleAndTheOthersKeepNamesAndRanks(t *testing.T) {
	w := resizedWorld(t)
	w.plan("grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(4))}}})
	w.execute()
	ranks := map[string]string{}
	for _, pod := range w.podNames() {
		ranks[pod] = w.rankOf(pod)
	}
	w.plan("remove", v2alpha1.ScalePlanSpec{Remove: []string{"job-collector-1"}})
	w.execute()
	w.expectPlan("remove", v2alpha1.PlanSucceeded, "remove job-collector-1")
	kept := []string{"job-learner-0", "job-evaluator-0", "job-collector-0", "job-collector-2", "job-collector-3"}
	w.expectPods(kept...)
	for _, pod := range kept {
		if w.rankOf(pod) != ranks[pod] || w.created[pod] != 1 {
			t.Errorf("pod %s has rank %s after %d creations, want its first pod with rank %s", pod, w.rankOf(pod), w.created[pod], ranks[pod])
		}
	}
	if indexes := w.job.Status.Scaling.Indexes["collector"]; indexes != "0,2-3" {
		t.Fatalf("the recorded indexes are %q, want 0,2-3", indexes)
	}

	w.plan("back", v2alpha1.ScalePlanSpec{Launch: []string{"job-collector-1"}})
	w.execute()
	w.expectPlan("back", v2alpha1.PlanSucceeded, "launch job-collector-1")
	if len(w.job.Status.Scaling.Indexes) != 0 || w.rankOf("job-collector-1") != ranks["job-collector-1"] {
		t.Fatalf("the indexes are %v and the rank is %s; want no gaps and rank %s", w.job.Status.Scaling.Indexes, w.rankOf("job-collector-1"), ranks["job-collector-1"])
	}
}

func TestReplicasKeepGapsWhenAllPodsAreLostAndAResizeFillsThem(t *testing.T) {
	w := resizedWorld(t)
	w.plan("grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(4))}}})
	w.execute()
	w.plan("remove", v2alpha1.ScalePlanSpec{Remove: []string{"job-collector-1"}})
	w.execute()
	for _, pod := range w.podNames() {
		delete(w.pods, pod)
	}
	w.execute()
	w.expectPods("job-learner-0", "job-evaluator-0", "job-collector-0", "job-collector-2", "job-collector-3")
	if w.rankOf("job-collector-3") == "" {
		t.Fatal("collector 3 has no rank")
	}
	w.change(func(job *v2alpha1.DIJob) {
		job.Spec.Elastic.Replicas, job.Spec.Tasks[1].Replicas = ptr.To(int32(4)), ptr.To(int32(4))
	})
	w.execute()
	w.expectPods("job-learner-0", "job-evaluator-0", "job-collector-0", "job-collector-1", "job-collector-2", "job-collector-3")
	w.change(func(job *v2alpha1.DIJob) {
		job.Spec.Elastic.Replicas, job.Spec.Tasks[1].Replicas = ptr.To(int32(1)), ptr.To(int32(1))
	})
	w.execute()
	w.expectPods("job-learner-0", "job-evaluator-0", "job-collector-0")
}

func TestAPlanGivesResourcesToATaskAndToOnePod(t *testing.T) {
	w := resizedWorld(t)
	w.plan("memory", v2alpha1.ScalePlanSpec{
		Tasks:   []v2alpha1.TaskScale{{Name: "learner", Resources: memory("8Gi")}},
		Migrate: []v2alpha1.PodMigration{{Pod: "job-collector-1", Resources: memory("2Gi")}},
	})
	w.settle()
	recorded := w.job.Status.Scaling.Resources
	if len(recorded) != 2 || recorded[0].Task != "learner" || recorded[0].Index != nil || *recorded[1].Index != 1 || recorded[1].Reason != v2alpha1.OverrideScalePlan {
		t.Fatalf("recorded resources are %+v", recorded)
	}
	w.expectPlan("memory", v2alpha1.PlanExecuting, "memory=8Gi for task learner")
}

func TestAMigratedPodIsReplacedOnceUnderItsNameAndRank(t *testing.T) {
	w := resizedWorld(t)
	w.plan("move", v2alpha1.ScalePlanSpec{Migrate: []v2alpha1.PodMigration{{Pod: "job-collector-0"}}})
	rank := w.rankOf("job-collector-0")
	w.execute()
	w.expectPlan("move", v2alpha1.PlanSucceeded, "migrate job-collector-0")
	if w.created["job-collector-0"] != 2 || w.created["job-collector-1"] != 1 || w.rankOf("job-collector-0") != rank {
		t.Fatalf("pods were created %v times, rank %s was %s", w.created, w.rankOf("job-collector-0"), rank)
	}
	if w.job.Status.Restarts != 0 {
		t.Fatalf("a migration counts as %d restarts", w.job.Status.Restarts)
	}
}

func TestANewerPlanSupersedesOneThatExecutes(t *testing.T) {
	w := resizedWorld(t)
	w.plan("a", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(4))}}})
	w.settle()
	w.plan("b", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(3))}}})
	w.execute()
	w.expectPlan("a", v2alpha1.PlanSuperseded, "plan b is newer")
	w.expectPlan("b", v2alpha1.PlanSucceeded, "4 -> 3")
	w.expectPods("job-learner-0", "job-evaluator-0", "job-collector-0", "job-collector-1", "job-collector-2")
}

func TestARefusedPlanChangesNothingAndSupersedesNothing(t *testing.T) {
	w := resizedWorld(t)
	w.plan("a", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(4))}}})
	w.settle()
	w.plan("b", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(40))}}})
	w.execute()
	w.expectPlan("b", v2alpha1.PlanRefused, "must be at most 5")
	w.expectPlan("a", v2alpha1.PlanSucceeded, "2 -> 4")
}

func TestAPlanFailsAtItsDeadline(t *testing.T) {
	w := resizedWorld(t)
	w.plan("grow", v2alpha1.ScalePlanSpec{
		Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(3))}}, DeadlineSeconds: ptr.To(int32(60)),
	})
	w.settle()
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.expectPlan("grow", v2alpha1.PlanFailed, "not complete after 1m0s: pod job-collector-2 is not ready")
	if plan := w.plans["grow"]; plan.Status.CompletionTime == nil || plan.Status.StartTime == nil {
		t.Fatalf("times are missing: %+v", plan.Status)
	}
}

func TestAPlanWhoseCountsAnotherWriterChangesFails(t *testing.T) {
	w := resizedWorld(t)
	w.plan("grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(3))}}})
	w.settle()
	w.change(func(job *v2alpha1.DIJob) {
		job.Spec.Elastic.Replicas, job.Spec.Tasks[1].Replicas = ptr.To(int32(1)), ptr.To(int32(1))
	})
	w.execute()
	w.expectPlan("grow", v2alpha1.PlanFailed, "another writer set 1 replica of task collector after the plan had set 3")
	w.expectPods("job-learner-0", "job-evaluator-0", "job-collector-0")
}

func TestAPlanThatIsDeletedIsCancelled(t *testing.T) {
	w := resizedWorld(t)
	w.plan("grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(3))}}})
	w.settle()
	delete(w.plans, "grow")
	w.settle()
	if record := w.job.Status.Scaling.Plan; record.Phase != v2alpha1.PlanFailed || !strings.Contains(record.Message, "deleted") {
		t.Fatalf("the record is %+v", record)
	}
}

func TestAPlanWaitsWhileItsJobIsSuspended(t *testing.T) {
	w := resizedWorld(t)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.settle()
	w.plan("grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(3))}}})
	w.settle()
	w.expectPlan("grow", v2alpha1.PlanPending, "is suspended")
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	w.execute()
	w.expectPlan("grow", v2alpha1.PlanSucceeded, "2 -> 3")
}
