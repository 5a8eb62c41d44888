// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator/spans"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
	"opendilab.org/di-orchestrator/job/workload"
)

// reports are the parsed reports of the jobs of the last round, so that each report is parsed once.
type reports map[types.UID]*report

// report is what a job reported last, and its group.
type report struct {
	generation int64
	group      string
	raw        []byte
	// parsed is nil if the job reports nothing, or nothing readable. err then says why.
	parsed *profilings.Report
	err    error
	// isNewlyUnreadable is set in the round in which a job's reports become unreadable.
	isNewlyUnreadable bool
	// changedAt is when this process first observed this content after another; zero if it never did.
	changedAt time.Time
	// seen is what was seen of the placements at which the job measured its steps.
	seen spans.Seen
}

// of returns the report of a job, parsed again only if it has changed.
func (r reports) of(job *v2alpha1.DIJob, now time.Time) *report {
	before, known := r[job.UID]
	next := report{}
	if known {
		next = *before
	}
	next.isNewlyUnreadable = false
	if !known || next.generation != job.Generation {
		next.generation, next.group = job.Generation, workload.Group(job)
	}
	raw := rawReport(job)
	if known && bytes.Equal(before.raw, raw) {
		return &next
	}
	next.raw, next.parsed, next.err = raw, nil, nil
	if known {
		next.changedAt = now
	}
	if len(raw) > 0 {
		if next.parsed, next.err = profilings.Parse(raw); next.err != nil {
			next.parsed = nil
			next.isNewlyUnreadable = !known || before.err == nil
		}
	}
	return &next
}

func rawReport(job *v2alpha1.DIJob) []byte {
	if job.Status.Profilings == nil {
		return nil
	}
	return job.Status.Profilings.Raw
}

// reportUnreadable records that a job's reports are ignored.
func (a *Reconciler) reportUnreadable(ctx context.Context, job *v2alpha1.DIJob, err error) {
	a.metrics.unreadable.WithLabelValues().Inc()
	log.FromContext(ctx).WithValues(names.LogWhole(job)...).Info("Ignored an unreadable report", "reason", err.Error())
	a.recorder.Eventf(job, nil, corev1.EventTypeWarning, v2alpha1.ReasonUnreadableReport, "Allocate", "%s",
		recorder.Note("the allocator ignores the job's report: "+err.Error()))
}
