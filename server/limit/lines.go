// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// linesWindow is the window in which log lines are counted.
	linesWindow = time.Minute
	// maxLinesPerKey and maxLines bound the lines of one message in a window, for
	// one job or caller and in total.
	maxLinesPerKey, maxLines = 10, 200
	// maxCounted bounds the messages and keys for which lines are counted.
	maxCounted = 4096
)

// Lines limits the log lines that callers can trigger. It prevents a caller from flooding the log or hiding
// the lines of other callers.
type Lines struct {
	clock clock.PassiveClock

	mutex sync.Mutex
	each  *lru.Cache
}

// linesKey identifies a message about one job or caller, or about all of them.
type linesKey struct {
	message, key string
	all          bool
}

// count counts the lines written in the current window, and the lines suppressed since the last one.
type count struct {
	since               time.Time
	written, suppressed int
}

// NewLines returns a limit of log lines.
func NewLines(clock clock.PassiveClock) *Lines {
	return &Lines{clock: clock, each: lru.New(maxCounted)}
}

// Allow reports whether a line may be written. It also returns how many lines with the same message and key
// were suppressed since the last one.
func (l *Lines) Allow(message, key string) (suppressed int, allowed bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	own, all := l.count(linesKey{message: message, key: key}), l.count(linesKey{message: message, all: true})
	if own.written >= maxLinesPerKey || all.written >= maxLines {
		own.suppressed++
		return 0, false
	}
	own.written++
	all.written++
	suppressed, own.suppressed = own.suppressed, 0
	return suppressed, true
}

func (l *Lines) count(key linesKey) *count {
	now := l.clock.Now()
	known, _ := l.each.Get(key)
	found, isCount := known.(*count)
	if !isCount {
		found = &count{since: now}
		l.each.Add(key, found)
	}
	if now.Sub(found.since) >= linesWindow {
		found.since, found.written = now, 0
	}
	return found
}
