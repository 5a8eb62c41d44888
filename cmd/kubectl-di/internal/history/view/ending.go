// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// PhaseOf returns the last phase. A job that ended in another one than the final ones was deleted.
func PhaseOf(phase string, ended time.Time, unseen bool) string {
	isFinal := phase == string(v2alpha1.JobSucceeded) || phase == string(v2alpha1.JobFailed)
	switch {
	case ended.IsZero() || isFinal:
		return phase
	case unseen:
		return "Unseen"
	}
	return "Deleted"
}

// SpanOf returns how long something took, or takes until now; "" if it has not started.
func SpanOf(started, ended, now time.Time) string {
	if started.IsZero() {
		return ""
	}
	if ended.IsZero() {
		ended = now
	}
	return duration.HumanDuration(max(0, ended.Sub(started)))
}
