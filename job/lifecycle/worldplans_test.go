// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// plan stores a ScalePlan for the job.
func (w *world) plan(name string, spec v2alpha1.ScalePlanSpec) *v2alpha1.ScalePlan {
	spec.Job = w.job.Name
	w.uids++
	w.now = w.now.Add(time.Second)
	w.plans[name] = &v2alpha1.ScalePlan{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: w.job.Namespace, UID: types.UID(fmt.Sprintf("plan-%d", w.uids)), CreationTimestamp: metav1.NewTime(w.by(w.clocks.api).Truncate(time.Second)),
		},
		Spec: spec,
	}
	return w.plans[name]
}

// reviewPlans writes the status of the plans, as their own controller does.
func (w *world) reviewPlans() {
	job := w.job
	if w.cache != nil {
		job = w.cache.job
	}
	verdicts, _ := scaling.Review(job, w.membership, slices.Collect(maps.Values(w.plans)), limits.PodsPerJob, w.by(w.ahead))
	for i := range verdicts {
		verdict := &verdicts[i]
		if verdict.Delete {
			delete(w.plans, verdict.Plan.Name)
			continue
		}
		plan := verdict.Plan.DeepCopy()
		plan.Status = verdict.Status
		if verdict.Own {
			plan.OwnerReferences = []metav1.OwnerReference{{Kind: "DIJob", Name: w.job.Name, UID: w.job.UID}}
		}
		w.plans[plan.Name] = plan
	}
}

// unfinishedPlans returns the plans that the operator's index has.
func (w *world) unfinishedPlans() []*v2alpha1.ScalePlan {
	var plans []*v2alpha1.ScalePlan
	for _, name := range slices.Sorted(maps.Keys(w.plans)) {
		if !scaling.IsFinished(w.plans[name].Status.Phase) {
			plans = append(plans, w.plans[name].DeepCopy())
		}
	}
	return plans
}

// writeCounts writes the counts that a decision requests into the spec.
func (w *world) writeCounts(observed *Observed, decision *Decision) bool {
	if decision.Counts == nil {
		return false
	}
	w.write(func() {
		if w.job.ResourceVersion != observed.Job.ResourceVersion {
			return
		}
		w.changeAs(operatorAccount, "", func(job *v2alpha1.DIJob) {
			for _, count := range decision.Counts.Tasks {
				job.Spec.Tasks[count.Task].Replicas = &count.Replicas
				if count.IsElastic {
					job.Spec.Elastic.Replicas = &count.Replicas
				}
			}
		})
	})
	return true
}

// indexesOf returns the indexes of a task's replicas at a count: those of the plan that executes, once the
// spec has its count, else the recorded ones.
func indexesOf(job *v2alpha1.DIJob, task int, count int32) []int32 {
	name, record := names.TaskName(&job.Spec.Tasks[task]), job.Status.Scaling
	if record == nil {
		return ranks.Indexes("", count)
	}
	if plan := record.Plan; plan != nil && plan.Phase == v2alpha1.PlanExecuting && !plan.Resized {
		if planned := ranks.ReadRun(plan.Indexes[name]); len(planned) == int(count) && count > 0 {
			return planned
		}
	}
	return ranks.Indexes(record.Indexes[name], count)
}

// befallPlans makes a user create or delete a plan.
func (w *world) befallPlans(random *rand.Rand) {
	if held := slices.Sorted(maps.Keys(w.plans)); len(held) > 0 && random.IntN(4) == 0 {
		name := held[random.IntN(len(held))]
		delete(w.plans, name)
		w.tell("another user deletes plan %s", name)
		return
	}
	w.uids++
	spec := w.anyPlan
	if state.IsCoordinatorLed(w.job) {
		spec = w.anyLedPlan
	}
	plan := w.plan(fmt.Sprintf("plan-%d", w.uids), spec(random))
	text, err := json.Marshal(plan.Spec)
	expect.NoError(w.t, err)
	w.tell("plan %s is created: %s", plan.Name, text)
}

// anyPlan returns a plan, which may have to be refused.
func (w *world) anyPlan(random *rand.Rand) v2alpha1.ScalePlanSpec {
	spec := v2alpha1.ScalePlanSpec{DeadlineSeconds: ptr.To(1 + random.Int32N(200))}
	task := names.TaskName(&w.job.Spec.Tasks[random.IntN(len(w.job.Spec.Tasks))])
	pod := names.WorkerPod(w.job.Name, task, random.Int32N(5))
	other := names.WorkerPod(w.job.Name, task, random.Int32N(5))
	switch random.IntN(6) {
	case 0:
		spec.Tasks = []v2alpha1.TaskScale{{Name: task, Replicas: ptr.To(random.Int32N(4))}}
	case 1:
		spec.Launch = []string{pod}
	case 2:
		spec.Remove = []string{pod}
	case 3:
		spec.Launch, spec.Remove = []string{pod}, []string{other}
	case 4:
		spec.Migrate = []v2alpha1.PodMigration{{Pod: pod}}
	default:
		spec.Tasks = []v2alpha1.TaskScale{{Name: task, Replicas: ptr.To(random.Int32N(4))}}
		spec.Migrate = []v2alpha1.PodMigration{{Pod: other}}
	}
	return spec
}

// checkHowPlansEnded checks that no plan of a finished job is left unfinished.
func (w *world) checkHowPlansEnded() {
	w.t.Helper()
	if !state.IsFinished(&w.job.Status) {
		return
	}
	if unfinished := w.unfinishedPlans(); len(unfinished) > 0 {
		w.t.Fatalf("plan %s of a finished job is %s", unfinished[0].Name, unfinished[0].Status.Phase)
	}
	if len(w.plans) > scaling.History {
		w.t.Fatalf("%d plans are left", len(w.plans))
	}
}
