// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestAJobReachesTheTargetByTheCurveOfItsSeed(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"--strict", "--strict --learner-gpus=2", "--strict --learner-gpus=3 --collectors=5", "--learners=2", "--collectors=1",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(c *cluster) {
				out := &output{}
				c.wantReached(out, c.coordinate(out, append(strings.Fields(args), easyTarget)...))
				if got := c.requested("POST /v1alpha1/replicas "); len(got) != 1 {
					c.Errorf("got %q, want one request for replicas", got)
				}
			})
		})
	}
}

func TestReplicasThatCrashOrComeAndGoDoNotChangeTheCurve(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args  string
		react func(c *cluster)
	}{
		"a collector crashes": {"--strict", func(c *cluster) { c.crash("job-collector-1") }},
		"a learner crashes":   {"--strict --learners=2", func(c *cluster) { c.crash("job-learner-4") }},
		"collectors come and go, strict": {"--strict", func(c *cluster) {
			c.dist("--add", "--collectors=3")
			c.dist("--delete", "--collectors=4")
		}},
		"collectors come and go, forgiving": {"", func(c *cluster) {
			c.dist("--add", "--collectors=3")
			c.crash("job-collector-2")
			c.dist("--delete", "--collectors=4")
		}},
		"a collector is replaced by hand": {"", func(c *cluster) { c.dist("--restart=job-collector-1") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(c *cluster) {
				out := &output{at: "round=5 ", react: func() { tc.react(c) }}
				c.wantReached(out, c.coordinate(out, append(strings.Fields(tc.args), easyTarget, "--min-round=500ms")...))
			})
		})
	}
}

func TestAReplicaThatNeverAnswersIsReportedAndReplaced(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		c.absent["job-collector-1"] = true
		out := &output{}
		c.wantReached(out, c.coordinate(out, "--collectors=1", easyTarget))
		want := `POST /v1alpha1/replicas/failed {"namespace":"ns","coordinator":"job-coordinator","collectors":["job-collector-1"],"learners":[]}`
		if got := c.requested("POST /v1alpha1/replicas/failed"); !slices.Equal(got, []string{want}) {
			c.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestANewCoordinatorContinuesFromTheStateOfTheLearners(t *testing.T) {
	t.Parallel()
	for _, gpus := range []string{"--learner-gpus=", "--learner-gpus=2"} {
		inCluster(t, func(c *cluster) {
			first, second := &output{}, &output{}
			c.fault = func(request string) int {
				if strings.HasPrefix(request, http.MethodGet) && first.count() == 5 {
					return http.StatusInternalServerError
				}
				return 0
			}
			if err := c.coordinate(first, easyTarget, gpus, "--strict", "--pause-after=5"); err == nil {
				c.Fatal("the first coordinator did not end")
			}
			c.mu.Lock()
			c.fault = nil
			c.mu.Unlock()
			c.wantReached(second, c.coordinate(second, easyTarget, "--collectors=0", "--learners=0"))
			if !strings.HasPrefix(second.lines[0], "round=5 ") {
				c.Errorf("began with %q, want round 5", second.lines[0])
			}
		})
	}
}

func TestAStrictCoordinatorEndsWithAnyErrorStatus(t *testing.T) {
	t.Parallel()
	for request, after := range map[string]int{http.MethodPost: 0, http.MethodGet: 3} {
		for _, status := range []int{404, 409, 500} {
			inCluster(t, func(c *cluster) {
				c.fault = func(got string) int {
					if strings.HasPrefix(got, request) && len(c.requests) > 2*after {
						return status
					}
					return 0
				}
				err := c.coordinate(io.Discard, "--strict", "--pause-after=1")
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("with status %d", status)) {
					c.Errorf("%s: got %v, want it to end with status %d", request, err, status)
				}
			})
		}
	}
}

func TestAForgivingCoordinatorSurvivesErrors(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		c.fault = func(string) int { return []int{500, 404, 0}[len(c.requests)%3] }
		out := &output{}
		c.wantReached(out, c.coordinate(out, easyTarget))
	})
}

func TestAStrictCoordinatorEndsWhenAVanishedReplicaDoesNotAnswer(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		out := &output{at: "collectors=2 ", react: func() {
			c.crash("job-collector-2")
			c.dist("--delete", "--collectors=1")
		}}
		err := c.coordinate(out, "--strict", "--min-round=1m")
		if err == nil || !strings.Contains(err.Error(), "DELETE /disconnect") {
			c.Errorf("got %v, want it to end with DELETE /disconnect", err)
		}
	})
}

func TestAStrictCoordinatorGivesUpWhenNothingCanBeConnected(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		err := c.coordinate(io.Discard, "--strict", "--collectors=0", "--learners=0")
		if err == nil || !strings.Contains(err.Error(), "could be connected within") {
			c.Errorf("got %v, want it to give up", err)
		}
	})
}

// aggregatorOf returns an aggregator with connected parts by URL.
func aggregatorOf(strict bool, listed []string, parts map[string]identity) *aggregator {
	f := &follower{process: &process{log: slog.New(slog.DiscardHandler)}, strict: strict}
	a := &aggregator{follower: f, listed: listed, parts: newRoster(f, 0, nil, nil)}
	for url, who := range parts {
		a.parts.links[url] = &link{state: connected, who: who}
	}
	return a
}

func TestAStrictAggregatorEndsWhenItsListChanges(t *testing.T) {
	t.Parallel()
	for listed, ends := range map[string]bool{
		"d.ns:1 d.ns:2": false, "d.ns:2 d.ns:1": false, "d.ns:1": true, "d.ns:1 d.ns:2 d.ns:3": true, "d.ns:1 e.ns:1": true, "": true,
	} {
		for _, strict := range []bool{true, false} {
			a := aggregatorOf(strict, []string{"d.ns:1", "d.ns:2"}, map[string]identity{"d.ns:1": {"", 0, 2}, "d.ns:2": {"", 1, 2}})
			if _, err := a.complete(); err != nil {
				t.Fatal(err)
			}
			if err := a.setListed(strings.Fields(listed)); (err != nil) != (ends && strict) {
				t.Errorf("%q, strict %v: got %v", listed, strict, err)
			}
			if _, err := a.complete(); (err != nil) != ends {
				t.Errorf("%q, strict %v: got %v, want it incomplete to be %v", listed, strict, err, ends)
			}
		}
	}
}

func TestAnAggregatorIsReadyWhenEachRankIsConnected(t *testing.T) {
	t.Parallel()
	for second, ready := range map[identity]bool{{"", 1, 2}: true, {"", 0, 2}: false, {"", 1, 3}: false, {"", 2, 2}: false} {
		a := aggregatorOf(true, []string{"d.ns:1", "d.ns:2"}, map[string]identity{"d.ns:1": {"", 0, 2}, "d.ns:2": second})
		if _, err := a.complete(); errors.Is(err, errNotReady) == ready {
			t.Errorf("%+v: got %v, want ready to be %v", second, err, ready)
		}
	}
	a := aggregatorOf(true, []string{"d.ns:1", "d.ns:2"}, map[string]identity{"d.ns:1": {"", 0, 2}})
	if _, err := a.step(t.Context(), stepRequest{}); !errors.Is(err, errNotReady) {
		t.Errorf("with one part: got %v, want %v", err, errNotReady)
	}
}

func TestPodNamesAreTakenFromURLs(t *testing.T) {
	t.Parallel()
	got := podNames([]string{"a.ns:1", "a.ns:2", "b.c.ns:1", "d"})
	if want := []string{"a", "b.c", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
