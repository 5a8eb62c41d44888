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

// longest is the size of the line buffer in bytes. A longer line is printed in several pieces.
const longest = 64 << 10

// line is a line to print, or a piece of a long one.
type line struct {
	replica string
	at      time.Time
	text    []byte
	// more reports whether more can be read without waiting.
	more bool
}

// copying copies a log from a position on, and advances the position.
type copying struct {
	from  *bufio.Reader
	at    *position
	print func(line) error
	// isOver reports whether the log is complete, so that its last line is whole even without a
	// line break.
	isOver bool
	// isKnown reports whether a line was read before.
	isKnown func(at time.Time) bool
}

func newCopying(from io.Reader, at *position, isOver bool, print func(line) error) *copying {
	at.resume()
	return &copying{from: bufio.NewReaderSize(from, longest), at: at, isOver: isOver, print: print, isKnown: at.isRead}
}

// run copies until the log ends or breaks, and returns the error that broke it.
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
		// The rest is read again after a reconnect.
		return err
	case read:
		return err
	}
	return errors.Join(c.end(at, before, text), err)
}

// piece prints the part of a piece that was not printed before.
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

// printError is an error of the output. Reading more would be useless.
type printError struct{ error }

// Error implements error.
func (e printError) Error() string { return fmt.Sprintf("printing: %v", e.error) }

// Unwrap implements the interface of package errors.
func (e printError) Unwrap() error { return e.error }

// position is the position in a container's log. The API can start a log only at a whole second. A
// resumed log therefore begins with lines that were read before: all lines since that second.
type position struct {
	// newest is the latest time of the lines that were read.
	newest time.Time
	// read counts the lines since the second of newest.
	read int
	// part is the number of bytes that were printed of the next line.
	part int
	// again is the number of lines that a resumed read must still skip.
	again int
}

// second is the time at which reading resumes; false before the first line.
func (p *position) second() (time.Time, bool) {
	return p.newest.Truncate(time.Second), !p.newest.IsZero()
}

// resume starts to skip the lines that were read since the second.
func (p *position) resume() { p.again = p.read }

// isRead reports whether a line was read before. It must be called once for each line, in their
// order.
func (p *position) isRead(at time.Time) bool {
	second, resumed := p.second()
	switch {
	case !resumed || at.IsZero():
		return false
	case at.Before(second):
		// The request does not include lines before that second.
		return p.again > 0
	case p.again == 0 || at.After(p.newest):
		p.again = 0
		return false
	}
	p.again--
	return true
}

// add records a line that was read completely.
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

// stamped splits a line into its time and its text. A line without a time is a message of the
// kubelet.
func stamped(line []byte) (time.Time, []byte) {
	stamp, text, found := bytes.Cut(line, []byte{' '})
	if !found {
		// An empty text has no space before it.
		stamp, text = bytes.TrimRight(line, "\n"), line[len(bytes.TrimRight(line, "\n")):]
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return time.Time{}, line
	}
	return at, text
}
