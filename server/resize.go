// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/server/wire"
)

// workerResizes answers writes of the replicas of worker-led jobs.
type workerResizes struct {
	writes *jobWrites
	limits Limits
	clock  clock.PassiveClock
	log    *requestLog
}

// add answers POST replicas of a worker-led job.
func (w *workerResizes) add(c *gin.Context) error {
	return w.resize(c, messageCreate, auth.Replicas("create"), 1)
}

// remove answers DELETE replicas of a worker-led job.
func (w *workerResizes) remove(c *gin.Context) error {
	return w.resize(c, messageDelete, auth.Replicas("delete"), -1)
}

// jobWrites makes the writes of requests about worker-led jobs, and of reports.
type jobWrites struct {
	access *auth.Auth
	store  *store.Store
}

// jobRequest is a request that edits a worker-led job.
type jobRequest struct {
	writes *jobWrites
	id     wire.JobID
	wanted auth.Permission
}

// Check refuses jobs that the sender may not edit, and coordinator-led jobs.
func (r *jobRequest) Check(ctx context.Context, job *v2alpha1.DIJob) error {
	if err := r.writes.access.Authorizer.Authorize(ctx, job, r.wanted); err != nil {
		return err
	}
	return r.id.CheckWorkerLed(job)
}

// make applies an edit to the job that a request names. It reports whether a failed edit may have been
// written.
func (r *jobRequest) make(ctx context.Context, edit store.JobEdit) (uncertain bool, err error) {
	// Names that are not in the cache are subject to the rate limits of lookups.
	if err := r.writes.access.Lookups.Find(ctx, r.id.Key, &v2alpha1.DIJob{}); err != nil {
		return false, store.WriteFailure(r.id.Key, err)
	}
	return r.writes.store.EditJob(ctx, r.id.Key, edit)
}

// resizeEdit resizes a worker-led job.
type resizeEdit struct {
	jobRequest
	request membership.Request
	// arrived is the arrival time of the request. It decides whether the request is a repeat.
	arrived time.Time
	// by is the number of replicas to add; negative to remove replicas.
	by int64
	// message is the message of a request that is fully granted. answer is the message of this request.
	message, answer string
	limits          Limits
}

// resize adds or removes replicas, according to the sign.
func (w *workerResizes) resize(c *gin.Context, message string, wanted auth.Permission, sign int64) error {
	ctx := c.Request.Context()
	id, err := readJobID(c, w.writes.access, wanted)
	if err != nil {
		return err
	}
	content, err := readBody(c)
	if err != nil {
		return err
	}
	asked, err := wire.ReadReplicas(content)
	if err != nil {
		return err
	}
	if err := w.limits.checkRequest("replicas", asked); err != nil {
		return err
	}
	r := &resizeEdit{
		jobRequest: jobRequest{writes: w.writes, id: id, wanted: wanted},
		arrived:    w.clock.Now(), by: sign * int64(asked), message: message, limits: w.limits,
	}
	var isRetry bool
	r.request, isRetry = w.writes.store.Claim(r.identity(c))
	if uncertain, err := r.make(ctx, r); err != nil {
		if uncertain || isRetry {
			w.writes.store.Remember(r.request)
		}
		return err
	}
	w.log.audit(ctx, r.answer, "replicas", r.by)
	return succeed(c, r.answer, nil)
}

// identity returns the idempotency key of a request. A worker's pod runs its container only once, so the
// pod identifies the sender. Two equal requests of a user are two requests.
func (r *resizeEdit) identity(c *gin.Context) membership.Request {
	request := membership.Request{
		IdempotencyKey: c.GetHeader(names.HeaderIdempotencyKey),
		Content:        fmt.Appendf(nil, "%s %s %+d", r.message, r.id.Key, r.by),
		Removal:        r.by < 0,
	}
	if pod := auth.SenderOf(c.Request.Context()).Pod(); pod != nil && c.GetHeader(names.HeaderCaller) != names.CallerUser {
		request.Container = membership.Instance(pod)
	}
	return request
}

// Kind implements store.JobEdit.
func (*resizeEdit) Kind() limit.Kind { return limit.OfRequests }

// Apply resizes a job and records the request in one patch. A repeat gets no patch. A worker that was
// replaced because of its request still gets the answer.
func (r *resizeEdit) Apply(job *v2alpha1.DIJob) (store.JobPatch, error) {
	records := slices.Concat(store.AnnotatedRequests(job), job.Status.Requests)
	done, err := r.writes.store.Recorded(records, r.request, r.arrived)
	switch {
	case err != nil:
		return store.JobPatch{}, err
	case done != nil:
		r.answer = done.Message
		return store.JobPatch{}, nil
	}
	if err := r.id.CheckCurrent(job); err != nil {
		return store.JobPatch{}, err
	}
	r.answer = r.message
	if r.by == 0 {
		return store.JobPatch{}, nil
	}
	patch, granted, err := store.Resize(job, r.by)
	if err != nil {
		return store.JobPatch{}, err
	}
	if r.by > 0 {
		if err := r.limits.checkTotal(store.MaxReplicas(job)); err != nil {
			return store.JobPatch{}, err
		}
	}
	if granted != "" {
		r.answer += ": " + granted
	}
	return patch, r.writes.store.Record(job, r.request, r.answer)
}
