// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
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

// newReports returns the debouncer of reports. Reports are debounced because each write stores the whole
// job.
func (s *Server) newReports() *limit.Debouncer[report] {
	return limit.NewDebouncer(limit.DebouncerOptions[report]{
		Interval:    s.options.Times.Profilings,
		Burst:       reportBurst,
		Clock:       s.options.Clock,
		Write:       s.writePending,
		Size:        func(given report) int { return len(given.content) },
		OnCoalesced: func() { s.limited.report(reportCoalesced) },
	})
}

// followRequests lets the store know since when it knows the recorded requests of coordinators.
func (s *Server) followRequests(ctx context.Context) error {
	informer, err := s.options.Cache.GetInformer(ctx, &v2alpha1.Membership{})
	if err != nil {
		return fmt.Errorf("watching Memberships: %w", err)
	}
	see := func(object any) {
		if list, isList := object.(*v2alpha1.Membership); isList {
			s.store.SeeMembership(list)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, updated any) { see(updated) }})
	if err != nil {
		return fmt.Errorf("watching Memberships: %w", err)
	}
	return nil
}

// followJobs writes the pending report of a job that finishes, and drops that of a job that is deleted.
func (s *Server) followJobs(ctx context.Context) error {
	informer, err := s.options.Cache.GetInformer(ctx, &v2alpha1.DIJob{})
	if err != nil {
		return fmt.Errorf("watching jobs: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(added any) {
			if job, isJob := added.(*v2alpha1.DIJob); isJob {
				s.store.SeeJob(job)
			}
		},
		UpdateFunc: func(old, updated any) {
			before, isBefore := old.(*v2alpha1.DIJob)
			after, isAfter := updated.(*v2alpha1.DIJob)
			if isAfter {
				s.store.SeeJob(after)
			}
			if isBefore && isAfter && membershipVersion(before) != membershipVersion(after) {
				s.watchers.notify(after.UID)
			}
			if isBefore && isAfter && state.IsFinished(&after.Status) && !state.IsFinished(&before.Status) {
				s.reports.Release(after.UID)
				s.rateWriters.each(func(writer *limit.Debouncer[pendingRates]) { writer.Release(after.UID) })
			}
		},
		DeleteFunc: func(deleted any) {
			if unknown, is := deleted.(cache.DeletedFinalStateUnknown); is {
				deleted = unknown.Obj
			}
			if job, isJob := deleted.(*v2alpha1.DIJob); isJob {
				s.reports.Forget(job.UID)
				s.watchers.notify(job.UID)
				s.rateWriters.each(func(writer *limit.Debouncer[pendingRates]) { writer.Forget(job.UID) })
				s.rates.Forget(job.UID)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching jobs: %w", err)
	}
	return nil
}

// reportOfCoordinator answers POST /profilings.
func (s *Server) reportOfCoordinator(c *gin.Context) error {
	ctx, wanted := c.Request.Context(), auth.Profilings()
	body, err := readCaller(c, s.auth, wanted)
	if err != nil {
		return err
	}
	content, err := body.Profilings()
	if err != nil {
		return err
	}
	by, err := s.auth.Callers.Caller(ctx, body.Caller.Key(), names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	if err := s.auth.Authorizer.Authorize(ctx, by.Job, wanted); err != nil {
		return err
	}
	id := wire.IDOf(client.ObjectKeyFromObject(by.Job))
	return s.accept(c, by.Job, report{ctx: auth.Detach(ctx, by.Job), id: id, content: content, isCoordinators: true})
}

// reportProfilings answers POST profilings of a worker-led job.
func (s *Server) reportProfilings(c *gin.Context) error {
	ctx, wanted := c.Request.Context(), auth.Profilings()
	id, err := readJobID(c, s.auth, wanted)
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
	job, err := readJob(ctx, s.auth, id, wanted)
	if err != nil {
		return err
	}
	return s.accept(c, job, report{ctx: auth.Detach(ctx, job), id: id, content: content})
}

// accept answers a report. A report of a worker about itself does not replace the report of the job. accept answers the first reports after a pause once they are written, and later
// reports once they are pending.
func (s *Server) accept(c *gin.Context, job *v2alpha1.DIJob, given report) error {
	if err := s.checkReport(job, &given); err != nil {
		return err
	}
	worker, err := readRole(given.content)
	if err != nil {
		return err
	}
	if worker != nil {
		return s.acceptRole(c, job, given, worker)
	}
	isNow, err := s.reports.Begin(job.UID, given)
	if isNow {
		err = s.writeReport(c.Request.Context(), given)
		s.reports.End(job.UID, err)
	}
	if err != nil {
		return err
	}
	return succeed(c, messageProfilings, nil)
}

// checkReport refuses reports that no write can store.
func (s *Server) checkReport(job *v2alpha1.DIJob, given *report) error {
	if err := given.checkLifecycle(job); err != nil {
		return err
	}
	if err := given.id.CheckCurrent(job); err != nil {
		return err
	}
	if most := s.options.Limits.ProfilingBytes; len(given.content) > most {
		return failure.New(failure.Invalid, "what is reported has %d bytes, more than the %d that it may have", len(given.content), most)
	}
	if _, err := decodeStored(given.content); err != nil {
		return failure.New(failure.Invalid, "what is reported cannot be stored: %v", err)
	}
	return nil
}

// Kind implements store.JobEdit.
func (*reportEdit) Kind() limit.Kind { return limit.OfReports }

// reportEdit stores a profiling report in a job.
type reportEdit struct {
	jobRequest
	report report
	// outcome is the outcome of the report if the write succeeds.
	outcome string
}

// Check refuses jobs that the sender may not edit, and jobs of the other protocol.
func (r *reportEdit) Check(ctx context.Context, job *v2alpha1.DIJob) error {
	if err := r.server.auth.Authorizer.Authorize(ctx, job, r.wanted); err != nil {
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

// writeReport writes a report, and counts and logs the outcome.
func (s *Server) writeReport(ctx context.Context, given report) error {
	edit := &reportEdit{jobRequest: jobRequest{server: s, id: given.id, wanted: auth.Profilings()}, report: given}
	_, err := edit.make(ctx, edit)
	if err != nil {
		edit.outcome = reportFailed
		const message = "A report of a job was not written"
		s.log.limited(ctx, message, func(log logr.Logger) { log.Info(message, "reason", loggable(err.Error())) })
	}
	s.limited.report(edit.outcome)
	if edit.outcome == reportWritten {
		s.log.audit(ctx, messageProfilings, "bytes", len(given.content))
	}
	return err
}

// writePending writes a report whose request is already answered.
func (s *Server) writePending(given report) error {
	ctx, cancel := context.WithTimeout(given.ctx, s.options.Times.Request)
	defer cancel()
	return s.writeReport(ctx, given)
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
