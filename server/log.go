// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"

	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
)

// maxLogged bounds the bytes of a caller's text in a log line.
const maxLogged = 1024

// requestLog logs the requests of clients, in a bounded number of lines.
type requestLog struct {
	to    logr.Logger
	lines *limit.Lines
}

// limited returns the logger of a line about the job of a request, or about its sender until the job is known. It
// returns one that discards the line if there were too many.
func (l *requestLog) limited(ctx context.Context, message string) logr.Logger {
	key := auth.SenderOf(ctx).Account()
	if job := auth.RequestedJob(ctx); job != nil {
		key = "job/" + string(job.UID)
	}
	suppressed, allowed := l.lines.Allow(message, key)
	if !allowed {
		return logr.Discard()
	}
	line := l.to.WithValues(auth.LogJob(ctx)...)
	if suppressed > 0 {
		line = line.WithValues("leftOut", suppressed)
	}
	return line
}

// loggable returns a caller's text for the log. It truncates the text, and quotes it if it contains
// unprintable characters.
func loggable(text string) string {
	if len(text) > maxLogged {
		text = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:maxLogged], ""), len(text))
	}
	isUnprintable := func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }
	if strings.ContainsFunc(text, isUnprintable) {
		return strconv.Quote(text)
	}
	return text
}

// audit logs a write to the job of a request, together with the sender.
func (l *requestLog) audit(ctx context.Context, what string, details ...any) {
	sender := auth.SenderOf(ctx)
	l.to.WithValues(auth.LogJob(ctx)...).WithValues("caller", loggable(sender.String()), "identity", sender.Identity()).
		Info("Write: "+loggable(what), details...)
}

// failed logs the cause of a failed request. It does not log reads that fail because of a broken
// watch: the watch itself is logged, and each client reads once a second.
func (l *requestLog) failed(c *gin.Context, failed *failure.Error, err error) {
	ctx, isWrite := c.Request.Context(), c.Request.Method != http.MethodGet
	details := []any{
		"method", loggable(c.Request.Method), "path", loggable(c.Request.URL.Path), "kind", failed.Kind,
		"caller", loggable(auth.SenderOf(ctx).String()),
	}
	info := func(message string) {
		l.limited(ctx, message).Info(message, append(details, "reason", loggable(err.Error()))...)
	}
	switch {
	case failed.Kind == failure.Internal, failed.Kind == failure.Refused:
		l.fault(ctx, err, details)
	case failed.Kind == failure.Unavailable && isWrite:
		info("Write not done now, its sender may try again")
	case isWrite && (failed.Kind == failure.Unauthenticated || failed.Kind == failure.Forbidden):
		info("Write refused")
	case l.to.V(1).Enabled():
		l.to.V(1).WithValues(auth.LogJob(ctx)...).Info("Request refused", append(details, "reason", loggable(err.Error()))...)
	}
}

// fault logs a failure that the sender did not cause.
func (l *requestLog) fault(ctx context.Context, err error, details []any) {
	const message = "Request failed"
	var panicked *panicError
	if errors.As(err, &panicked) {
		details = append(details, "stack", panicked.stack)
	}
	l.limited(ctx, message).Error(errors.New(loggable(err.Error())), message, details...)
}

// http returns the logger of the HTTP server, which logs failed connections. Its lines are limited
// because every client that connects can cause them.
func (l *requestLog) http() *log.Logger {
	return log.New(writeFunc(func(line []byte) (int, error) {
		const message = "Connection failed"
		l.limited(context.Background(), message).Info(message, "reason", loggable(strings.TrimSpace(string(line))))
		return len(line), nil
	}), "", 0)
}

type writeFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writeFunc) Write(line []byte) (int, error) { return f(line) }
