// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"opendilab.org/di-orchestrator/internal/netlimit"
)

const (
	// maxAsked bounds the bytes of a body that asks for replicas: an object of some
	// numbers. What reports failed ones may name all of a job's, and what a job
	// reports of itself is its own affair.
	maxAsked = 64 << 10
	// bodyBytesPerSecond is how fast a body must come on the whole, beside the time
	// that each has.
	bodyBytesPerSecond = 64 << 10
	// bodyPatience is how long a body surely keeps its room while it comes.
	bodyPatience = 2 * time.Second
)

// newRoom returns the memory of all bodies that come or are being worked on, so that
// many at once do not exhaust it. One sender has a share, so that many slow bodies of
// it do not keep all others waiting.
func newRoom(grace time.Duration) *netlimit.Room {
	return netlimit.NewRoom(netlimit.RoomOptions{
		Size: maxBodies, Share: maxOwnBodies, Patience: bodyPatience,
		Pace: netlimit.Pace{Grace: grace, BytesPerSecond: bodyBytesPerSecond},
	})
}

// smallBody is the step before a handler that reads what is asked for.
func (s *Server) smallBody(c *gin.Context) error {
	return s.admitBody(c, maxAsked)
}

// largeBody is the step before a handler that reads a report.
func (s *Server) largeBody(c *gin.Context) error {
	return s.admitBody(c, maxBody)
}

// admitBody lets a handler read a body of at most so many bytes, and gives back what
// room it took when the request is answered.
func (s *Server) admitBody(c *gin.Context, most int64) error {
	coming := &arrival{ReadCloser: c.Request.Body, room: s.bodies, bounds: s.bounds, context: c, most: most}
	c.Request.Body = coming
	defer coming.release()
	c.Next()
	return nil
}

// arrival is the body of a request, which takes room from when it is read.
type arrival struct {
	io.ReadCloser
	room    *netlimit.Room
	bounds  *bounds
	context *gin.Context
	most    int64
	taken   *netlimit.Body
}

// all reads the body to its end.
func (a *arrival) all() ([]byte, error) {
	request := *a.context.Request
	request.Body = a.ReadCloser
	var err error
	a.taken, err = a.room.Read(a.context.Writer, &request, a.most)
	if err != nil {
		a.bounds.bodyEnded(err)
	}
	return a.taken.Bytes, err
}

func (a *arrival) release() {
	if a.taken != nil {
		a.taken.Release()
	}
}

// whole reads the body of a request to its end.
func whole(request *http.Request) ([]byte, error) {
	if coming, isArrival := request.Body.(*arrival); isArrival {
		return coming.all()
	}
	return io.ReadAll(request.Body)
}
