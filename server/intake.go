// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"
)

// maxAsked bounds the bytes of a body that asks for replicas: an object of some
// numbers. What reports failed ones may name all of a job's, and what a job
// reports of itself is its own affair.
const maxAsked = 64 << 10

// bodies bounds the bytes of all bodies that are being worked on, so that many
// requests at once do not exhaust the memory.
type bodies struct {
	left *semaphore.Weighted
	size int64
	// time is how long one may take to come once there is room for it.
	time time.Duration
}

func newBodies(size int64, time time.Duration) bodies {
	return bodies{semaphore.NewWeighted(size), size, time}
}

// smallBody is the step before a handler that reads what is asked for.
func (s *Server) smallBody(c *gin.Context) error {
	return s.bodies.admit(c, maxAsked)
}

// largeBody is the step before a handler that reads a report.
func (s *Server) largeBody(c *gin.Context) error {
	return s.bodies.admit(c, maxBody)
}

// admit waits until there is room for a body of at most so many bytes, and
// gives it back when the request is answered.
func (b bodies) admit(c *gin.Context, most int64) error {
	weight := b.weight(c.Request.ContentLength, most)
	if err := b.left.Acquire(c.Request.Context(), weight); err != nil {
		return unavailable(err)
	}
	defer b.left.Release(weight)
	if err := b.await(c); err != nil {
		return err
	}
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, most)
	c.Next()
	return nil
}

// await gives the client its time to send the body from now on. What it had for
// the whole request may be over, as the server may have let it wait: a body
// that came in time could then not be read any more.
func (b bodies) await(c *gin.Context) error {
	err := http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(b.time))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return unavailable(err)
	}
	return nil
}

// weight returns the room for a body: for one that is sent in chunks, and for
// one that is too large, as much as is read of it.
func (b bodies) weight(length, most int64) int64 {
	if length < 0 {
		length = most
	}
	return min(length, most, b.size)
}
