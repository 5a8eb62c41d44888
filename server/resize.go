// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

// resizing is a request to resize a worker-led job, however often it is tried.
type resizing struct {
	server  *Server
	id      jobID
	request membership.Request
	// arrived is when the request came: a repeat that has to wait is one still.
	arrived time.Time
	// by is how many replicas more are asked for; fewer where it is negative.
	by int64
	// message is what is done, and answer what the request is answered with.
	message, answer string
}

// resize changes the number of replicas that is wanted by what a request asks
// for, in the direction of the sign.
func (s *Server) resize(c *gin.Context, message string, wanted permission, sign int64) error {
	id, err := parseJobID(c.Param("job_id"))
	if err != nil {
		return err
	}
	if err := s.gate.approach(c.Request.Context(), jobTarget(id.key), wanted); err != nil {
		return err
	}
	asked, err := readResize(c)
	if err != nil {
		return err
	}
	if err := s.options.Limits.checkAsked("replicas", asked); err != nil {
		return err
	}
	ctx := c.Request.Context()
	r := &resizing{server: s, id: id, arrived: s.options.Clock.Now(), by: sign * int64(asked), message: message}
	r.request = resizeRequest(c, r)
	var again bool
	r.request.ID, again = s.unanswered.take(r.request)
	uncertain, err := s.editJob(ctx, id, wanted, r.edit)
	if err != nil {
		if uncertain || again {
			s.unanswered.add(r.request)
		}
		return err
	}
	s.audit(ctx, r.answer, "replicas", r.by)
	return succeed(c, r.answer, nil)
}

// resizeRequest returns the identity of a request, by which a repeat is known.
// A worker's pod runs its container once, so that the pod is who asks; a person
// who asks twice in its name means it twice.
func resizeRequest(c *gin.Context, r *resizing) membership.Request {
	request := membership.Request{
		IdempotencyKey: c.GetHeader(names.HeaderIdempotencyKey),
		Content:        fmt.Appendf(nil, "%s %s %+d", r.message, r.id.key, r.by),
		Removal:        r.by < 0,
	}
	sender := senderOf(c.Request.Context())
	if sender.pod != nil && c.GetHeader(names.HeaderCaller) != names.CallerUser {
		request.Container = membership.Container(sender.pod)
	}
	return request
}

// edit resizes a job and records that it did, in one patch; none where the
// request was done before. What was done is told also to a worker that was
// replaced because of it.
func (r *resizing) edit(job *v2alpha1.DIJob) (jobPatch, error) {
	records := slices.Concat(annotatedRequests(job), job.Status.Requests)
	done, err := recorded(records, r.request, r.arrived, r.server.options.Watches)
	switch {
	case err != nil:
		return jobPatch{}, err
	case done != nil:
		r.answer = done.Message
		return jobPatch{}, nil
	}
	if err := r.id.current(job); err != nil {
		return jobPatch{}, err
	}
	if r.by == 0 {
		r.answer = r.message
		return jobPatch{}, nil
	}
	made, granted, err := resized(job, r.by)
	if err != nil {
		return jobPatch{}, err
	}
	if r.by > 0 {
		if err := r.server.options.Limits.checkTotal("replicas", mostWanted(job)); err != nil {
			return jobPatch{}, err
		}
	}
	r.answer = r.message
	if granted != "" {
		r.answer += ": " + granted
	}
	return made, r.record(job)
}

// record remembers what the request is answered with, beside what it changes.
func (r *resizing) record(job *v2alpha1.DIJob) error {
	done, now := v2alpha1.RecordedRequest{Message: r.answer}, r.server.options.Clock.Now()
	if !job.Spec.Preemptible {
		job.Status.Requests = membership.AppendRecord(slices.Clone(job.Status.Requests), r.request, done, now)
		return nil
	}
	content, err := json.Marshal(membership.AppendRecord(annotatedRequests(job), r.request, done, now))
	if err != nil {
		return fmt.Errorf("encoding the requests of job %s: %w", r.id.key, err)
	}
	annotations := map[string]string{names.AnnotationRequests: string(content)}
	for key, value := range job.Annotations {
		if key != names.AnnotationRequests {
			annotations[key] = value
		}
	}
	job.Annotations = annotations
	return nil
}

// annotatedRequests returns the requests that a preemptible job's annotation
// tells of. One that somebody broke tells of none.
func annotatedRequests(job *v2alpha1.DIJob) []v2alpha1.RecordedRequest {
	var records []v2alpha1.RecordedRequest
	if json.Unmarshal([]byte(job.Annotations[names.AnnotationRequests]), &records) != nil {
		return nil
	}
	return records
}

// editJob writes an edit of a job in one optimistic write, recreated where
// another write came between. It reports whether the edit may have been written
// though it failed.
func (s *Server) editJob(ctx context.Context, id jobID, wanted permission, edit func(*v2alpha1.DIJob) (jobPatch, error)) (bool, error) {
	// What the cache does not know is looked for once, as others look it up.
	if err := s.find(ctx, id.key, &v2alpha1.DIJob{}); err != nil {
		return false, id.writeFailure(err)
	}
	uncertain, paced := false, false
	err := persist(ctx, func(ctx context.Context) error {
		var job v2alpha1.DIJob
		if err := s.store.live(ctx, id.key, &job); err != nil {
			return err
		}
		if err := s.gate.admit(ctx, &job, wanted); err != nil {
			return err
		}
		if err := id.workerLed(&job); err != nil {
			return err
		}
		if !paced {
			if err := s.pace.wait(ctx, string(job.UID)); err != nil {
				return err
			}
			paced = true
		}
		made, err := tried(edit(&job))
		if err != nil || made.patch == nil {
			return err
		}
		err = s.budget.charged(ctx, job.UID, &job, 0, func() error { return s.store.patch(ctx, &job, made.subresource, made.patch) })
		uncertain = uncertain || isUncertain(err)
		return err
	})
	return uncertain, id.writeFailure(err)
}

// tried is an edit that was tried. One that failed, made of what is there,
// fails on the same again, unless it waits for that to change.
func tried(made jobPatch, err error) (jobPatch, error) {
	if err == nil || errors.Is(err, errNotYet) {
		return made, err
	}
	return jobPatch{}, asFailure(err)
}
