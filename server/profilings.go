// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/gin-gonic/gin"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/server/wire"
)

const messageProfilings = "successfully report profilings"

// reportBurst is the number of reports of a job that are written at once after a pause.
const reportBurst = 3

// report is a profiling report of a job. Its context has the sender.
type report struct {
	ctx     context.Context //nolint:containedctx // the report outlives its request
	id      wire.JobID
	content json.RawMessage
	// isCoordinators is set in the report of a coordinator.
	isCoordinators bool
}

// checkLifecycle refuses jobs of the other protocol.
func (r *report) checkLifecycle(job *v2alpha1.DIJob) error {
	switch isLed := job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed; {
	case !r.isCoordinators:
		return r.id.CheckWorkerLed(job)
	case !isLed:
		return failure.New(failure.NotFound, "job %q is not coordinator-led", r.id.Key)
	}
	return nil
}

// reportOutcomes counts and logs the outcomes of reports.
type reportOutcomes struct {
	log     *requestLog
	metrics *limitMetrics
}

// ended counts an outcome, and logs a failure with its message.
func (o *reportOutcomes) ended(ctx context.Context, outcome string, err error, message string) {
	if err != nil {
		outcome = reportFailed
		o.log.limited(ctx, message).Info(message, "reason", loggable(err.Error()))
	}
	o.metrics.report(outcome)
}

// coalesced counts a report that a later one replaces.
func (o *reportOutcomes) coalesced() {
	o.metrics.report(reportCoalesced)
}

// reportWriter writes the reports of jobs. They are debounced because each write stores the whole job.
type reportWriter struct {
	pending  *limit.Debouncer[report]
	writes   *jobWrites
	outcomes *reportOutcomes
	// timeout bounds a write whose request is already answered.
	timeout time.Duration
}

func newReportWriter(options *Options, writes *jobWrites, outcomes *reportOutcomes) *reportWriter {
	w := &reportWriter{writes: writes, outcomes: outcomes, timeout: options.Times.Request}
	w.pending = limit.NewDebouncer(limit.DebouncerOptions[report]{
		Interval:    options.Times.Profilings,
		Burst:       reportBurst,
		Clock:       options.Clock,
		Write:       w.writePending,
		Size:        func(given report) int { return len(given.content) },
		OnCoalesced: outcomes.coalesced,
	})
	return w
}

// accept writes one of the first reports after a pause, and lets a later one wait.
func (w *reportWriter) accept(ctx context.Context, job types.UID, given report) error {
	isNow, err := w.pending.Begin(job, given)
	if isNow {
		err = w.write(ctx, given)
		w.pending.End(job, err)
	}
	return err
}

// write writes a report, and counts and logs the outcome.
func (w *reportWriter) write(ctx context.Context, given report) error {
	edit := &reportEdit{jobRequest: jobRequest{writes: w.writes, id: given.id, wanted: auth.Profilings()}, report: given}
	_, err := edit.make(ctx, edit)
	w.outcomes.ended(ctx, edit.outcome, err, "A report of a job was not written")
	if err == nil && edit.outcome == reportWritten {
		w.outcomes.log.audit(ctx, messageProfilings, "bytes", len(given.content))
	}
	return err
}

// writePending writes a report whose request is already answered.
func (w *reportWriter) writePending(given report) error {
	ctx, cancel := context.WithTimeout(given.ctx, w.timeout)
	defer cancel()
	return w.write(ctx, given)
}

// profilingReports answers reports of coordinators and workers.
type profilingReports struct {
	access  *auth.Auth
	reports *reportWriter
	rates   *rateWriter
	// maxBytes bounds what is reported.
	maxBytes int
}

