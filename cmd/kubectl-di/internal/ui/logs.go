// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/logs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/store"
)

const (
	mostReplicas = 64
	// mostFollowed bounds the logs that one page follows.
	mostFollowed = 128
	mostTail     = 10_000
	usualTail    = 200
	// mostLines and linesPause bound how fast lines are sent. A faster replica waits.
	mostLines  = 1000
	linesPause = 100 * time.Millisecond
	// longestLine bounds a line of a log, in bytes.
	longestLine = 16 << 10
)

// logQuery selects lines.
type logQuery struct {
	logs.Request
	search string
}

func parseLogQuery(values url.Values) (*logQuery, error) {
	query := &logQuery{Request: logs.Request{Replicas: values["replica"], Most: mostFollowed}, search: strings.ToLower(values.Get("search"))}
	switch {
	case len(query.Replicas) > mostReplicas:
		return nil, fmt.Errorf("replica is given %d times: want at most %d", len(query.Replicas), mostReplicas)
	case len(query.search) > 200:
		return nil, fmt.Errorf("search has %d characters: want at most 200", len(query.search))
	}
	tail, err := store.Number(values, "tail", usualTail, 0, mostTail)
	if err != nil {
		return nil, err
	}
	query.Tail = int64(tail)
	for name, into := range map[string]*bool{"follow": &query.Follow, "previous": &query.Previous} {
		if *into, err = boolean(values.Get(name)); err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
	}
	if query.Follow && query.Previous {
		return nil, errors.New("previous and follow are true: what ran before prints nothing more")
	}
	return query, nil
}

// boolean returns a parameter that is true or false; false if it is empty.
func boolean(given string) (bool, error) {
	if given == "" {
		return false, nil
	}
	value, err := strconv.ParseBool(given)
	if err != nil {
		return false, fmt.Errorf("%q: want true or false", given[:min(len(given), 20)])
	}
	return value, nil
}

// streamLogs sends the lines of a job's replicas.
func (s *Server) streamLogs(ctx context.Context, r *http.Request, to *sender) error {
	query, err := parseLogQuery(r.URL.Query())
	if err != nil {
		return gate.BadRequest(err)
	}
	found, job, err := s.readJob(r)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lines, notices, ended := make(chan api.LogLine), make(chan string), make(chan error, 1)
	sink := logs.Sink{
		Line: func(line logs.Line) error { return push(ctx, lines, query.lineOf(line), query.matches(line.Text)) },
		Notice: func(text string) {
			// The only error is the end of the context.
			_ = push(ctx, notices, text, true)
		},
	}
	go func() {
		defer close(lines)
		ended <- logs.Read(ctx, found, job, &query.Request, s.Clock, sink)
	}()
	if err := s.sendLines(ctx, to, lines, notices); err != nil {
		return err
	}
	var tooMany *logs.TooManyError
	if err := <-ended; errors.As(err, &tooMany) {
		return gate.BadRequest(fmt.Errorf("%d replicas would be followed: choose at most %d", tooMany.Open, tooMany.Most))
	} else if err != nil {
		return err
	}
	return to.append("end", struct{}{})
}

// push sends a value unless the context ends before it is received.
func push[T any](ctx context.Context, into chan<- T, value T, wanted bool) error {
	if !wanted {
		return ctx.Err()
	}
	select {
	case into <- value:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *logQuery) matches(text string) bool {
	return q.search == "" || strings.Contains(strings.ToLower(text), q.search)
}

func (*logQuery) lineOf(line logs.Line) api.LogLine {
	text := line.Text
	if len(text) > longestLine {
		text = text[:longestLine]
	}
	sent := api.LogLine{Replica: line.Replica, Text: strings.ToValidUTF8(text, "\uFFFD")}
	if !line.At.IsZero() {
		at := line.At.UTC()
		sent.Time = &at
	}
	return sent
}

// sendLines sends lines in batches until the last one.
func (s *Server) sendLines(ctx context.Context, to *sender, lines <-chan api.LogLine, notices <-chan string) error {
	to.begin()
	beats := s.Clock.NewTicker(heartbeat)
	defer beats.Stop()
	var batch []api.LogLine
	var passed <-chan time.Time
	for {
		from := lines
		if len(batch) == mostLines {
			from = nil
		}
		var err error
		isOpen := true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, more := <-from:
			if isOpen = more; more {
				batch = append(batch, line)
			}
			if passed == nil {
				passed = s.Clock.After(linesPause)
			}
		case text := <-notices:
			err = to.append("notice", api.LogNotice{Text: text})
		case <-passed:
			err, batch, passed = to.lines(batch), nil, nil
		case <-beats.C():
			err = to.beat()
		}
		if err != nil || !isOpen {
			return errors.Join(err, to.lines(batch))
		}
	}
}

// lines sends a batch in the order of the lines' times.
func (t *sender) lines(batch []api.LogLine) error {
	if len(batch) == 0 {
		return nil
	}
	slices.SortStableFunc(batch, func(a, b api.LogLine) int {
		if a.Time == nil || b.Time == nil {
			return 0
		}
		return cmp.Compare(a.Time.UnixNano(), b.Time.UnixNano())
	})
	return t.append("lines", batch)
}
