// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// maxPending bounds the bytes of all reports that wait to be written.
const maxPending = 16 << 20

// report is what a job reports of itself, on behalf of whoever its context says.
type report struct {
	ctx     context.Context //nolint:containedctx // the report outlives its request
	id      jobID
	content json.RawMessage
}

// reports writes the reports of each job at most once in a while, the last one
// alone: the job is stored whole each time.
type reports struct {
	every, timeout time.Duration
	write          func(context.Context, *report) error
	// told is told what becomes of a report that is not written.
	told func(outcome string)

	mutex sync.Mutex
	// turns are the jobs for which a report is being written, or was not long ago.
	turns map[types.UID]*turn
	// pending are the bytes that wait.
	pending int
	writing sync.WaitGroup
}

// turn is the time in which a job's further reports wait.
type turn struct {
	next  *report
	timer *time.Timer
}

// begin reports whether a job's report is to be written now; else it waits, in the
// place of one that did before.
func (r *reports) begin(job types.UID, given *report) (bool, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, busy := r.turns[job]
	if !busy {
		r.turns[job] = &turn{}
		return true, nil
	}
	pending := r.pending + len(given.content)
	if known.next != nil {
		pending -= len(known.next.content)
	}
	if pending > maxPending {
		return false, failure(KindUnavailable, "more is reported than can be kept: send it again later")
	}
	if known.next != nil {
		r.told(reportCoalesced)
	}
	known.next, r.pending = given, pending
	return false, nil
}

// end ends a write. One that failed lets the next report be written at once.
func (r *reports) end(job types.UID, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.turns[job]
	if known == nil {
		return
	}
	if err != nil && known.next == nil {
		delete(r.turns, job)
		return
	}
	known.timer = time.AfterFunc(r.every, func() { r.due(job) })
}

// due writes the report of a job that waits, if there is one. What cannot be
// written now waits on, unless there is a newer one.
func (r *reports) due(job types.UID) {
	r.mutex.Lock()
	known := r.turns[job]
	if known == nil {
		r.mutex.Unlock()
		return
	}
	given := known.next
	if given == nil {
		delete(r.turns, job)
		r.mutex.Unlock()
		return
	}
	known.next = nil
	r.pending -= len(given.content)
	r.writing.Add(1)
	r.mutex.Unlock()
	defer r.writing.Done()

	ctx, cancel := context.WithTimeout(given.ctx, r.timeout)
	defer cancel()
	err := r.write(ctx, given)
	if err != nil && asFailure(err).Kind == KindUnavailable {
		r.keep(job, given)
	}
	r.end(job, nil)
}

func (r *reports) keep(job types.UID, given *report) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.turns[job]
	switch {
	case known == nil:
	case known.next != nil:
		r.told(reportCoalesced)
	default:
		known.next = given
		r.pending += len(given.content)
	}
}

// flush writes all reports that wait, as the server stops.
func (r *reports) flush() {
	r.mutex.Lock()
	var waiting []types.UID
	for job, known := range r.turns {
		if known.timer != nil {
			known.timer.Stop()
		}
		// A timer that has fired may not have come to its report yet.
		if known.next != nil {
			waiting = append(waiting, job)
		}
	}
	r.mutex.Unlock()
	for _, job := range waiting {
		r.due(job)
	}
	r.writing.Wait()
}

// reportProfilings answers POST profilings. The first report in a while is
// answered once it is written, what follows soon once it is to be.
func (s *Server) reportProfilings(c *gin.Context) error {
	id, err := parseJobID(c.Param("job_id"))
	if err != nil {
		return err
	}
	ctx, wanted := c.Request.Context(), permission{"create", resourceProfilings}
	if err := s.gate.approach(ctx, jobTarget(id.key), wanted); err != nil {
		return err
	}
	content, err := readProfilings(c)
	if err != nil {
		return err
	}
	var job v2alpha1.DIJob
	if err := s.find(ctx, id.key, &job); err != nil {
		return id.readFailure(err)
	}
	if err := s.gate.admit(ctx, &job, wanted); err != nil {
		return err
	}
	if err := s.acceptable(id, &job, content); err != nil {
		return err
	}
	// The request may have been answered and logged by the time that the report is written.
	given := &report{context.WithValue(context.WithoutCancel(ctx), matterKey{}, &subjectMatter{job: &job}), id, content}
	isFirst, err := s.reports.begin(job.UID, given)
	if err != nil {
		return err
	}
	if isFirst {
		err := s.writeProfilings(ctx, given)
		s.reports.end(job.UID, err)
		if err != nil {
			return err
		}
	}
	return succeed(c, messageProfilings, nil)
}

// acceptable tells why a report could never be written.
func (s *Server) acceptable(id jobID, job *v2alpha1.DIJob, content json.RawMessage) error {
	if err := id.workerLed(job); err != nil {
		return err
	}
	if err := id.current(job); err != nil {
		return err
	}
	if most := s.options.Limits.ProfilingBytes; len(content) > most {
		return failure(KindInvalid, "what is reported has %d bytes, more than the %d that it may have", len(content), most)
	}
	if _, err := decoded(content); err != nil {
		return failure(KindInvalid, "what is reported cannot be stored: %v", err)
	}
	return nil
}

// writeProfilings writes a report, unless it says what the job says already.
func (s *Server) writeProfilings(ctx context.Context, given *report) error {
	wrote := false
	_, err := s.editJob(ctx, given.id, permission{"create", resourceProfilings}, func(job *v2alpha1.DIJob) (jobPatch, error) {
		wrote = false
		if err := given.id.current(job); err != nil {
			return jobPatch{}, err
		}
		if job.Status.Profilings != nil && sameJSON(job.Status.Profilings.Raw, given.content) {
			return jobPatch{}, nil
		}
		wrote = true
		return profiled(job, given.content)
	})
	s.bounds.report(outcome(wrote, err))
	switch {
	case err != nil:
		const message = "A report of a job was not written"
		s.sparsely(ctx, message, func(log logr.Logger) { log.Info(message, "reason", loggable(err.Error())) })
	case wrote:
		s.audit(ctx, messageProfilings, "bytes", len(given.content))
	}
	return err
}

// outcome returns what became of a report that was to be written.
func outcome(wrote bool, err error) string {
	switch {
	case err != nil:
		return reportFailed
	case wrote:
		return reportWritten
	}
	return reportUnchanged
}

// decoded returns an object as the API server stores it.
func decoded(content []byte) (map[string]any, error) {
	var object map[string]any
	err := utiljson.Unmarshal(content, &object)
	return object, err
}

func sameJSON(one, other []byte) bool {
	a, err := decoded(one)
	b, failed := decoded(other)
	return err == nil && failed == nil && reflect.DeepEqual(a, b)
}
