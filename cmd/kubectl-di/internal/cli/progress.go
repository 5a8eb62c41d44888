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

// The control sequences that erase lines on a terminal.
const (
	erase  = "\r\x1b[J"
	upLine = "\x1b[A"
)

// Progress reports progress in permanent lines, and in one line for the state of each subject. On a
// terminal, the next states overwrite the previous ones. It is safe for concurrent use.
type Progress struct {
	mutex sync.Mutex
	out   io.Writer
	// width and height are the size of the terminal; 0 for no terminal.
	width, height int
	// subjects are in the order of their first state.
	subjects []string
	states   map[string]string
	// drawn is the number of state lines that are on the terminal.
	drawn int
}

// NewProgress returns a progress that writes to a writer.
func NewProgress(out io.Writer) *Progress {
	width, height := size(out)
	return &Progress{out: out, width: width, height: height}
}

// Width returns the width of a writer's terminal. It is 0 if there is no terminal, or one that
// cannot erase lines.
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

// Say writes a permanent line.
func (p *Progress) Say(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.width == 0 {
		fmt.Fprintln(p.out, line)
		return
	}
	fmt.Fprint(p.out, p.erased()+line+"\n"+p.draw())
}

// State writes the current state of a subject if it has changed.
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

// End leaves the last states as permanent lines.
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

// erased returns the sequence that erases the drawn states.
func (p *Progress) erased() string {
	return strings.Repeat(upLine, max(p.drawn-1, 0)) + erase
}

// draw returns as many states as fit on the screen, because lines above it cannot be erased.
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

// cut truncates a line so that it does not wrap: a wrapped line could not be erased.
func cut(line string, width int) string {
	letters := []rune(line)
	if len(letters) < width {
		return line
	}
	return string(letters[:max(width-4, 0)]) + "..."
}

// slow is the delay after which a missing answer is reported.
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
		// A watch is answered only when something happens.
		return s.next.RoundTrip(request)
	}
	timer := time.AfterFunc(slow, func() {
		s.once.Do(func() { fmt.Fprintf(s.out, "kubectl-di: waiting for an answer of %s\n", request.URL.Host) })
	})
	defer timer.Stop()
	return s.next.RoundTrip(request)
}
