// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// output receives the lines of several replicas. Calls may overlap.
type output interface {
	print(one line) error
	introduce(replica string)
	flush() error
}

// Line is a line of a replica's log, or a piece of a long one.
type Line struct {
	Replica string
	At      time.Time
	Text    string
}

// Request selects logs.
type Request struct {
	// Replicas are short or full names of pods; all without any.
	Replicas []string
	// IsFirst selects the first replica alone: that of rank 0, or the coordinator.
	IsFirst bool
	// Tail is the number of last lines of each replica.
	Tail   int64
	Follow bool
	// Previous reads the containers before their last restart. It excludes Follow.
	Previous bool
	// Most is the maximum number of followed replicas.
	Most int
}

// Sink receives logs. Its calls do not overlap.
type Sink struct {
	Line   func(Line) error
	Notice func(text string)
}

// Read reads the logs of the main containers of a job. The cluster's namespace is the job's.
func Read(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, request *Request, clk clock.Clock, to Sink) error {
	serial := &serialSink{to: to}
	r := &run{
		cluster: found, clock: clk, job: job, wanted: selection{pods: request.Replicas, isFirst: request.IsFirst}, log: corev1.PodLogOptions{TailLines: &request.Tail, Previous: request.Previous},
		most: request.Most, printer: serial, notices: &notices{report: serial.notice, printed: map[string]bool{}},
	}
	if request.Follow {
		return r.follow(ctx)
	}
	return r.once(ctx)
}

// serialSink makes one call after the other.
type serialSink struct {
	mutex sync.Mutex
	to    Sink
}

func (s *serialSink) print(one line) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.to.Line(Line{Replica: one.replica, At: one.at, Text: string(one.text)})
}

func (s *serialSink) notice(text string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.to.Notice(text)
}

func (*serialSink) introduce(string) {}

func (*serialSink) flush() error { return nil }

// TooManyError is a selection of more containers than may be followed.
type TooManyError struct{ Most, Open int }

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("--max-log-requests %d: the logs of %d containers would be followed: allow as many, or choose by --task or --pod",
		e.Most, e.Open)
}
