// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/gin-gonic/gin"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// turns bounds how many reads are worked on at once, in all and for one of those who
// share them, such as a job. The others of whom there are waiting reads have their
// turns one after the other, so that many reads of one hold up nobody else.
type turns struct {
	all, share int

	mutex sync.Mutex
	taken int
	each  map[string]*line
	// waiting are those who have reads that wait, in the order of their next turns.
	waiting []string
}

// line is the reads of one.
type line struct {
	taken int
	// waiting are told when it is their turn, the first first.
	waiting []chan struct{}
}

// newTurns returns the turns of a program that computes on so many processors. Half
// of them is what one may have.
func newTurns(processors int) *turns {
	return &turns{all: max(4, 2*processors), share: max(2, processors), each: map[string]*line{}}
}

// take waits for the turn of a read, and returns what ends it.
func (t *turns) take(ctx context.Context, who string) (func(), error) {
	turn := t.join(who)
	select {
	case <-turn:
		return func() { t.end(who) }, nil
	case <-ctx.Done():
	}
	if !t.leave(who, turn) {
		t.end(who)
	}
	return nil, fmt.Errorf("waiting for other reads: %w", ctx.Err())
}

// join puts a read in its line, and returns what is closed when it is its turn.
func (t *turns) join(who string) chan struct{} {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	own := t.each[who]
	if own == nil {
		own = &line{}
		t.each[who] = own
	}
	turn := make(chan struct{})
	own.waiting = append(own.waiting, turn)
	if len(own.waiting) == 1 {
		t.waiting = append(t.waiting, who)
	}
	t.next()
	return turn
}

// leave takes a read out of its line, and reports whether it was still there.
func (t *turns) leave(who string, turn chan struct{}) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	own := t.each[who]
	at := slices.Index(own.waiting, turn)
	if at < 0 {
		return false
	}
	own.waiting = slices.Delete(own.waiting, at, at+1)
	if len(own.waiting) == 0 {
		t.waiting = slices.DeleteFunc(t.waiting, func(other string) bool { return other == who })
	}
	t.forget(who)
	return true
}

// end ends a turn.
func (t *turns) end(who string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.taken--
	t.each[who].taken--
	t.forget(who)
	t.next()
}

// next gives turns to those whose they are, while there are any.
func (t *turns) next() {
	for t.taken < t.all {
		at := slices.IndexFunc(t.waiting, func(who string) bool { return t.each[who].taken < t.share })
		if at < 0 {
			return
		}
		who := t.waiting[at]
		t.waiting = slices.Delete(t.waiting, at, at+1)
		own := t.each[who]
		close(own.waiting[0])
		own.waiting = own.waiting[1:]
		if len(own.waiting) > 0 {
			t.waiting = append(t.waiting, who)
		}
		own.taken++
		t.taken++
	}
}

// forget forgets a line that is empty.
func (t *turns) forget(who string) {
	if own := t.each[who]; own.taken == 0 && len(own.waiting) == 0 {
		delete(t.each, who)
	}
}

// reading is a read whose sender is admitted.
type reading struct {
	// of is who shares turns with others of the same.
	of string
	// data makes the answer of what the caches have, and waits for nothing.
	data func(context.Context) (any, error)
}

// readingOf returns a read about a job; nil stands for several. Who is not known has
// the turns of the job.
func readingOf(ctx context.Context, job *v2alpha1.DIJob, data func(context.Context) (any, error)) *reading {
	sender := senderOf(ctx)
	if job != nil && sender.pod == nil && sender.user == nil {
		return &reading{"job/" + string(job.UID), data}
	}
	return &reading{sender.account(), data}
}

// answerInTurn answers a read once it is its turn, which ends before the answer is
// sent: a client that takes its time for that is in nobody's way.
func (s *Server) answerInTurn(c *gin.Context, read *reading) error {
	body, err := s.readInTurn(c.Request.Context(), read)
	if err != nil {
		return err
	}
	c.Data(http.StatusOK, jsonType, body)
	return nil
}

func (s *Server) readInTurn(ctx context.Context, read *reading) ([]byte, error) {
	patient, cancel := context.WithTimeout(ctx, s.options.Times.Hold)
	defer cancel()
	end, err := s.turns.take(patient, read.of)
	if err != nil {
		return nil, unavailable(err)
	}
	defer end()
	data, err := read.data(ctx)
	if err != nil {
		return nil, err
	}
	return encoded(reply{Success: true, Code: codeSuccess, Message: messageGet, Data: data})
}
