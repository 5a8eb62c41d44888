// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"
)

// maxAsked bounds the bytes of a body that asks for replicas: an object of some
// numbers. What reports failed ones may name all of a job's, and what a job
// reports of itself is its own affair.
const maxAsked = 64 << 10

// bodies bounds the bytes of all bodies that are being worked on, so that many
// requests at once do not exhaust the memory, and those of one sender, so that
// many slow ones of it do not keep all others waiting.
type bodies struct {
	left *semaphore.Weighted
	// own is how many of them one sender may have.
	own int64
	// time is how long one may take to come once there is room for it.
	time time.Duration

	// mutex protects shares, which are those of the senders that have requests.
	mutex  sync.Mutex
	shares map[string]*share
}

// share is what one sender has left.
type share struct {
	left *semaphore.Weighted
	// users is how many requests go by it.
	users int
}

func newBodies(size, own int64, time time.Duration) *bodies {
	return &bodies{left: semaphore.NewWeighted(size), own: own, time: time, shares: map[string]*share{}}
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
func (b *bodies) admit(c *gin.Context, most int64) error {
	release, err := b.acquire(c.Request.Context(), host(c.Request.RemoteAddr), b.weight(c.Request.ContentLength, most))
	if err != nil {
		return unavailable(err)
	}
	defer release()
	if err := b.await(c); err != nil {
		return err
	}
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, most)
	c.Next()
	return nil
}

// acquire waits for room in the sender's own share first, where it is in
// nobody else's way, and returns what gives it back.
func (b *bodies) acquire(ctx context.Context, sender string, weight int64) (func(), error) {
	own := b.join(sender)
	if err := own.left.Acquire(ctx, weight); err != nil {
		b.leave(sender, own)
		return nil, err
	}
	leave := func() {
		own.left.Release(weight)
		b.leave(sender, own)
	}
	if err := b.left.Acquire(ctx, weight); err != nil {
		leave()
		return nil, err
	}
	return func() {
		b.left.Release(weight)
		leave()
	}, nil
}

func (b *bodies) join(sender string) *share {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	own, known := b.shares[sender]
	if !known {
		own = &share{left: semaphore.NewWeighted(b.own)}
		b.shares[sender] = own
	}
	own.users++
	return own
}

// leave forgets a share that nobody goes by.
func (b *bodies) leave(sender string, own *share) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if own.users--; own.users == 0 {
		delete(b.shares, sender)
	}
}

// host returns the address of a sender, whichever its connection.
func host(remote string) string {
	address, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return address
}

// await gives the client its time to send the body from now on. What it had for
// the whole request may be over, as the server may have let it wait: a body
// that came in time could then not be read any more.
func (b *bodies) await(c *gin.Context) error {
	err := http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(b.time))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return unavailable(err)
	}
	return nil
}

// weight returns the room for a body: for one that is sent in chunks, and for
// one that is too large, as much as is read of it.
func (b *bodies) weight(length, most int64) int64 {
	if length < 0 {
		length = most
	}
	return min(length, most, b.own)
}
