// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"time"
)

// position is how far a container's log was read. The API can begin a log at a
// second and no finer, so that what is read again begins with lines that were
// read before: as many as there were since that second.
type position struct {
	// newest is the latest time of a line that was read.
	newest time.Time
	// read counts the lines since the second of newest.
	read int
	// part is how much was printed of the line after those, in bytes.
	part int
	// again is how many lines are still to be left out of what is read again.
	again int
}

// second is the time that reading continues from; false before the first line.
func (p *position) second() (time.Time, bool) {
	return p.newest.Truncate(time.Second), !p.newest.IsZero()
}

// resume begins to read again since the second.
func (p *position) resume() { p.again = p.read }

// isRead reports whether a line was read before. It is asked for each line once,
// in their order.
func (p *position) isRead(at time.Time) bool {
	second, resumed := p.second()
	switch {
	case !resumed || at.IsZero():
		return false
	case at.Before(second):
		// The API was asked for none of these.
		return p.again > 0
	case p.again == 0 || at.After(p.newest):
		p.again = 0
		return false
	}
	p.again--
	return true
}

// add counts a line that was read to its end.
func (p *position) add(at time.Time) {
	p.part = 0
	if at.IsZero() {
		return
	}
	if second, begun := p.second(); !begun || !at.Before(second.Add(time.Second)) {
		p.newest, p.read = at, 0
	}
	if second, _ := p.second(); at.Before(second) {
		return
	}
	if at.After(p.newest) {
		p.newest = at
	}
	p.read++
}

// stamped parts a line into its time and its text. A line without time is the
// kubelet's own.
func stamped(line []byte) (time.Time, []byte) {
	stamp, text, found := bytes.Cut(line, []byte{' '})
	if !found {
		// The space is missing where the text is empty.
		stamp, text = bytes.TrimRight(line, "\n"), line[len(bytes.TrimRight(line, "\n")):]
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return time.Time{}, line
	}
	return at, text
}
