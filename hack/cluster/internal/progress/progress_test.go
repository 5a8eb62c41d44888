// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTheEstimate(t *testing.T) {
	t.Parallel()
	minute := time.Minute
	for name, tc := range map[string]struct{ total, done, elapsed, want time.Duration }{
		"is the expectation at the start":              {total: 3 * minute, want: 3 * minute},
		"shrinks with the work done":                   {total: minute, done: 20 * time.Second, elapsed: 20 * time.Second, want: 40 * time.Second},
		"moves a third of the way after a slow minute": {total: 4 * minute, done: minute, elapsed: 2 * minute, want: 4 * minute},
		"moves most of the way after many minutes":     {total: 9 * minute, done: 8 * minute, elapsed: 18 * minute, want: 2 * minute},
		"grows slowly while a step runs late":          {total: 3 * minute, elapsed: minute, want: 4*minute + 30*time.Second},
		"bounds the pace":                              {total: 2 * minute, done: minute, elapsed: 24 * time.Hour, want: 10 * minute},
		"is nothing at the end":                        {total: minute, done: minute, elapsed: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Left(tc.total, tc.done, tc.elapsed); got != tc.want {
				t.Errorf("left %s, want %s", got, tc.want)
			}
		})
	}
}

func TestStepsRunInOrderAndStopAtTheFirstError(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var ran []string
	step := func(name string, done bool, err error) Step {
		return Step{Name: name, Skip: done, Expected: time.Hour, Run: func(context.Context) error {
			ran = append(ran, name)
			return err
		}}
	}
	broken := errors.New("broken")
	err := NewRunner(&out, time.Hour).Run(t.Context(), []Step{
		step("one", false, nil), step("two", true, nil), step("three", false, broken), step("four", false, nil),
	}, time.Hour)
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "three: ") {
		t.Errorf("got error %v, want one of step three", err)
	}
	if got := strings.Join(ran, " "); got != "one three" {
		t.Errorf("ran %q, want one and three", got)
	}
	// The estimate excludes completed steps and includes the following ones.
	for _, want := range []string{"steps: 4, about 4h0m0s left", "[1/4] one: done", "[2/4] two: is there"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report %q lacks %q", out.String(), want)
		}
	}
}

func TestALongStepIsReportedWhileItRuns(t *testing.T) {
	t.Parallel()
	reports := make(chan string)
	runner := NewRunner(writerFunc(func(p []byte) (int, error) {
		reports <- string(p)
		return len(p), nil
	}), time.Millisecond)
	release := make(chan struct{})
	finished := make(chan error, 1)
	go func() {
		finished <- runner.Run(t.Context(), []Step{{Name: "long", Expected: 4 * time.Second, Share: func() float64 { return 0.5 }, Run: func(context.Context) error {
			<-release
			return nil
		}}}, 0)
	}()
	<-reports // The estimate at the start.
	if report := <-reports; !strings.Contains(report, "running for") || !strings.Contains(report, "about 2s left") {
		t.Errorf("report %q, want one of a running step with half of the work left", report)
	}
	close(release)
	for {
		select {
		case <-reports:
		case err := <-finished:
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
