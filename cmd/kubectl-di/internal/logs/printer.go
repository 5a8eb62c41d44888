// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/charmbracelet/colorprofile"
)

// palette returns those of the 256 colours that are readable on dark and light backgrounds.
func palette(profile colorprofile.Profile) []int {
	if profile >= colorprofile.ANSI256 {
		// Neighbours differ in hue.
		return []int{33, 166, 71, 133, 37, 172, 99, 161, 67, 136, 32, 168, 65, 127, 103, 130, 31, 170, 64, 97, 72, 160, 69, 137, 125, 66, 173, 61,
			164, 101, 36, 131}
	}
	return []int{6, 3, 2, 5, 4, 1, 14, 11, 10, 13, 12, 9}
}

// printer prints lines of several replicas, one line at a time.
type printer struct {
	mutex sync.Mutex
	out   *bufio.Writer
	// hasPrefix and hasTime configure the prefix of a line.
	hasPrefix, hasTime bool
	colours            []int
	// places maps replicas to their colours, in the order of their appearance.
	places map[string]int
}

func newPrinter(out io.Writer, hasPrefix, hasTime bool, profile colorprofile.Profile) *printer {
	p := &printer{out: bufio.NewWriterSize(out, longest), hasPrefix: hasPrefix, hasTime: hasTime, places: map[string]int{}}
	if profile >= colorprofile.ANSI {
		p.colours = palette(profile)
	}
	return p
}

// introduce assigns the next colour to a replica. Two replicas share one only if there are more
// replicas than colours.
func (p *printer) introduce(replica string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.place(replica)
}

func (p *printer) place(replica string) int {
	place, known := p.places[replica]
	if !known {
		place = len(p.places)
		p.places[replica] = place
	}
	return place
}

// print prints a complete line.
func (p *printer) print(one line) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.hasPrefix {
		// Flush returns the error.
		_, _ = p.out.WriteString(p.prefix(one.replica))
	}
	if p.hasTime && !one.at.IsZero() {
		_, _ = p.out.WriteString(one.at.Format(time.RFC3339Nano) + " ")
	}
	_, _ = p.out.Write(one.text)
	if err := p.out.WriteByte('\n'); err != nil || one.more {
		return err
	}
	return p.out.Flush()
}

// flush writes the buffer.
func (p *printer) flush() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.out.Flush()
}

// prefix returns the prefix of a replica's lines, in its colour.
func (p *printer) prefix(replica string) string {
	if len(p.colours) == 0 {
		return "[" + replica + "] "
	}
	colour := p.colours[p.place(replica)%len(p.colours)]
	return "\x1b[38;5;" + strconv.Itoa(colour) + "m[" + replica + "]\x1b[0m "
}

// notices prints each notice beside the logs once.
type notices struct {
	mutex   sync.Mutex
	report  func(text string)
	printed map[string]bool
}

// print prints a distinct notice once.
func (n *notices) print(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.printed[text] {
		return
	}
	n.printed[text] = true
	n.report(text)
}
