// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"

	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/wire"
)

const (
	// jsonType is the content type of every answer.
	jsonType = "application/json"
	// retryAfter is the Retry-After of transient failures, in seconds.
	retryAfter = "2"
)

// handler answers a request, or returns the error.
type handler func(*gin.Context) error

// routes returns the routes of both protocols.
func (s *Server) routes() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.ForwardedByClientIP = false
	// Redirects bypass metrics and logs, and echo the client's text. Earlier releases answered 404, too.
	engine.RedirectTrailingSlash = false
	engine.Use(s.observe, s.recover, s.setTimeout)
	engine.NoRoute(s.wrap(unknownPath))
	engine.NoMethod(s.wrap(unknownMethod))
	engine.GET("/healthz", s.wrap(healthy))

	// Deployed clients call v1alpha1. The design document specifies v1alpha2.
	for _, version := range []string{"/v1alpha1", "/v1alpha2"} {
		group := engine.Group(version)
		group.GET("/healthz", s.wrap(healthy))
		group.Use(s.wrap(s.awaitWatches), s.wrap(s.authenticate))
		group.GET("/replicas", s.wrap(s.getReplicas))
		group.POST("/replicas", s.wrap(s.bodies.small), s.wrap(s.createReplicas))
		group.DELETE("/replicas", s.wrap(s.bodies.small), s.wrap(s.deleteReplicas))
		group.POST("/replicas/failed", s.wrap(s.bodies.large), s.wrap(s.replaceReplicas))
		group.POST("/profilings", s.wrap(s.bodies.large), s.wrap(s.reportOfCoordinator))
		group.GET("/advice", s.wrap(s.getAdvice))
		group.GET("/membership", s.wrap(s.getMembershipOfCoordinator))
		group.POST("/membership/ack", s.wrap(s.bodies.small), s.wrap(s.acknowledgeOfCoordinator))
	}
	// The design document specifies the first path. Deployed clients call the second.
	for _, path := range []string{"/v2alpha1/:job_id", "/v2alpha1/job/:job_id"} {
		group := engine.Group(path)
		group.Use(s.wrap(s.awaitWatches), s.wrap(s.authenticate))
		group.GET("/replicas", s.wrap(s.getWorkers))
		group.POST("/replicas", s.wrap(s.bodies.small), s.wrap(s.addWorkers))
		group.DELETE("/replicas", s.wrap(s.bodies.small), s.wrap(s.removeWorkers))
		group.POST("/profilings", s.wrap(s.bodies.large), s.wrap(s.reportProfilings))
		group.GET("/membership", s.wrap(s.getMembership))
		group.POST("/membership/ack", s.wrap(s.bodies.small), s.wrap(s.acknowledge))
	}
	return engine
}

// authenticate authenticates the sender of a request.
func (s *Server) authenticate(c *gin.Context) error {
	return s.auth.Authenticator.Authenticate(c.Request.Context(), c.Request)
}

// wrap returns a gin handler. If the handler fails, it answers with the error and skips later handlers.
func (s *Server) wrap(handle handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := handle(c); err != nil {
			s.refuse(c, err)
			c.Abort()
		}
	}
}

// setTimeout sets the deadline of a request.
func (s *Server) setTimeout(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.options.Times.Request)
	defer cancel()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
}

// refuse answers with the failure of an error and logs the cause.
func (s *Server) refuse(c *gin.Context, err error) {
	failed := failure.From(err)
	s.log.failed(c, failed, err)
	status := failed.Kind.Status()
	switch {
	case failed.Kind == failure.Refused && auth.SenderOf(c.Request.Context()).HasToken():
		status = http.StatusForbidden
	case failed.Kind == failure.Refused:
		// A deployed client, which has no token, ends its job at any status from 400. Without the header,
		// other clients know that a repeat fails again.
	case status == http.StatusOK:
		c.Header("Retry-After", retryAfter)
	}
	c.Set(failureKey, failed.Kind)
	if err := send(c, status, wire.Failure(failed.Message)); err != nil {
		s.options.Log.Error(err, "Reply failed")
		c.Status(http.StatusInternalServerError)
	}
}

// panicError is the error of a request whose handler panics.
type panicError struct {
	reason any
	stack  string
}

// Error implements error.
func (p *panicError) Error() string {
	return fmt.Sprintf("panic: %v", p.reason)
}

// recover answers a request whose handler panics. The recovery of gin would answer with status 500.
func (s *Server) recover(c *gin.Context) {
	defer func() {
		if reason := recover(); reason != nil {
			s.refuse(c, &panicError{reason, string(debug.Stack())})
			c.Abort()
		}
	}()
	c.Next()
}

// succeed answers that a request succeeded.
func succeed(c *gin.Context, message string, data any) error {
	return send(c, http.StatusOK, wire.Success(message, data))
}

// send writes an envelope. It ignores the types that the client accepts.
func send(c *gin.Context, status int, envelope wire.Reply) error {
	body, err := envelope.Encode()
	if err != nil {
		return err
	}
	c.Data(status, jsonType, body)
	return nil
}

func healthy(c *gin.Context) error {
	return succeed(c, "healthy", nil)
}

func unknownPath(c *gin.Context) error {
	return failure.New(failure.NotFound, "no such path: %s", c.Request.URL.Path)
}

func unknownMethod(c *gin.Context) error {
	return failure.New(failure.NotImplemented, "method %s is not implemented for %s", c.Request.Method, c.Request.URL.Path)
}
