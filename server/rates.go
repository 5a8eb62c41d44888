// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/rates"
	"opendilab.org/di-orchestrator/server/store"
)

// pendingRatesSize is the assumed size of a pending write of rates: the sums themselves are in the book.
const pendingRatesSize = 256

// pendingRates is a write of the rates of a job. Its report has the sender, but no content.
type pendingRates struct {
	report
	job types.UID
}

// rateWriter sums the reports of workers, and writes the rates of jobs: those with a ratio rule often, and
// others as seldom as other reports.
type rateWriter struct {
	// book has the sums by job and role.
	book          *rates.Book
	often, seldom *limit.Debouncer[pendingRates]
	writes        *jobWrites
	outcomes      *reportOutcomes
	clock         clock.PassiveClock
	// timeout bounds a write whose request is already answered.
	timeout time.Duration
}

func newRateWriter(options *Options, writes *jobWrites, outcomes *reportOutcomes) *rateWriter {
	w := &rateWriter{
		book: rates.NewBook(rand.String(serverNameLength)), writes: writes, outcomes: outcomes,
		clock: options.Clock, timeout: options.Times.Request,
	}
	often := limit.DebouncerOptions[pendingRates]{
		Interval: options.Times.Rates, Burst: 1, Clock: options.Clock, Write: w.writePending,
		Size:        func(pendingRates) int { return pendingRatesSize },
		OnCoalesced: outcomes.coalesced,
	}
	w.often = limit.NewDebouncer(often)
	seldom := often
	seldom.Interval = max(options.Times.Profilings, options.Times.Rates)
	w.seldom = limit.NewDebouncer(seldom)
	return w
}

// of returns the debouncer for a job.
func (w *rateWriter) of(job *v2alpha1.DIJob) *limit.Debouncer[pendingRates] {
	if job.Spec.Autoscale != nil && job.Spec.Autoscale.Ratio != nil {
		return w.often
	}
	return w.seldom
}

// both returns both debouncers.
func (w *rateWriter) both() []*limit.Debouncer[pendingRates] {
	return []*limit.Debouncer[pendingRates]{w.often, w.seldom}
}

// accept adds the report of a worker about itself to the sums of its job. It writes them as often as the job
// may write.
func (w *rateWriter) accept(ctx context.Context, job *v2alpha1.DIJob, given report, worker *profilings.Role) error {
	sender := auth.SenderOf(ctx)
	switch err := w.book.Add(job.UID, sender.String(), worker, w.clock.Now()); {
	case errors.Is(err, rates.ErrFull):
		return failure.New(failure.Unavailable, "%v", err)
	case err != nil:
		return failure.New(failure.Invalid, "%v", err)
	}
	given.content = nil
	pending, writer := pendingRates{given, job.UID}, w.of(job)
	isNow, err := writer.Begin(job.UID, pending)
	if isNow {
		err = w.write(ctx, pending)
		writer.End(job.UID, err)
	}
	return err
}

// readRole reads a report of a worker about itself. It returns nil for a report of the job.
func readRole(content []byte) (*profilings.Role, error) {
	worker, isRole, err := profilings.ParseRole(content)
	switch {
	case err != nil:
		return nil, failure.New(failure.Invalid, "%v", err)
	case !isRole:
		return nil, nil
	}
	return worker, nil
}

// ratesEdit stores the sums of this server in a job.
type ratesEdit struct {
	reportEdit
	book  *rates.Book
	clock clock.PassiveClock
}

// Kind implements store.JobEdit.
func (*ratesEdit) Kind() limit.Kind { return limit.OfRates }

// Apply replaces the sums of this server in the status, unless they are the same.
func (r *ratesEdit) Apply(job *v2alpha1.DIJob) (store.JobPatch, error) {
	r.outcome = reportUnchanged
	if err := r.id.CheckCurrent(job); err != nil {
		return store.JobPatch{}, err
	}
	now := r.clock.Now()
	merged := rates.Merge(job.Status.Rates, r.book.Of(job.UID, now), r.book.Server(), now)
	if slices.EqualFunc(merged, job.Status.Rates, func(a, b v2alpha1.RoleRates) bool { return equality.Semantic.DeepEqual(a, b) }) {
		return store.JobPatch{}, nil
	}
	r.outcome = reportWritten
	return store.Rates(job, merged)
}

// write writes the sums of a job, and counts and logs the outcome.
func (w *rateWriter) write(ctx context.Context, given pendingRates) error {
	request := jobRequest{writes: w.writes, id: given.id, wanted: auth.Profilings()}
	edit := &ratesEdit{reportEdit: reportEdit{jobRequest: request, report: given.report}, book: w.book, clock: w.clock}
	_, err := edit.make(ctx, edit)
	w.outcomes.ended(ctx, edit.outcome, err, "The reports of workers were not written")
	return err
}

// writePending writes the sums of a job after the requests are answered.
func (w *rateWriter) writePending(given pendingRates) error {
	ctx, cancel := context.WithTimeout(given.ctx, w.timeout)
	defer cancel()
	return w.write(ctx, given)
}
