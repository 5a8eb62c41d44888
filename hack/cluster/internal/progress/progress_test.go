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
	for name, tc := range map[string]struct {
		works   []Work
		running time.Duration
		want    time.Duration
	}{
		"is the expectation at the start":                {works: []Work{{Expected: minute}, {Expected: 2 * minute}}, want: 3 * minute},
		"leaves out what is there":                       {works: []Work{{Expected: minute, Skipped: true}, {Expected: 2 * minute}}, want: 2 * minute},
		"shrinks while a step runs":                      {works: []Work{{Expected: minute}}, running: 20 * time.Second, want: 40 * time.Second},
		"is nothing for the last step when it runs late": {works: []Work{{Expected: minute}}, running: time.Hour},
		"moves a third of the way after the first steps": {works: []Work{{Expected: minute, Took: 2 * minute, Done: true}, {Expected: 3 * minute}}, want: 4 * minute},
		"moves most of the way after many steps":         {works: []Work{{Expected: 8 * minute, Took: 18 * minute, Done: true}, {Expected: minute}}, want: 2 * minute},
		"grows slowly while a step runs late":            {works: []Work{{Expected: minute}, {Expected: 3 * minute}}, running: 2 * minute, want: 4 * minute},
		"does not jump after a short step":               {works: []Work{{Expected: 0, Took: time.Minute, Done: true}, {Expected: 2 * minute}}, want: 3 * minute},
		"bounds the pace":                                {works: []Work{{Expected: minute, Took: 24 * time.Hour, Done: true}, {Expected: minute}}, want: 10 * minute},
		"does not count what was there towards the pace": {works: []Work{{Expected: time.Hour, Skipped: true}, {Expected: minute}}, want: minute},
		"is nothing at the end":                          {works: []Work{{Expected: minute, Took: minute, Done: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Left(tc.works, tc.running); got != tc.want {
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
		return Step{Name: name, Done: func() bool { return done }, Run: func(context.Context) error {
			ran = append(ran, name)
			return err
		}}
	}
	broken := errors.New("broken")
	err := NewRunner(&out, time.Hour).Run(t.Context(), []Step{
		step("one", false, nil), step("two", true, nil), step("three", false, broken), step("four", false, nil),
	})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "three: ") {
		t.Errorf("got error %v, want one of step three", err)
	}
	if got := strings.Join(ran, " "); got != "one three" {
		t.Errorf("ran %q, want one and three", got)
	}
	for _, want := range []string{"[1/4] one: done", "[2/4] two: is there"} {
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
		finished <- runner.Run(t.Context(), []Step{{Name: "long", Run: func(context.Context) error {
			<-release
			return nil
		}}})
	}()
	if report := <-reports; !strings.Contains(report, "running for") {
		t.Errorf("report %q, want one of a running step", report)
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
