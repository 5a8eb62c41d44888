// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// The sequences by which a terminal erases lines that were written.
const (
	erase  = "\r\x1b[J"
	upLine = "\x1b[A"
)

// Progress reports how far things are: in lines that stay, and in a line of the
// state of each thing, which on a terminal are written over by the next. It may
// be used by several at once.
type Progress struct {
	mutex sync.Mutex
	out   io.Writer
	// width and height are what a terminal has; 0 for no terminal.
	width, height int
	// subjects are in the order in which they came.
	subjects []string
	states   map[string]string
	// drawn is how many lines of states stand on the terminal.
	drawn int
}

// NewProgress returns a progress that is written to a writer.
func NewProgress(out io.Writer) *Progress {
	width, height := size(out)
	return &Progress{out: out, width: width, height: height}
}

// Width returns how wide the terminal is that a writer leads to, and 0 where it
// is none, or one that cannot erase a line.
func Width(out io.Writer) int {
	width, _ := size(out)
	return width
}

func size(out io.Writer) (width, height int) {
	file, isFile := out.(*os.File)
	if !isFile || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(file.Fd())) { // a descriptor fits
		return 0, 0
	}
	width, height, err := term.GetSize(int(file.Fd())) // a descriptor fits
	if err != nil {
		return 0, 0
	}
	return width, height
}

// Say writes a line that stays.
func (p *Progress) Say(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.width == 0 {
		fmt.Fprintln(p.out, line)
		return
	}
	fmt.Fprint(p.out, p.erased()+line+"\n"+p.draw())
}

// State writes what the state of a subject is now, unless that was the last that
// was said of it.
func (p *Progress) State(subject, state string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if last, known := p.states[subject]; known && last == state {
		return
	} else if !known {
		p.subjects = append(p.subjects, subject)
	}
	if p.states == nil {
		p.states = map[string]string{}
	}
	p.states[subject] = state
	if p.width == 0 {
		fmt.Fprintln(p.out, p.line(subject))
		return
	}
	fmt.Fprint(p.out, p.erased()+p.draw())
}

// End leaves the last states on lines of their own.
func (p *Progress) End() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.width > 0 && len(p.subjects) > 0 {
		var text strings.Builder
		text.WriteString(p.erased())
		for _, subject := range p.subjects {
			text.WriteString(p.line(subject) + "\n")
		}
		fmt.Fprint(p.out, text.String())
	}
	p.subjects, p.states, p.drawn = nil, nil, 0
}

func (p *Progress) line(subject string) string { return subject + ": " + p.states[subject] }

// erased returns what erases the states that stand on the terminal.
func (p *Progress) erased() string {
	return strings.Repeat(upLine, max(p.drawn-1, 0)) + erase
}

// draw returns the states, as many as there is room for: what has left the screen
// cannot be erased.
func (p *Progress) draw() string {
	shown := p.subjects
	if room := max(p.height-1, 1); len(shown) > room {
		shown = shown[len(shown)-room:]
	}
	lines := make([]string, 0, len(shown))
	for _, subject := range shown {
		lines = append(lines, cut(p.line(subject), p.width))
	}
	p.drawn = len(lines)
	return strings.Join(lines, "\n")
}

// cut shortens a line so that it does not wrap, which could not be erased.
func cut(line string, width int) string {
	letters := []rune(line)
	if len(letters) < width {
		return line
	}
	return string(letters[:max(width-4, 0)]) + "..."
}

// slow is the time after which the wait for an answer is reported.
const slow = time.Second

// reportSlow reports once, on a terminal, that the API server has not answered yet.
func reportSlow(out io.Writer, next http.RoundTripper) http.RoundTripper {
	if Width(out) == 0 {
		return next
	}
	return &slowReporter{out: out, next: next}
}

type slowReporter struct {
	out  io.Writer
	next http.RoundTripper
	once sync.Once
}

// RoundTrip implements http.RoundTripper.
func (s *slowReporter) RoundTrip(request *http.Request) (*http.Response, error) {
	if query := request.URL.Query(); query.Has("watch") || query.Has("follow") {
		// It is answered when something happens.
		return s.next.RoundTrip(request)
	}
	timer := time.AfterFunc(slow, func() {
		s.once.Do(func() { fmt.Fprintf(s.out, "kubectl-di: waiting for an answer of %s\n", request.URL.Host) })
	})
	defer timer.Stop()
	return s.next.RoundTrip(request)
}
