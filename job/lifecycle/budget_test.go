// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// protected returns a spec that lets evictions take that many replicas.
func protected(spec v2alpha1.DIJobSpec, most string) v2alpha1.DIJobSpec {
	spec.Disruption = &v2alpha1.Disruption{MaxUnavailable: ptr.To(intstr.Parse(most))}
	return spec
}

// expectBudget checks the number of the budget that the job gets now, -1 for none.
func (w *world) expectBudget(want int) {
	w.t.Helper()
	decision := Decide(w.observe())
	got := -1
	if decision.CreateBudget != nil {
		got = decision.CreateBudget.Spec.MinAvailable.IntValue()
	}
	if got != want {
		w.t.Errorf("the budget has minAvailable %d, want %d", got, want)
	}
}

func TestTheBudgetOfAWorkerLedJobFollowsItsReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, protected(trainingJob(), "1"))
	w.expectBudget(3)
	w.allRun()
	w.expectBudget(3)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(int32(4)) })
	w.expectBudget(5)
	w.allRun()
	w.end("job-evaluator-0", 0)
	w.settle()
	w.expectBudget(4)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.expectBudget(0)
	w.settle()
	w.expectBudget(0)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	w.settle()
	w.expectBudget(4)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Disruption.MaxUnavailable = ptr.To(intstr.FromString("50%")) })
	w.expectBudget(2)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Disruption = nil })
	w.expectBudget(-1)
}

func TestABudgetStaysWhileAJobRestarts(t *testing.T) {
	t.Parallel()
	w := allRunning(t, protected(trainingJob(), "1"))
	w.end("job-learner-0", 1)
	w.step()
	w.expectPhase(v2alpha1.JobRestarting)
	w.expectBudget(-1)
	w.settle()
	w.expectBudget(3)
}

func TestReplicasThatLeaveAreNoRoomForEvictions(t *testing.T) {
	t.Parallel()
	w := allRunning(t, protected(statefulJob(), "0"))
	w.expectBudget(6)
	w.resizeServers(2)
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3")
	w.expectBudget(6)
	w.acknowledge("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3")
	w.settle()
	w.expectBudget(4)
}

func TestTheBudgetOfACoordinatorLedJobFollowsItsMembership(t *testing.T) {
	t.Parallel()
	w := led(t, protected(ledJob(), "0"))
	w.config = &v2alpha1.AggregatorConfig{Spec: v2alpha1.AggregatorConfigSpec{Aggregator: v2alpha1.AggregatorSpec{Template: template}}}
	w.expectBudget(1)
	slot := w.ask(v2alpha1.TaskTypeCollector)
	w.expectBudget(2)
	w.ask(v2alpha1.TaskTypeLearner, 2)
	w.settle()
	expect.Equal(t, "pods: coordinator, collector, aggregator, DDP learner", 4, len(w.pods))
	w.expectBudget(4)
	w.run(w.podNames()...)
	w.settle()

	// A replica that is drained counts as available until it is deleted.
	name := w.current(slot)[0]
	w.membership.Spec.Members = w.membership.Spec.Members[1:]
	gone := membership.URLs{Collectors: []string{names.ReplicaURL(name, w.job.Namespace, 22270)}}
	membership.Record(&w.membership.Spec, membership.Request{Removal: true}, gone, w.now, membership.Unaged)
	w.step()
	w.expectBudget(4)
	w.now = w.now.Add(state.DefaultDrain + time.Second)
	w.settle()
	w.expectBudget(3)

	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.settle()
	w.expectBudget(0)
}

func TestABudgetIsWrittenOnceWhereItDiffers(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, tc := range map[string]struct {
		change  func(*policyv1.PodDisruptionBudget)
		job     func(*v2alpha1.DIJob)
		updated bool
		deleted bool
	}{
		"as desired":       {},
		"another number":   {change: func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = ptr.To(intstr.FromInt32(0)) }, updated: true},
		"another field":    {change: func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(1)) }, updated: true},
		"another selector": {change: func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }, updated: true},
		"labels of others": {change: func(b *policyv1.PodDisruptionBudget) { b.Labels["team"] = "blue" }},
		"an owner in v1alpha1": {change: func(b *policyv1.PodDisruptionBudget) {
			b.OwnerReferences[0].APIVersion = v2alpha1.GroupName + "/v1alpha1"
		}, updated: true},
		"deleted, and still held": {change: func(b *policyv1.PodDisruptionBudget) { b.DeletionTimestamp, b.Spec.Selector = &now, nil }},
		"no longer asked for":     {job: func(job *v2alpha1.DIJob) { job.Spec.Disruption = nil }, deleted: true},
		"a finished job": {
			job:     func(job *v2alpha1.DIJob) { job.Status = v2alpha1.DIJobStatus{Phase: v2alpha1.JobSucceeded} },
			deleted: true,
		},
		"a deleted job that is held": {
			job: func(job *v2alpha1.DIJob) {
				job.DeletionTimestamp, job.Finalizers = &now, []string{"example.com/hold"}
			},
			deleted: true,
		},
		"a deleted job": {job: func(job *v2alpha1.DIJob) { job.DeletionTimestamp = &now }},
		"a job of another manager": {job: func(job *v2alpha1.DIJob) {
			job.Spec.ManagedBy, job.Spec.Disruption = ptr.To("example.com/other"), nil
		}},
		"too many pods keep it": {job: func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(int32(90_000)) }},
		"a word keeps it":       {job: func(job *v2alpha1.DIJob) { job.Spec.Disruption.MaxUnavailable = ptr.To(intstr.FromString("half")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := allRunning(t, protected(trainingJob(), "1"))
			observed := w.observe()
			observed.Budget = workload.Budget(observed.Job, v2alpha1.Version, 3)
			if tc.change != nil {
				tc.change(observed.Budget)
			}
			if tc.job != nil {
				tc.job(observed.Job)
			}
			decision := Decide(observed)
			expect.Equal(t, "not created", true, decision.CreateBudget == nil)
			expect.Equal(t, "deleted", tc.deleted, decision.DeleteBudget != nil)
			expect.MustEqual(t, "updated", tc.updated, decision.UpdateBudget != nil)
			if !tc.updated {
				return
			}
			observed.Budget = decision.UpdateBudget
			expect.Equal(t, "updated again", true, Decide(observed).UpdateBudget == nil)
		})
	}
}

func TestABudgetOfAnotherOwnerIsNamed(t *testing.T) {
	t.Parallel()
	w := allRunning(t, protected(trainingJob(), "1"))
	observed := w.observe()
	observed.TakenBudgets = map[string]state.Taken{"job": {Message: "budget job exists and has no owner", Until: observed.Now.Add(time.Second)}}
	decision := Decide(observed)
	expect.Equal(t, "not created", true, decision.CreateBudget == nil)
	expect.Equal(t, "conflicts", []string{"budget job exists and has no owner"}, decision.Conflicts)
	observed.Now = observed.Now.Add(2 * time.Second)
	expect.Equal(t, "tried again", true, Decide(observed).CreateBudget != nil)
}
