// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"maps"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// KeepBudget makes the job's PodDisruptionBudget equal to the desired one. While it is unknown which pods the job
// desires, the budget stays: the job restarts, or its spec cannot be acted on. A finished job has no budget.
func (u Rules) KeepBudget(outcome state.Outcome) {
	job, stored := u.in.Job, u.in.Budget
	switch {
	case job.Spec.Disruption == nil || state.IsFinished(&job.Status) || state.IsHeld(job):
		if stored != nil && stored.DeletionTimestamp.IsZero() {
			u.out.Decision.DeleteBudget = stored
		}
		return
	case state.IsFinished(u.out.Status()):
		return
	}
	pods, isKnown := outcome.Desired()
	if !isKnown && !state.IsSuspended(job) {
		return
	}
	least, err := u.leastAvailable(pods)
	if err != nil {
		u.out.Invalidate(err.Error())
		return
	}
	u.syncBudget(workload.Budget(job, u.in.Settings.JobVersion, least))
}

// leastAvailable returns how many pods of the job an eviction must leave available. Ready pods that the job
// no longer desires add to that, because Kubernetes counts them as available until they are deleted.
func (u Rules) leastAvailable(desired map[string]bool) (int32, error) {
	if state.IsSuspended(u.in.Job) {
		desired = nil
	}
	least, err := workload.MinAvailable(u.in.Job.Spec.Disruption, int32(len(desired)))
	if err != nil || state.IsSuspended(u.in.Job) {
		return 0, err
	}
	for _, pod := range u.in.Pods {
		if !desired[pod.Name] && podstate.Ready(pod) && !u.out.Deleting[pod] {
			least++
		}
	}
	return least, nil
}

// syncBudget creates the budget, or writes the fields of the stored one that differ.
func (u Rules) syncBudget(wanted *policyv1.PodDisruptionBudget) {
	stored := u.in.Budget
	if stored == nil {
		if !u.out.IsTaken("PodDisruptionBudget", wanted.Name, u.in.TakenBudgets) && u.out.MayCreate(state.KindBudgets) {
			u.out.Decision.CreateBudget = wanted
		}
		return
	}
	synced := stored.DeepCopy()
	synced.OwnerReferences = u.in.StoredReferences(synced)
	synced.Spec = wanted.Spec
	if synced.Labels == nil {
		synced.Labels = map[string]string{}
	}
	maps.Copy(synced.Labels, wanted.Labels)
	if stored.DeletionTimestamp.IsZero() && !equality.Semantic.DeepEqual(stored, synced) {
		u.out.Decision.UpdateBudget = synced
	}
}
