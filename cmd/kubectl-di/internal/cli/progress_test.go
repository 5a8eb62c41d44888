// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func report(p *Progress) {
	p.State("one", "begun")
	p.State("one", "begun")
	p.Say("something happened")
	p.State("two", "begun")
	p.State("one", "ended")
	p.Say("more happened")
	p.End()
}

func TestProgressIsReported(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		width, height int
		want          string
	}{
		"in lines where it is piped": {0, 0, "one: begun\nsomething happened\ntwo: begun\none: ended\nmore happened\n"},
		"in a line for each subject that is written over on a terminal": {80, 24, "\r\x1b[Jone: begun" +
			"\r\x1b[Jsomething happened\none: begun" + "\r\x1b[Jone: begun\ntwo: begun" + "\x1b[A\r\x1b[Jone: ended\ntwo: begun" +
			"\x1b[A\r\x1b[Jmore happened\none: ended\ntwo: begun" + "\x1b[A\r\x1b[Jone: ended\ntwo: begun\n"},
		"in lines that fit a small one": {9, 2, "\r\x1b[Jone: ..." +
			"\r\x1b[Jsomething happened\none: ..." + "\r\x1b[Jtwo: ..." + "\r\x1b[Jtwo: ..." +
			"\r\x1b[Jmore happened\ntwo: ..." + "\r\x1b[Jone: ended\ntwo: begun\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			report(&Progress{out: &out, width: tc.width, height: tc.height})
			if out.String() != tc.want {
				t.Errorf("got %q, want %q", out.String(), tc.want)
			}
		})
	}
}

func TestWhatIsNoTerminalHasNoWidth(t *testing.T) {
	t.Parallel()
	if width := Width(&bytes.Buffer{}); width != 0 {
		t.Errorf("got %d", width)
	}
	answers := answering(0)
	if reportSlow(&bytes.Buffer{}, answers) == nil {
		t.Error("nothing is called")
	}
}

// answering answers after a while.
type answering time.Duration

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	<-time.After(time.Duration(a))
	return &http.Response{StatusCode: http.StatusTeapot}, nil
}

func TestASlowAnswerIsReportedOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes time.Duration
		want  string
	}{
		"soon": {slow - 1, ""},
		"late": {slow + 1, "kubectl-di: waiting for an answer of example.com\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				reporter := &slowReporter{out: &out, next: answering(tc.takes)}
				for range 2 {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/apis", http.NoBody)
					expect.NoError(t, err)
					response, err := reporter.RoundTrip(request) //nolint:bodyclose // It has none.
					if err != nil || response.StatusCode != http.StatusTeapot {
						t.Fatalf("got %v, %v", response, err)
					}
				}
				synctest.Wait()
				if out.String() != tc.want {
					t.Errorf("got %q, want %q", out.String(), tc.want)
				}
			})
		})
	}
}
