// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/tracing"
)

// request is what the server learns about a request while it serves it.
type request struct {
	sender *Sender
	job    *v2alpha1.DIJob
}

type requestKey struct{}

// WithRequest returns the context of a new request.
func WithRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{})
}

// Detach returns a context for work that outlives a request. It keeps the sender and the job of the request
// but not its deadline.
func Detach(ctx context.Context, job *v2alpha1.DIJob) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), requestKey{}, &request{sender: SenderOf(ctx), job: job})
}

// SenderOf returns the sender of the request of a context. It returns an unknown sender if the request was not
// authenticated.
func SenderOf(ctx context.Context) *Sender {
	if known, found := ctx.Value(requestKey{}).(*request); found && known.sender != nil {
		return known.sender
	}
	return &Sender{by: byNothing}
}

// RequestedJob returns the job of the request of a context; nil if the job is not known.
func RequestedJob(ctx context.Context) *v2alpha1.DIJob {
	if known, found := ctx.Value(requestKey{}).(*request); found {
		return known.job
	}
	return nil
}

// LogJob returns the key-value pairs of a log line for the job and the trace of a request. It omits those that
// are not known.
func LogJob(ctx context.Context) []any {
	trace := tracing.LogTrace(ctx)
	if job := RequestedJob(ctx); job != nil {
		return append(names.LogWhole(job), trace...)
	}
	return trace
}
