// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// sparseTime is how long the lines are counted together that callers cause.
	sparseTime = time.Minute
	// maxOwnLines and maxLines bound how many lines of one message there are in that
	// time: about one job or caller, and about all.
	maxOwnLines, maxLines = 10, 200
	// maxSparse bounds for how many of them lines are counted.
	maxSparse = 4096
	// maxLogged bounds the bytes of a text in a line that a caller may choose.
	maxLogged = 1024
)

// sparse bounds the lines that callers cause at will, so that nobody fills the log,
// or hides in it what others do.
type sparse struct {
	clock clock.PassiveClock

	mutex sync.Mutex
	each  *lru.Cache
}

// about is whom lines of one message are about, or all of them.
type about struct {
	message, whom string
	all           bool
}

// lines are what was told of one in the time since it began, and left out since the
// last line.
type lines struct {
	since         time.Time
	told, leftOut int
}

func newSparse(clock clock.PassiveClock) *sparse {
	return &sparse{clock: clock, each: lru.New(maxSparse)}
}

// tells reports whether a line is to be written, and how many about the same were
// left out before it.
func (s *sparse) tells(message, whom string) (leftOut int, tells bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	own, all := s.of(about{message: message, whom: whom}), s.of(about{message: message, all: true})
	if own.told >= maxOwnLines || all.told >= maxLines {
		own.leftOut++
		return 0, false
	}
	own.told++
	all.told++
	leftOut, own.leftOut = own.leftOut, 0
	return leftOut, true
}

func (s *sparse) of(key about) *lines {
	now := s.clock.Now()
	known, _ := s.each.Get(key)
	found, isKnown := known.(*lines)
	if !isKnown {
		found = &lines{since: now}
		s.each.Add(key, found)
	}
	if now.Sub(found.since) >= sparseTime {
		found.since, found.told = now, 0
	}
	return found
}

// sparsely writes a line about the job of a request, or its sender where that is not
// known, unless there were many.
func (s *Server) sparsely(ctx context.Context, message string, write func(logr.Logger)) {
	whom := senderOf(ctx).account()
	if matter, found := ctx.Value(matterKey{}).(*subjectMatter); found && matter.job != nil {
		whom = "job/" + string(matter.job.UID)
	}
	leftOut, tells := s.sparse.tells(message, whom)
	if !tells {
		return
	}
	line := s.options.Log.WithValues(logJob(ctx)...)
	if leftOut > 0 {
		line = line.WithValues("leftOut", leftOut)
	}
	write(line)
}

// loggable returns a text that somebody else has chosen as a line may have it: cut,
// and quoted where it has what may not be printed.
func loggable(text string) string {
	if len(text) > maxLogged {
		text = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:maxLogged], ""), len(text))
	}
	isStrange := func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }
	if strings.ContainsFunc(text, isStrange) {
		return strconv.Quote(text)
	}
	return text
}

// httpLog returns where the HTTP server tells of connections that fail, which
// whoever connects can cause.
func (s *Server) httpLog() *log.Logger {
	return log.New(writeFunc(func(line []byte) (int, error) {
		s.sparsely(context.Background(), "Connection failed", func(to logr.Logger) {
			to.Info("Connection failed", "reason", loggable(strings.TrimSpace(string(line))))
		})
		return len(line), nil
	}), "", 0)
}

type writeFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writeFunc) Write(line []byte) (int, error) { return f(line) }