// postOfCoordinator answers POST /profilings.
func (p *profilingReports) postOfCoordinator(c *gin.Context) error {
	ctx, wanted := c.Request.Context(), auth.Profilings()
	body, err := readCaller(c, p.access, wanted)
	if err != nil {
		return err
	}
	content, err := body.Profilings()
	if err != nil {
		return err
	}
	by, err := p.access.Callers.Caller(ctx, body.Caller.Key(), names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	if err := p.access.Authorizer.Authorize(ctx, by.Job, wanted); err != nil {
		return err
	}
	id := wire.IDOf(client.ObjectKeyFromObject(by.Job))
	return p.accept(c, by.Job, report{ctx: auth.Detach(ctx, by.Job), id: id, content: content, isCoordinators: true})
}

// post answers POST profilings of a worker-led job.
func (p *profilingReports) post(c *gin.Context) error {
	ctx, wanted := c.Request.Context(), auth.Profilings()
	id, err := readJobID(c, p.access, wanted)
	if err != nil {
		return err
	}
	body, err := readBody(c)
	if err != nil {
		return err
	}
	content, err := wire.ReadProfilings(body)
	if err != nil {
		return err
	}
	job, err := readJob(ctx, p.access, id, wanted)
	if err != nil {
		return err
	}
	return p.accept(c, job, report{ctx: auth.Detach(ctx, job), id: id, content: content})
}

// accept answers a report. A report of a worker about itself does not replace the report of the job. accept
// answers the first reports after a pause once they are written, and later reports once they are pending.
func (p *profilingReports) accept(c *gin.Context, job *v2alpha1.DIJob, given report) error {
	if err := p.check(job, &given); err != nil {
		return err
	}
	worker, err := readRole(given.content)
	if err != nil {
		return err
	}
	if worker != nil {
		err = p.rates.accept(c.Request.Context(), job, given, worker)
	} else {
		err = p.reports.accept(c.Request.Context(), job.UID, given)
	}
	if err != nil {
		return err
	}
	return succeed(c, messageProfilings, nil)
}

// check refuses reports that no write can store.
func (p *profilingReports) check(job *v2alpha1.DIJob, given *report) error {
	if err := given.checkLifecycle(job); err != nil {
		return err
	}
	if err := given.id.CheckCurrent(job); err != nil {
		return err
	}
	if most := p.maxBytes; len(given.content) > most {
		return failure.New(failure.Invalid, "what is reported has %d bytes, more than the %d that it may have", len(given.content), most)
	}
	if _, err := decodeStored(given.content); err != nil {
		return failure.New(failure.Invalid, "what is reported cannot be stored: %v", err)
	}
	return nil
}

// reportEdit stores a profiling report in a job.
type reportEdit struct {
	jobRequest
	report report
	// outcome is the outcome of the report if the write succeeds.
	outcome string
}

// Kind implements store.JobEdit.
func (*reportEdit) Kind() limit.Kind { return limit.OfReports }

// Check refuses jobs that the sender may not edit, and jobs of the other protocol.
func (r *reportEdit) Check(ctx context.Context, job *v2alpha1.DIJob) error {
	if err := r.writes.access.Authorizer.Authorize(ctx, job, r.wanted); err != nil {
		return err
	}
	return r.report.checkLifecycle(job)
}

// Apply stores the report unless the job already has it.
func (r *reportEdit) Apply(job *v2alpha1.DIJob) (store.JobPatch, error) {
	r.outcome = reportUnchanged
	if err := r.id.CheckCurrent(job); err != nil {
		return store.JobPatch{}, err
	}
	if job.Status.Profilings != nil && isSameJSON(job.Status.Profilings.Raw, r.report.content) {
		return store.JobPatch{}, nil
	}
	r.outcome = reportWritten
	return store.Report(job, r.report.content)
}

// decodeStored decodes an object to the form in which the API server stores it.
func decodeStored(content []byte) (map[string]any, error) {
	var object map[string]any
	err := utiljson.Unmarshal(content, &object)
	return object, err
}

func isSameJSON(one, other []byte) bool {
	a, err := decodeStored(one)
	b, failed := decodeStored(other)
	return err == nil && failed == nil && reflect.DeepEqual(a, b)
}
