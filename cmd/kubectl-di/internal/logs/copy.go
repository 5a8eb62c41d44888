// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// longest is how much of a line is held in memory, in bytes. A longer one is
// printed as several.
const longest = 64 << 10

// line is a line to print, or a piece of one that is too long.
type line struct {
	replica string
	at      time.Time
	text    []byte
	// more tells that more can be read without waiting.
	more bool
}

// copying copies a log from where a position is, which moves along.
type copying struct {
	from  *bufio.Reader
	at    *position
	print func(line) error
	// isOver tells that nothing will be added to the log, so that its last line
	// is whole also where its end is missing.
	isOver bool
	// isKnown reports whether a line was read before.
	isKnown func(at time.Time) bool
}

func newCopying(from io.Reader, at *position, isOver bool, print func(line) error) *copying {
	at.resume()
	return &copying{from: bufio.NewReaderSize(from, longest), at: at, isOver: isOver, print: print, isKnown: at.isRead}
}

// run copies until the log ends or breaks; what is returned then is nil or why.
func (c *copying) run() error {
	for {
		if err := c.next(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// next copies a line.
func (c *copying) next() error {
	piece, err := c.from.ReadSlice('\n')
	if len(piece) == 0 {
		return err
	}
	at, text := stamped(piece)
	read := c.isKnown(at)
	before := 0
	if !read {
		before = c.at.part
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		if !read {
			if err := c.piece(at, &before, text); err != nil {
				return err
			}
		}
		text, err = c.from.ReadSlice('\n')
	}
	switch {
	case err != nil && (!c.isOver || !errors.Is(err, io.EOF)):
		// The rest is read again.
		return err
	case read:
		return err
	}
	return errors.Join(c.end(at, before, text), err)
}

// piece prints a piece of a line but for what was printed before.
func (c *copying) piece(at time.Time, before *int, text []byte) error {
	done := min(*before, len(text))
	*before -= done
	if done == len(text) {
		return nil
	}
	c.at.part += len(text) - done
	return c.emit(at, text[done:])
}

// end prints the rest of a line.
func (c *copying) end(at time.Time, before int, text []byte) error {
	begun := c.at.part > 0
	text = trimEnd(text[min(before, len(text)):])
	c.at.add(at)
	if begun && len(text) == 0 {
		return nil
	}
	return c.emit(at, text)
}

func (c *copying) emit(at time.Time, text []byte) error {
	if err := c.print(line{at: at, text: text, more: c.from.Buffered() > 0}); err != nil {
		return printError{err}
	}
	return nil
}

func trimEnd(text []byte) []byte {
	if end := len(text) - 1; end >= 0 && text[end] == '\n' {
		return text[:end]
	}
	return text
}

// printError is a failure to print, after which reading on is of no use.
type printError struct{ error }

// Error implements error.
func (e printError) Error() string { return fmt.Sprintf("printing: %v", e.error) }

// Unwrap implements the interface of package errors.
func (e printError) Unwrap() error { return e.error }

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
