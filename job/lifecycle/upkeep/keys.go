// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// DropKeys deletes the keys of ssh of a job that ends now. The status is written after the deletion, so a deletion that
// fails is repeated.
func (u Rules) DropKeys() {
	if names.HasMPI(&u.in.Job.Spec) && state.IsFinished(u.out.Status()) && !state.IsFinished(&u.in.Job.Status) {
		u.out.DeleteKeys(names.Generation(u.out.Status()))
	}
}
