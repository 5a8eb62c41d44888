// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"
	"github.com/go-logr/logr"
)

// reply is the envelope of every answer.
type reply struct {
	Success bool   `json:"success"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

// jsonType is the type of every answer.
const jsonType = "application/json"

// The codes of the envelope.
const (
	codeSuccess = 0
	codeFailure = 1
)

// handler answers a request, or returns why it does not.
type handler func(*gin.Context) error

// routes returns the handler of both protocols.
func (s *Server) routes() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.ForwardedByClientIP = false
	// Redirections are not seen by what counts and logs, and say back what the client
	// sent. Earlier releases answered 404, too.
	engine.RedirectTrailingSlash = false
	engine.Use(s.observed, s.recovered, s.bound)
	engine.NoRoute(s.wrap(unknownPath))
	engine.NoMethod(s.wrap(unknownMethod))
	engine.GET("/healthz", s.wrap(healthy))

	// Deployed clients call v1alpha1, the design document says v1alpha2.
	for _, version := range []string{"/v1alpha1", "/v1alpha2"} {
		group := engine.Group(version)
		group.GET("/healthz", s.wrap(healthy))
		group.Use(s.step(s.hold), s.step(s.gate.enter))
		group.GET("/replicas", s.wrap(s.getReplicas))
		group.POST("/replicas", s.step(s.smallBody), s.wrap(s.createReplicas))
		group.DELETE("/replicas", s.step(s.smallBody), s.wrap(s.deleteReplicas))
		group.POST("/replicas/failed", s.step(s.largeBody), s.wrap(s.replaceReplicas))
	}
	// The design document says the first, deployed clients call the second.
	for _, path := range []string{"/v2alpha1/:job_id", "/v2alpha1/job/:job_id"} {
		group := engine.Group(path)
		group.Use(s.step(s.hold), s.step(s.gate.enter))
		group.GET("/replicas", s.wrap(s.getWorkers))
		group.POST("/replicas", s.step(s.smallBody), s.wrap(s.addWorkers))
		group.DELETE("/replicas", s.step(s.smallBody), s.wrap(s.removeWorkers))
		group.POST("/profilings", s.step(s.largeBody), s.wrap(s.reportProfilings))
	}
	return engine
}

// wrap makes a handler one of gin's, which answers what the handler fails with.
func (s *Server) wrap(handle handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := handle(c); err != nil {
			s.refuse(c, err)
		}
	}
}

// step makes a handler one that comes before others: where it fails they do
// not come.
func (s *Server) step(handle handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := handle(c); err != nil {
			s.refuse(c, err)
			c.Abort()
		}
	}
}

// bound bounds a request's time.
func (s *Server) bound(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.options.Times.Request)
	defer cancel()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
}

// retryAfter is the pause, in seconds, before a request that may succeed later is
// worth sending again.
const retryAfter = "2"

// refuse answers with a failure; the log sees the cause.
func (s *Server) refuse(c *gin.Context, err error) {
	failed := asFailure(err)
	s.logFailure(c, failed, err)
	if failed.Kind.status() == http.StatusOK {
		c.Header("Retry-After", retryAfter)
	}
	c.Set(failureKey, failed.Kind)
	if err := send(c, failed.Kind.status(), reply{Code: codeFailure, Message: failed.Message}); err != nil {
		s.options.Log.Error(err, "Reply failed")
		c.Status(http.StatusInternalServerError)
	}
}

// logFailure logs why a request is not done. A read that waits in vain says
// nothing that the broken watch has not said, and each client sends one a second.
func (s *Server) logFailure(c *gin.Context, failed *Error, err error) {
	ctx, isWrite := c.Request.Context(), c.Request.Method != http.MethodGet
	details := []any{
		"method", loggable(c.Request.Method), "path", loggable(c.Request.URL.Path), "kind", failed.Kind,
		"caller", loggable(senderOf(ctx).String()),
	}
	tell := func(message string) {
		s.sparsely(ctx, message, func(log logr.Logger) { log.Info(message, append(details, "reason", loggable(err.Error()))...) })
	}
	switch {
	case failed.Kind == KindInternal:
		s.logFault(ctx, err, details)
	case failed.Kind == KindUnavailable && isWrite:
		tell("Write not done now, its sender may try again")
	case isWrite && (failed.Kind == KindUnauthenticated || failed.Kind == KindForbidden):
		tell("Write refused")
	case s.options.Log.V(1).Enabled():
		s.options.Log.V(1).WithValues(logJob(ctx)...).Info("Request refused", append(details, "reason", loggable(err.Error()))...)
	}
}

// logFault logs a failure that is not its sender's fault.
func (s *Server) logFault(ctx context.Context, err error, details []any) {
	const message = "Request failed"
	var panicked *panicError
	if errors.As(err, &panicked) {
		details = append(details, "stack", panicked.stack)
	}
	s.sparsely(ctx, message, func(log logr.Logger) { log.Error(errors.New(loggable(err.Error())), message, details...) })
}

// panicError is the failure of a request whose handler panics.
type panicError struct {
	reason any
	stack  string
}

// Error implements error.
func (p *panicError) Error() string {
	return fmt.Sprintf("panic: %v", p.reason)
}

// recovered answers a request whose handler panics. Gin's own recovery would
// answer it with status 500.
func (s *Server) recovered(c *gin.Context) {
	defer func() {
		if reason := recover(); reason != nil {
			s.refuse(c, &panicError{reason, string(debug.Stack())})
			c.Abort()
		}
	}()
	c.Next()
}

// succeed answers with data.
func succeed(c *gin.Context, message string, data any) error {
	return send(c, http.StatusOK, reply{Success: true, Code: codeSuccess, Message: message, Data: data})
}

// send writes an envelope, whatever the client says that it accepts.
func send(c *gin.Context, status int, envelope reply) error {
	body, err := encoded(envelope)
	if err != nil {
		return err
	}
	c.Data(status, jsonType, body)
	return nil
}

func encoded(envelope reply) ([]byte, error) {
	body, err := json.Marshal(envelope)
	if err != nil {
		return nil, fmt.Errorf("encoding a reply: %w", err)
	}
	return body, nil
}

func healthy(c *gin.Context) error {
	return succeed(c, "healthy", nil)
}

func unknownPath(c *gin.Context) error {
	return failure(KindNotFound, "no such path: %s", c.Request.URL.Path)
}

func unknownMethod(c *gin.Context) error {
	return failure(KindNotImplemented, "method %s is not implemented for %s", c.Request.Method, c.Request.URL.Path)
}
