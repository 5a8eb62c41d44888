// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"slices"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/rates"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
)

// pendingRatesSize is the assumed size of a pending write of rates: the sums themselves are in the book.
const pendingRatesSize = 256

// pendingRates is a write of the rates of a job. Its report has the sender, but no content.
type pendingRates struct {
	report
	job types.UID
}

// rateWriters write the rates of jobs: those with a ratio rule often, and others as seldom as other reports.
type rateWriters struct {
	often, seldom *limit.Debouncer[pendingRates]
}

func (s *Server) newRateWriters() rateWriters {
	options := limit.DebouncerOptions[pendingRates]{
		Interval: s.options.Times.Rates, Burst: 1, Clock: s.options.Clock, Write: s.writePendingRates,
		Size:        func(pendingRates) int { return pendingRatesSize },
		OnCoalesced: func() { s.limited.report(reportCoalesced) },
	}
	writers := rateWriters{often: limit.NewDebouncer(options)}
	options.Interval = max(s.options.Times.Profilings, s.options.Times.Rates)
	writers.seldom = limit.NewDebouncer(options)
	return writers
}

// of returns the writer for a job.
func (w rateWriters) of(job *v2alpha1.DIJob) *limit.Debouncer[pendingRates] {
	if job.Spec.Autoscale != nil && job.Spec.Autoscale.Ratio != nil {
		return w.often
	}
	return w.seldom
}

func (w rateWriters) each(do func(*limit.Debouncer[pendingRates])) {
	do(w.often)
	do(w.seldom)
}

// acceptRole adds the report of a worker about itself to the sums of its job. It writes them as often as the
// job may write.
func (s *Server) acceptRole(c *gin.Context, job *v2alpha1.DIJob, given report, worker *profilings.Role) error {
	sender := auth.SenderOf(c.Request.Context())
	switch err := s.rates.Add(job.UID, sender.String(), worker, s.options.Clock.Now()); {
	case errors.Is(err, rates.ErrFull):
		return failure.New(failure.Unavailable, "%v", err)
	case err != nil:
		return failure.New(failure.Invalid, "%v", err)
	}
	given.content = nil
	pending, writer := pendingRates{given, job.UID}, s.rateWriters.of(job)
	isNow, err := writer.Begin(job.UID, pending)
	if isNow {
		err = s.writeRates(c.Request.Context(), pending)
		writer.End(job.UID, err)
	}
	if err != nil {
		return err
	}
	return succeed(c, messageProfilings, nil)
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
}

// Kind implements store.JobEdit.
func (*ratesEdit) Kind() limit.Kind { return limit.OfRates }

// Apply replaces the sums of this server in the status, unless they are the same.
func (r *ratesEdit) Apply(job *v2alpha1.DIJob) (store.JobPatch, error) {
	r.outcome = reportUnchanged
	if err := r.id.CheckCurrent(job); err != nil {
		return store.JobPatch{}, err
	}
	now := r.server.options.Clock.Now()
	book := r.server.rates
	merged := rates.Merge(job.Status.Rates, book.Of(job.UID, now), book.Server(), now)
	if slices.EqualFunc(merged, job.Status.Rates, func(a, b v2alpha1.RoleRates) bool { return equality.Semantic.DeepEqual(a, b) }) {
		return store.JobPatch{}, nil
	}
	r.outcome = reportWritten
	return store.Rates(job, merged)
}

// writeRates writes the sums of a job, and counts and logs the outcome.
func (s *Server) writeRates(ctx context.Context, given pendingRates) error {
	edit := &ratesEdit{reportEdit{jobRequest: jobRequest{server: s, id: given.id, wanted: auth.Profilings()}, report: given.report}}
	_, err := edit.make(ctx, edit)
	if err != nil {
		edit.outcome = reportFailed
		const message = "The reports of workers were not written"
		s.log.limited(ctx, message, func(log logr.Logger) { log.Info(message, "reason", loggable(err.Error())) })
	}
	s.limited.report(edit.outcome)
	return err
}

// writePendingRates writes the sums of a job after the requests are answered.
func (s *Server) writePendingRates(given pendingRates) error {
	ctx, cancel := context.WithTimeout(given.ctx, s.options.Times.Request)
	defer cancel()
	return s.writeRates(ctx, given)
}
