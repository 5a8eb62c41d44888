// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
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

// handlers are the handlers of the routes.
type handlers struct {
	gate             *gate
	answers          *answers
	bodies           *bodyLimit
	replicaReads     *replicaReads
	replicaWrites    *replicaWrites
	workerReads      *workerReads
	workerResizes    *workerResizes
	profilings       *profilingReports
	advices          *advices
	memberships      *memberships
	acknowledgements *acknowledgements
}

// newEngine returns an engine without routes of a protocol.
func (h *handlers) newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.ForwardedByClientIP = false
	// Redirects bypass metrics and logs, and echo the client's text. Earlier releases answered 404, too.
	engine.RedirectTrailingSlash = false
	engine.Use(h.gate.observe, h.answers.recover, h.gate.setTimeout)
	engine.NoRoute(h.answers.wrap(unknownPath))
	engine.NoMethod(h.answers.wrap(unknownMethod))
	engine.GET("/healthz", h.answers.wrap(healthy))
	return engine
}

// routes returns the routes of both protocols.
func (h *handlers) routes() *gin.Engine {
	engine, wrap := h.newEngine(), h.answers.wrap
	await, authenticate, small, large := wrap(h.gate.awaitWatches), wrap(h.gate.authenticate), wrap(h.bodies.small), wrap(h.bodies.large)

	// Deployed clients call v1alpha1. The design document specifies v1alpha2.
	for _, version := range []string{"/v1alpha1", "/v1alpha2"} {
		group := engine.Group(version)
		group.GET("/healthz", wrap(healthy))
		group.Use(await, authenticate)
		group.GET("/replicas", wrap(h.replicaReads.get))
		group.POST("/replicas", small, wrap(h.replicaWrites.create))
		group.DELETE("/replicas", small, wrap(h.replicaWrites.remove))
		group.POST("/replicas/failed", large, wrap(h.replicaWrites.replace))
		group.POST("/profilings", large, wrap(h.profilings.postOfCoordinator))
		group.GET("/advice", wrap(h.advices.get))
		group.GET("/membership", wrap(h.memberships.getOfCoordinator))
		group.POST("/membership/ack", small, wrap(h.acknowledgements.postOfCoordinator))
	}
	// The design document specifies the first path. Deployed clients call the second.
	for _, path := range []string{"/v2alpha1/:job_id", "/v2alpha1/job/:job_id"} {
		group := engine.Group(path)
		group.Use(await, authenticate)
		group.GET("/replicas", wrap(h.workerReads.get))
		group.POST("/replicas", small, wrap(h.workerResizes.add))
		group.DELETE("/replicas", small, wrap(h.workerResizes.remove))
		group.POST("/profilings", large, wrap(h.profilings.post))
		group.GET("/membership", wrap(h.memberships.get))
		group.POST("/membership/ack", small, wrap(h.acknowledgements.post))
	}
	return engine
}

// answers answers requests that fail.
type answers struct {
	log *requestLog
}

// wrap returns a gin handler. If the handler fails, it answers with the error and skips later handlers.
func (a *answers) wrap(handle handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := handle(c); err != nil {
			a.refuse(c, err)
			c.Abort()
		}
	}
}

// refuse answers with the failure of an error and logs the cause.
func (a *answers) refuse(c *gin.Context, err error) {
	failed := failure.From(err)
	a.log.failed(c, failed, err)
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
		a.log.to.Error(err, "Reply failed")
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
func (a *answers) recover(c *gin.Context) {
	defer func() {
		if reason := recover(); reason != nil {
			a.refuse(c, &panicError{reason, string(debug.Stack())})
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
