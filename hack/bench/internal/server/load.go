// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

// One of every writersOf coordinators writes. One of every reportersOf also reports failed replicas.
const (
	writersOf   = 5
	reportersOf = 50
)

// load describes the calls of coordinators.
type load struct {
	server  string
	callers []coordinator.Caller
	// writes is the total number of writes a second.
	writes float64
}

// measured is the result of the calls.
type measured struct {
	gets, writes pace.Tally
	// body is the size of an answer to a GET.
	body int
}

// generate makes the calls for a duration. Each coordinator polls at its own rate: a late answer
// delays no other call.
func (l *load) generate(ctx context.Context, long time.Duration) (*measured, error) {
	lines := make([]*line, len(l.callers))
	for i := range lines {
		lines[i] = &line{Line: coordinator.NewLine(l.server, &l.callers[i], false)}
		defer lines[i].Close()
	}
	result := &measured{}
	if len(lines) == 0 {
		return result, pace.Pause(ctx, long)
	}
	polls := &pace.Prober{Name: "GET", Every: pollingInterval / time.Duration(len(lines)), Call: func(ctx context.Context, number int) error {
		return lines[number%len(lines)].poll(ctx)
	}}
	polls.Start(ctx)
	defer polls.Stop()
	var writes *pace.Prober
	if l.writes > 0 {
		writers := l.writers()
		writes = &pace.Prober{Name: "write", Every: time.Duration(float64(time.Second) / l.writes), Call: func(ctx context.Context, number int) error {
			return writers[number%len(writers)].next(ctx)
		}}
		writes.Start(ctx)
		defer writes.Stop()
	}
	if err := pace.Pause(ctx, long); err != nil {
		return nil, err
	}
	polls.Stop()
	result.gets, result.body = polls.Take(), lines[0].size()
	if writes != nil {
		writes.Stop()
		result.writes = writes.Take()
	}
	return result, nil
}

// line is one coordinator's connection, which makes one call at a time.
type line struct {
	*coordinator.Line

	mutex sync.Mutex
	body  int // size of the last answer; under the mutex
}

func (l *line) poll(ctx context.Context) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	answer, err := l.Get(ctx)
	l.body = max(l.body, len(answer))
	return err
}

func (l *line) size() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.body
}

// writer does one coordinator's writes in sequence: add a collector, then remove one. Some
// coordinators report the collector as failed in between.
type writer struct {
	line    *coordinator.Line
	reports bool

	mutex sync.Mutex
	// added and reported determine the next write. The mutex guards both.
	added    string
	reported bool
}

func (l *load) writers() []*writer {
	var writers []*writer
	for i := 0; i < len(l.callers); i += writersOf {
		// Each write opens and closes its own connection.
		writers = append(writers, &writer{line: coordinator.NewLine(l.server, &l.callers[i], false), reports: i%reportersOf == 0})
	}
	return writers
}

var errNoCollector = errors.New("the answer names no collector")

// next does the next write.
func (w *writer) next(ctx context.Context) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch {
	case w.added == "":
		collectors, err := w.line.Write(ctx, "POST", "/replicas", `"collectors":{"replicas":1}`)
		if err == nil && len(collectors) != 1 {
			err = errNoCollector
		}
		if err != nil {
			return fmt.Errorf("POST: %w", err)
		}
		w.added, w.reported = collectors[0], false
		return nil
	case w.reports && !w.reported:
		w.reported = true
		_, err := w.line.Write(ctx, "POST", "/replicas/failed", fmt.Sprintf(`"collectors":[%q]`, w.added))
		return err
	}
	w.added = ""
	_, err := w.line.Write(ctx, "DELETE", "/replicas", `"collectors":{"replicas":1}`)
	return err
}
