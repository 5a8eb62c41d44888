// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// KeepBudget makes the job's PodDisruptionBudget equal to the desired one. The function returns the names of the pods
// that the job desires and that have not completed. While they are unknown, the budget stays: the job restarts, or
// its spec cannot be acted on. A finished job has no budget.
func (p *Plan) KeepBudget(desired func() (pods map[string]bool, isKnown bool)) {
	job, stored := p.in.Job, p.in.Budget
	switch {
	case job.Spec.Disruption == nil || IsFinished(&job.Status) || IsHeld(job):
		if stored != nil && stored.DeletionTimestamp.IsZero() {
			p.Decision.DeleteBudget = stored
		}
		return
	case IsFinished(p.Status()):
		return
	}
	pods, isKnown := desired()
	if !isKnown && !IsSuspended(job) {
		return
	}
	least, err := p.leastAvailable(pods)
	if err != nil {
		p.Invalidate(err.Error())
		return
	}
	p.syncBudget(workload.Budget(job, p.in.Settings.JobVersion, least))
}

// leastAvailable returns how many pods of the job an eviction must leave available. Ready pods that the job
// no longer desires add to that, because Kubernetes counts them as available until they are deleted.
func (p *Plan) leastAvailable(desired map[string]bool) (int32, error) {
	if IsSuspended(p.in.Job) {
		desired = nil
	}
	least, err := workload.MinAvailable(p.in.Job.Spec.Disruption, int32(len(desired)))
	if err != nil || IsSuspended(p.in.Job) {
		return 0, err
	}
	for _, pod := range p.in.Pods {
		if !desired[pod.Name] && podstate.Ready(pod) && !p.Deleting[pod] {
			least++
		}
	}
	return least, nil
}

// syncBudget creates the budget, or writes the fields of the stored one that differ.
func (p *Plan) syncBudget(wanted *policyv1.PodDisruptionBudget) {
	stored := p.in.Budget
	if stored == nil {
		if !p.isTaken("PodDisruptionBudget", wanted.Name, p.in.TakenBudgets) && p.MayCreate(KindBudgets) {
			p.Decision.CreateBudget = wanted
		}
		return
	}
	synced := stored.DeepCopy()
	synced.OwnerReferences = p.in.StoredReferences(synced)
	synced.Spec = wanted.Spec
	if synced.Labels == nil {
		synced.Labels = map[string]string{}
	}
	maps.Copy(synced.Labels, wanted.Labels)
	if stored.DeletionTimestamp.IsZero() && !equality.Semantic.DeepEqual(stored, synced) {
		p.Decision.UpdateBudget = synced
	}
}
