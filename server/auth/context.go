// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/tracing"
)

// request is what becomes known of a request while it is served.
type request struct {
	sender *Sender
	job    *v2alpha1.DIJob
}

type requestKey struct{}

// WithRequest returns the context of a new request.
func WithRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{})
}

// Detach returns a context for work that outlives a request: it has the
// request's sender and the job, but not its deadline.
func Detach(ctx context.Context, job *v2alpha1.DIJob) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), requestKey{}, &request{sender: SenderOf(ctx), job: job})
}

// SenderOf returns who sent the request of a context; an unknown sender where
// it has not been authenticated.
func SenderOf(ctx context.Context) *Sender {
	if known, found := ctx.Value(requestKey{}).(*request); found && known.sender != nil {
		return known.sender
	}
	return &Sender{by: byNothing}
}

// RequestedJob returns the job that the request of a context is about; nil
// where it is not known.
func RequestedJob(ctx context.Context) *v2alpha1.DIJob {
	if known, found := ctx.Value(requestKey{}).(*request); found {
		return known.job
	}
	return nil
}

// LogJob returns the key-value pairs of a log line for the job and the trace of
// a request, as far as they are known.
func LogJob(ctx context.Context) []any {
	trace := tracing.LogTrace(ctx)
	if job := RequestedJob(ctx); job != nil {
		return append(names.LogWhole(job), trace...)
	}
	return trace
}
