// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/scaling"
)

const (
	// PlanIndex is the name of the index of all ScalePlans by the name of their job.
	PlanIndex = "spec.job"
	// UnfinishedPlanIndex is the name of the index of unfinished ScalePlans by the name of their job. The
	// reconcile of a job reads only these, however many others there are.
	UnfinishedPlanIndex = "spec.job/unfinished"
)

// JobOfPlan is the index function of PlanIndex.
func JobOfPlan(object client.Object) []string {
	if plan, isPlan := object.(*v2alpha1.ScalePlan); isPlan {
		return []string{plan.Spec.Job}
	}
	return nil
}

// JobOfUnfinishedPlan is the index function of UnfinishedPlanIndex.
func JobOfUnfinishedPlan(object client.Object) []string {
	if plan, isPlan := object.(*v2alpha1.ScalePlan); isPlan && !scaling.IsFinished(plan.Status.Phase) {
		return []string{plan.Spec.Job}
	}
	return nil
}
