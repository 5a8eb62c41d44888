// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// streamBatch is the number of units that the learner of a stream takes at once.
	streamBatch = 12
	// streamStaleness is how many batches old a unit may be, so the queue has a batch more.
	streamStaleness = 4
	streamCapacity  = (streamStaleness + 1) * streamBatch
	// streamPoll is the pause before a full or empty queue is tried again.
	streamPoll = 50 * time.Millisecond
	// roleEvery is the interval of reports by role.
	roleEvery = 10 * time.Second
)

// stream is the queue between the collectors and the learner of an asynchronous training, and the learner's
// speed. The leader has it.
type stream struct {
	mu sync.Mutex // protects all below
	// perSecond is how many units the learner can take.
	perSecond float64
	queue     int
	work      roleReport
}

// roleReport is the report of a worker about itself, in the schema of docs/profilings.md.
type roleReport struct {
	Version        int     `json:"version"`
	Role           string  `json:"role"`
	Rank           int     `json:"rank"`
	Samples        int     `json:"samples"`
	BusySeconds    float64 `json:"busy_seconds"`
	BlockedSeconds float64 `json:"blocked_seconds,omitempty"`
	StarvedSeconds float64 `json:"starved_seconds,omitempty"`
	BatchSamples   int     `json:"batch_samples,omitempty"`
	Queue          int     `json:"queue,omitempty"`
	QueueCapacity  int     `json:"queue_capacity,omitempty"`
	MaxStaleness   int     `json:"max_staleness,omitempty"`
}

func newStream(perSecond float64, rank int) *stream {
	return &stream{perSecond: perSecond, work: roleReport{
		Version: 1, Role: taskLearner, Rank: rank, BatchSamples: streamBatch, QueueCapacity: streamCapacity, MaxStaleness: streamStaleness,
	}}
}

// offer adds a unit, and reports whether there was room.
func (s *stream) offer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue >= streamCapacity {
		return false
	}
	s.queue++
	return true
}

// take removes a batch and returns how long the learner works on it; 0 if there is none.
func (s *stream) take() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue < streamBatch {
		return 0
	}
	s.queue -= streamBatch
	return time.Duration(streamBatch / s.perSecond * float64(time.Second))
}

// learn takes batches until ctx ends.
func (s *stream) learn(ctx context.Context) error {
	for {
		begun := time.Now()
		took := s.take()
		if err := pause(ctx, max(took, streamPoll)); err != nil {
			return err
		}
		s.mu.Lock()
		if took > 0 {
			s.work.Samples += streamBatch
			s.work.BusySeconds += time.Since(begun).Seconds()
		} else {
			s.work.StarvedSeconds += time.Since(begun).Seconds()
		}
		s.mu.Unlock()
	}
}

// report returns what the learner did.
func (s *stream) report() roleReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	report := s.work
	report.Queue = s.queue
	return report
}

// speed is how many units the learner can take in a second.
type speed struct {
	PerSecond float64 `json:"perSecond"`
}

// offered is the answer to a unit.
type offered struct {
	Accepted bool `json:"accepted"`
}

// serve adds the routes of the leader: collectors offer units, PUT /speed changes the speed of the learner, and
// GET /stream shows what it did.
func (s *stream) serve(mux *http.ServeMux) {
	handle(mux, "POST /units", func(context.Context, empty) (offered, error) { return offered{s.offer()}, nil })
	handle(mux, "PUT /speed", func(_ context.Context, asked speed) (empty, error) {
		if !(asked.PerSecond > 0) {
			return empty{}, errors.New("perSecond: want more than 0")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.perSecond = asked.PerSecond
		return empty{}, nil
	})
	handle(mux, "GET /stream", func(context.Context, empty) (roleReport, error) { return s.report(), nil })
}

// feeder is a collector of a stream.
type feeder struct {
	*worker
	here   *local
	leader string

	mu   sync.Mutex // protects done
	done roleReport
}

// feed plays units and offers them to the leader until ctx ends.
func (f *feeder) feed(ctx context.Context) error {

	for seed := uint64(f.rank); ; seed++ {
		begun := time.Now()
		if _, err := f.here.play(ctx, unit{Seed: seed, Round: 1}); err != nil {
			return err
		}
		busy := time.Since(begun)
		begun = time.Now()
		for !f.offer(ctx) {
			if err := pause(ctx, streamPoll); err != nil {
				return err
			}
		}
		f.mu.Lock()
		f.done.Samples++
		f.done.BusySeconds += busy.Seconds()
		f.done.BlockedSeconds += time.Since(begun).Seconds()
		f.mu.Unlock()
	}
}

// offer offers a unit to the leader. Only the leader serves that route.
func (f *feeder) offer(ctx context.Context) bool {
	for _, address := range f.others() {
		if f.leader != "" && address != f.leader {
			continue
		}
		answer, err := call[offered](ctx, f.client, http.MethodPost, "http://"+address+"/units", empty{})
		if err == nil {
			f.leader = address
			return answer.Accepted
		}
		f.leader = ""
	}
	return false
}

func (f *feeder) report() roleReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// runStream runs a worker of an asynchronous training, which lasts until it is stopped.
func (w *worker) runStream(ctx context.Context, port int, mux *http.ServeMux, here *local, perSecond float64) error {
	ports := map[int]http.Handler{port: mux}
	switch {
	case w.leads:
		s := newStream(perSecond, w.rank)
		s.serve(mux)
		return w.process.run(ctx, ports, s.learn, w.reportRole(s.report))
	case w.task == taskCollector:
		f := &feeder{worker: w, here: here, done: roleReport{Version: 1, Role: taskCollector, Rank: w.rank}}
		return w.process.run(ctx, ports, f.feed, w.reportRole(f.report))
	}
	return errors.New("a stream has one learner, and collectors")
}

// reportRole returns a work that posts the worker's reports to di-server.
func (w *worker) reportRole(report func() roleReport) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			if err := pause(ctx, roleEvery); err != nil {
				return err
			}
			address := w.profilingsURL()
			if address == "" {
				continue
			}
			if _, err := call[empty](ctx, w.client, http.MethodPost, address, report()); err != nil {
				w.log.Warn("the report was not posted", "error", err)
			}
		}
	}
}

// profilingsURL returns the URL of di-server that takes reports; empty if there is no di-server.
func (w *worker) profilingsURL() string {
	server := w.getenv("DI_SERVER_URL")
	if server == "" {
		return ""
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	return server + "/v2alpha1/job/" + url.PathEscape(w.getenv("DI_JOB_ID")) + "/profilings"
}
