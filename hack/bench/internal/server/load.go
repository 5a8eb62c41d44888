// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
)

// load is what a load generator is to do.
type load struct {
	// Server is the address of the server.
	Server string
	// Callers are who polls, one goroutine each.
	Callers []coordinator.Caller
	// Every is how often each polls; 0 is as soon as it has the last answer.
	Every time.Duration
	// For is how long.
	For time.Duration
	// KeepAlive keeps connections; else each request has one of its own.
	KeepAlive bool
	// Writes is how many writes a second are spread over the callers.
	Writes float64
}

// taken is what a load generator measured.
type taken struct {
	Gets []time.Duration
	// Writes are by what was asked for.
	Writes map[string][]time.Duration
	// Late is how much later than planned requests were sent.
	Late []time.Duration
	// Errors is how many requests failed, and FirstError one of them.
	Errors     int
	FirstError string
	// Body is the size of an answer to a GET.
	Body int
	// Processor is what the generator itself computed.
	Processor time.Duration
}

// measure generates load from a process of its own.
func measure(ctx context.Context, wanted *load) (*taken, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("generating load: %w", err)
	}
	input, err := json.Marshal(wanted)
	if err != nil {
		return nil, fmt.Errorf("generating load: %w", err)
	}
	command := exec.CommandContext(ctx, own, "server", "-role", roleLoad)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("generating load: %w", err)
	}
	var result taken
	if err := json.Unmarshal(output, &result); err != nil {
		return nil, fmt.Errorf("generating load: %w", err)
	}
	result.Processor = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	return &result, nil
}

// generateLoad does what the input says and writes what it measured.
func generateLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	var wanted load
	if err := json.NewDecoder(in).Decode(&wanted); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, wanted.For)
	defer cancel()
	g := generator{load: &wanted, began: time.Now(), taken: taken{Writes: map[string][]time.Duration{}}}
	var group wait.Group
	for i := range wanted.Callers {
		group.Start(func() { g.poll(ctx, i) })
	}
	if wanted.Writes > 0 {
		group.Start(func() { g.write(ctx) })
	}
	group.Wait()
	return json.NewEncoder(out).Encode(&g.taken)
}

// generator generates load.
type generator struct {
	*load
	began time.Time

	mutex sync.Mutex
	// taken is under the mutex.
	taken taken
}

// poll asks for the list of one caller's job until the context ends. Callers
// are spread over the interval, and each keeps to its beat: an answer that is
// late does not delay the next question, unless it takes longer than the beat.
func (g *generator) poll(ctx context.Context, index int) {
	beat := g.began.Add(g.Every * time.Duration(index) / time.Duration(len(g.Callers)))
	line := coordinator.NewLine(g.Server, &g.Callers[index], g.KeepAlive)
	defer line.Close()
	var times, late []time.Duration
	size := 0
	for until(ctx, beat) {
		sent := time.Now()
		if g.Every > 0 {
			late = append(late, sent.Sub(beat))
			for beat = beat.Add(g.Every); beat.Before(sent); {
				beat = beat.Add(g.Every)
			}
		}
		answer, err := line.Get(ctx)
		if err != nil {
			g.fail(err)
			continue
		}
		times = append(times, time.Since(sent))
		size = len(answer)
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.taken.Gets = append(g.taken.Gets, times...)
	g.taken.Late = append(g.taken.Late, late...)
	g.taken.Body = size
}

func (g *generator) fail(err error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.taken.Errors++; g.taken.FirstError == "" {
		g.taken.FirstError = err.Error()
	}
}

// write writes for one caller after the other, for each fifth of them: a
// collector more, then a collector less, and for every tenth of those a report
// in between.
func (g *generator) write(ctx context.Context) {
	var writers []*writer
	for i := 0; i < len(g.Callers); i += 5 {
		one := &writer{line: coordinator.NewLine(g.Server, &g.Callers[i], g.KeepAlive), reports: i%50 == 0}
		defer one.line.Close()
		writers = append(writers, one)
	}
	every := time.Duration(float64(time.Second) / g.Writes)
	beat := g.began
	var group wait.Group
	for i := 0; until(ctx, beat); i++ {
		one := writers[i%len(writers)]
		group.Start(func() { g.writeOnce(ctx, one) })
		beat = beat.Add(every)
	}
	group.Wait()
}

func (g *generator) writeOnce(ctx context.Context, by *writer) {
	by.mutex.Lock()
	defer by.mutex.Unlock()
	// A write that was begun is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	sent := time.Now()
	what, err := by.next(ctx)
	took := time.Since(sent)
	if err != nil {
		g.fail(fmt.Errorf("%s: %w", what, err))
		return
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.taken.Writes[what] = append(g.taken.Writes[what], took)
}

// until waits for a point in time, and reports whether it came before the end.
func until(ctx context.Context, beat time.Time) bool {
	remaining := time.Until(beat)
	if remaining <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(remaining)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// writer does one caller's writes, one after another.
type writer struct {
	line    *coordinator.Line
	reports bool

	mutex sync.Mutex
	// added and reported say what comes next; both are under the mutex.
	added    string
	reported bool
}

var errNoCollector = errors.New("the answer names no collector")

// next does the next write and says what it was.
func (w *writer) next(ctx context.Context) (string, error) {
	switch {
	case w.added == "":
		collectors, err := w.line.Write(ctx, "POST", "/replicas", `"collectors":{"replicas":1}`)
		if err == nil && len(collectors) != 1 {
			err = errNoCollector
		}
		if err == nil {
			w.added, w.reported = collectors[0], false
		}
		return "POST", err
	case w.reports && !w.reported:
		_, err := w.line.Write(ctx, "POST", "/replicas/failed", fmt.Sprintf(`"collectors":[%q]`, w.added))
		w.reported = true
		return "failed", err
	}
	_, err := w.line.Write(ctx, "DELETE", "/replicas", `"collectors":{"replicas":1}`)
	w.added = ""
	return "DELETE", err
}
