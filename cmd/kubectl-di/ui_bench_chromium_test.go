// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// chromium is the page in Chromium, if CHROMIUM names it, and what it prints.
type chromium struct {
	input  io.WriteCloser
	wait   func() error
	first  chan time.Time
	opened chan time.Duration
	memory chan string
	// delays is how long changes take until they are on the screen.
	delays *delays
}

// startChromium starts Chromium without the page.
func startChromium(ctx context.Context, b *testing.B) *chromium {
	b.Helper()
	c := &chromium{first: make(chan time.Time, 1), opened: make(chan time.Duration, 1), memory: make(chan string, 1), delays: newDelays()}
	if os.Getenv("CHROMIUM") == "" {
		return c
	}
	path, err := exec.LookPath(os.Getenv("CHROMIUM"))
	mustBench(b, err)
	command := exec.CommandContext(ctx, "node", "e2e/measure.mjs")
	command.Dir, command.Stderr, command.Env = "../../web", os.Stderr, append(os.Environ(), "CHROMIUM="+path)
	c.input, err = command.StdinPipe()
	mustBench(b, err)
	output, err := command.StdoutPipe()
	mustBench(b, err)
	mustBench(b, command.Start())
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "ready" {
		b.Fatalf("Chromium does not start: %q, %v", lines.Text(), lines.Err())
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			c.printed(lines.Text())
		}
	}()
	c.wait = func() error { <-read; return errors.Join(lines.Err(), command.Wait()) }
	return c
}

// printed reads a line of web/e2e/measure.mjs.
func (c *chromium) printed(line string) {
	var at int64
	var restarts int32
	var job string
	if _, err := fmt.Sscanf(line, "first %d", &at); err == nil {
		c.first <- time.UnixMilli(at)
	}
	if _, err := fmt.Sscanf(line, "opened %d", &at); err == nil {
		c.opened <- time.Duration(at) * time.Millisecond
	}
	if _, err := fmt.Sscanf(line, "seen %d %d %s", &at, &restarts, &job); err == nil {
		c.delays.saw(job, restarts, time.UnixMilli(at))
	}
	if sizes, is := strings.CutPrefix(line, "memory "); is {
		c.memory <- sizes
	}
}

// show opens the page of a program.
func (c *chromium) show(b *testing.B, p *benchPage) {
	b.Helper()
	if c.input == nil {
		return
	}
	base, err := url.Parse(p.base)
	mustBench(b, err)
	cookie := p.Jar.Cookies(base)[0]
	_, err = fmt.Fprintln(c.input, p.base, cookie.Name, cookie.Value)
	mustBench(b, err)
}

// reportFirst reports when the first jobs were on the screen.
func (c *chromium) reportFirst(b *testing.B, begun time.Time) {
	b.Helper()
	if c.input != nil {
		b.ReportMetric(float64((<-c.first).Sub(begun).Milliseconds()), "first-view-ms")
	}
}

// reportOpened opens the page once more, and reports how long it took until rows were on the screen.
func (c *chromium) reportOpened(b *testing.B) {
	b.Helper()
	if c.input == nil {
		return
	}
	_, err := fmt.Fprintln(c.input, "open")
	mustBench(b, err)
	b.ReportMetric(float64((<-c.opened).Milliseconds()), "view-after-list-ms")
}

// end closes the page, and reports what was measured.
func (c *chromium) end(b *testing.B) {
	b.Helper()
	if c.input == nil {
		return
	}
	mustBench(b, errors.Join(c.input.Close(), c.wait()))
	var sizes [4]float64
	_, err := fmt.Sscan(<-c.memory, &sizes[0], &sizes[1], &sizes[2], &sizes[3])
	mustBench(b, err)
	for i, unit := range []string{"end-page-heap-MiB", "peak-page-heap-MiB", "end-page-MiB", "peak-page-MiB"} {
		b.ReportMetric(sizes[i], unit)
	}
	c.delays.report(b, "screen")
}

// delays is how long after a write changes are seen.
type delays struct {
	mutex   sync.Mutex
	written map[string]time.Time
	took    []time.Duration
}

func newDelays() *delays { return &delays{written: map[string]time.Time{}} }

func (d *delays) wrote(job string, restarts int32, at time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.written[fmt.Sprint(job, " ", restarts)] = at
}

func (d *delays) saw(job string, restarts int32, at time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	key := fmt.Sprint(job, " ", restarts)
	if written, isNew := d.written[key]; isNew {
		d.took = append(d.took, at.Sub(written))
		delete(d.written, key)
	}
}

// report reports the median, and what one of a hundred exceeds.
func (d *delays) report(b *testing.B, what string) {
	b.Helper()
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if len(d.took) == 0 {
		return
	}
	slices.Sort(d.took)
	for _, percent := range []int{50, 99} {
		at := d.took[min(len(d.took)-1, len(d.took)*percent/100)]
		b.ReportMetric(float64(at.Milliseconds()), fmt.Sprintf("%s-p%d-ms", what, percent))
	}
	b.ReportMetric(float64(len(d.took)), what+"-changes")
}
