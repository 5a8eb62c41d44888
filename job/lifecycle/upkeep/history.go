// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"slices"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// Hold is what to do about the finalizer by which a job stays until the history has recorded its end. The history
// removes it from deleted jobs, and the operator does everything else.
type Hold struct {
	// Finalizers are the desired ones, if Change is set.
	Finalizers []string
	Change     bool
	// TimedOut is set if the job is let go although the history has not recorded its end.
	TimedOut bool
	// Left is after how long that happens; 0 for never.
	Left time.Duration
}

// FindHold returns what to do about the finalizer of a job. A job of another controller does not get it, but one that its
// manifest brought ends like any other. The API server accepts no new finalizer once a job is being deleted.
func FindHold(observed *state.Observed) Hold {
	job, isDeleted := observed.Job, !observed.Job.DeletionTimestamp.IsZero()
	if !state.HasHistoryFinalizer(job) {
		if !observed.History.Required || isDeleted || names.OtherManager(&job.Spec) != "" {
			return Hold{}
		}
		return Hold{Change: true, Finalizers: append(slices.Clone(job.Finalizers), names.FinalizerHistory)}
	}
	switch left := observed.JobDeletionSeen().Add(observed.History.Timeout).Sub(observed.Now); {
	case !observed.History.Required:
		return Hold{Change: true, Finalizers: withoutHistory(job)}
	case !isDeleted:
		return Hold{}
	case left > 0:
		return Hold{Left: left}
	}
	return Hold{Change: true, Finalizers: withoutHistory(job), TimedOut: true}
}

func withoutHistory(job *v2alpha1.DIJob) []string {
	return slices.DeleteFunc(slices.Clone(job.Finalizers), func(finalizer string) bool { return finalizer == names.FinalizerHistory })
}
