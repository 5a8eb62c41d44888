// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// DropKeys deletes the keys of ssh of a job that ends or is suspended now. The status is written after the deletion, so a
// deletion that fails is repeated.
func (u Rules) DropKeys() {
	if names.HasMPI(&u.in.Job.Spec) && needsNoKeys(u.out.Status()) && !needsNoKeys(&u.in.Job.Status) {
		u.out.DeleteKeys(names.Generation(u.out.Status()))
	}
}

// needsNoKeys reports whether a job has ended or is suspended.
func needsNoKeys(status *v2alpha1.DIJobStatus) bool {
	return state.IsFinished(status) || conditions.IsTrue(status, v2alpha1.ConditionSuspended)
}
