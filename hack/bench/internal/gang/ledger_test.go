// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// second returns the time n seconds after the first submission.
func second(n int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC)
}

func TestAPartialStartLastsUntilAsManyPodsAreBoundAsAreWanted(t *testing.T) {
	t.Parallel()
	pod := func(job string, uid types.UID, at int, change func(*sight)) *sight {
		s := &sight{job: job, uid: uid, bound: true, at: second(at)}
		if change != nil {
			change(s)
		}
		return s
	}
	runs := func(s *sight) { s.runs = true }
	ended := func(s *sight) { s.ended = true }
	unbound := func(s *sight) { s.bound = false }
	for name, tc := range map[string]struct {
		sights []*sight
		want   placing
		most   int
	}{
		"all are bound before one runs": {
			[]*sight{pod("j", "a", 3, unbound), pod("j", "a", 4, nil), pod("j", "b", 6, nil), pod("j", "a", 7, runs), pod("j", "b", 7, runs)},
			placing{job: "j", waited: 6 * time.Second, spread: 2 * time.Second, after: 6 * time.Second}, 2,
		},
		"one runs before the last is bound": {
			[]*sight{pod("j", "a", 4, nil), pod("j", "a", 5, runs), pod("j", "a", 6, runs), pod("j", "b", 9, nil)},
			placing{job: "j", waited: 9 * time.Second, spread: 5 * time.Second, after: 9 * time.Second, early: 4 * time.Second}, 2,
		},
		"one runs and ends, and the other is never bound": {
			[]*sight{pod("j", "a", 4, runs), pod("j", "a", 6, ended)},
			placing{job: "j", waited: 60 * time.Second, spread: 56 * time.Second, after: 60 * time.Second, early: 56 * time.Second}, 1,
		},
		"nothing is ever bound": {
			[]*sight{pod("j", "a", 4, unbound)},
			placing{job: "j", waited: 60 * time.Second, after: 60 * time.Second}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(2)
			l.submit("j", second(0))
			for _, s := range tc.sights {
				l.see(s)
			}
			if diff := cmp.Diff([]placing{tc.want}, l.placings(second(60)), cmp.AllowUnexported(placing{})); diff != "" {
				t.Errorf("placings (-want +got):\n%s", diff)
			}
			if got := l.mostAtOnce(); got != tc.most {
				t.Errorf("at most %d pods at a time, want %d", got, tc.most)
			}
		})
	}
}

func TestJobsThatWereOvertakenAreCounted(t *testing.T) {
	t.Parallel()
	l := newLedger(1)
	for i, job := range []string{"first", "second", "third"} {
		l.submit(job, second(i))
	}
	for i, job := range []string{"third", "first", "second"} {
		l.see(&sight{job: job, uid: types.UID(job), bound: true, at: second(10 + i)})
		l.see(&sight{job: job, uid: types.UID(job), bound: true, ended: true, at: second(10 + i)})
	}
	if diff := cmp.Diff([]int{0, 1, 1}, overtaken(l.placings(second(60)))); diff != "" {
		t.Errorf("overtaken (-want +got):\n%s", diff)
	}
	if got := l.mostAtOnce(); got != 1 {
		t.Errorf("%d pods at a time, want 1: each had ended before the next", got)
	}
}
