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

// palette are the colours of 256 that read well on dark and on light.
func palette(profile colorprofile.Profile) []int {
	if profile >= colorprofile.ANSI256 {
		// Neighbours differ in hue.
		return []int{33, 166, 71, 133, 37, 172, 99, 161, 67, 136, 32, 168, 65, 127, 103, 130, 31, 170, 64, 97, 72, 160, 69, 137, 125, 66, 173, 61,
			164, 101, 36, 131}
	}
	return []int{6, 3, 2, 5, 4, 1, 14, 11, 10, 13, 12, 9}
}

// printer prints lines of several replicas, one at a time.
type printer struct {
	mutex sync.Mutex
	out   *bufio.Writer
	// hasPrefix and hasTime say what is printed before a line.
	hasPrefix, hasTime bool
	colours            []int
	// places say which colour a replica has, in the order in which they came.
	places map[string]int
}

func newPrinter(out io.Writer, hasPrefix, hasTime bool, profile colorprofile.Profile) *printer {
	p := &printer{out: bufio.NewWriterSize(out, longest), hasPrefix: hasPrefix, hasTime: hasTime, places: map[string]int{}}
	if profile >= colorprofile.ANSI {
		p.colours = palette(profile)
	}
	return p
}

// introduce gives a replica the next colour, so that two have the same only where
// there are more replicas than colours. It keeps it.
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

// print prints a line as a whole.
func (p *printer) print(one line) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.hasPrefix {
		// The flush returns the error.
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

// flush prints what waits for more.
func (p *printer) flush() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.out.Flush()
}

// prefix returns what is printed before a replica's lines, in its colour.
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
	out     io.Writer
	printed map[string]bool
}

// print prints a notice once.
func (n *notices) print(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.printed[text] {
		return
	}
	n.printed[text] = true
	fmt.Fprintln(n.out, "kubectl-di:", text)
}
