// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"

	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/server/failure"
)

const (
	// maxSmallBody bounds the bytes of a body that requests replicas: an object with a few numbers. A failure
	// report may name all replicas of a job, and a profiling report may have any content, so both may be
	// larger.
	maxSmallBody = 64 << 10
	// bodyBytesPerSecond is the minimum rate of an arriving body, after the time that every body has.
	bodyBytesPerSecond = 64 << 10
	// bodyPatience is how long an arriving body keeps its memory regardless of its rate.
	bodyPatience = 2 * time.Second
)

// bodyLimit limits the bodies of requests.
type bodyLimit struct {
	room    *netlimit.Room
	metrics *limitMetrics
}

// newBodyRoom returns the memory budget of all bodies. Each sender has a share of it, so many slow bodies of
// one sender do not delay others.
func newBodyRoom(grace time.Duration) *netlimit.Room {
	return netlimit.NewRoom(netlimit.RoomOptions{
		Size: maxBodies, Share: maxOwnBodies, Patience: bodyPatience,
		Pace: netlimit.Pace{Grace: grace, BytesPerSecond: bodyBytesPerSecond},
	})
}

// small limits the body of a request that resizes.
func (b *bodyLimit) small(c *gin.Context) error {
	return b.limit(c, maxSmallBody)
}

// large limits the body of a report.
func (b *bodyLimit) large(c *gin.Context) error {
	return b.limit(c, maxBody)
}

// limit bounds the body that later handlers read. It frees the memory once the request is answered.
func (b *bodyLimit) limit(c *gin.Context, most int64) error {
	body := &limitedBody{ReadCloser: c.Request.Body, limits: b, context: c, most: most}
	c.Request.Body = body
	defer body.release()
	c.Next()
	return nil
}

// limitedBody is the body of a request. It reserves memory when it is read.
type limitedBody struct {
	io.ReadCloser
	limits  *bodyLimit
	context *gin.Context
	most    int64
	read    *netlimit.Body
}

// readAll reads the body to its end.
func (b *limitedBody) readAll() ([]byte, error) {
	request := *b.context.Request
	request.Body = b.ReadCloser
	var err error
	b.read, err = b.limits.room.Read(b.context.Writer, &request, b.most)
	if err != nil {
		b.limits.metrics.bodyRefused(err)
	}
	return b.read.Bytes, err
}

func (b *limitedBody) release() {
	if b.read != nil {
		b.read.Release()
	}
}

// maxBodyDepth is the maximum nesting of a body. Clients that read a job recurse into what it reports: Python's
// decoder fails at 1000 levels, and a list with one such job fails as a whole.
const maxBodyDepth = 64

// readBody reads the body of a request. bodyLimit bounds it.
func readBody(c *gin.Context) ([]byte, error) {
	body, isLimited := c.Request.Body.(*limitedBody)
	if !isLimited {
		return nil, errors.New("the body of the route is not limited")
	}
	content, err := body.readAll()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large) && c.Request.ContentLength > large.Limit:
		return nil, failure.New(failure.Invalid, "the body has %d bytes, more than the %d that it may have", c.Request.ContentLength, large.Limit)
	case errors.As(err, &large):
		return nil, failure.New(failure.Invalid, "the body has more than the %d bytes that it may have", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, netlimit.ErrShed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The server does not read the rest of the body, so it closes the connection.
		c.Header("Connection", "close")
		return nil, failure.TimedOut(fmt.Errorf("reading the body: %w", err))
	case err != nil:
		return nil, failure.New(failure.Invalid, "the body could not be read").Because(err)
	}
	if depth := netlimit.Depth(content); depth > maxBodyDepth {
		return nil, failure.New(failure.Invalid, "the body nests objects and lists %d levels deep, more than the %d that it may", depth, maxBodyDepth)
	}
	return content, nil
}
