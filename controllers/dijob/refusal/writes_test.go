// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podsToWrite returns the given number of pods.
func podsToWrite(count int) []client.Object {
	pods := make([]client.Object, count)
	for i := range pods {
		pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), UID: types.UID(strconv.Itoa(i))}}
	}
	return pods
}

func TestRefusedWritesTakeTurns(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods := podsToWrite(3 * Parallelism)
	tried := map[int]int{}
	total := 0
	var known Writes
	for end := now.Add(24 * time.Hour); now.Before(end); now = now.Add(5 * time.Second) {
		try, budget := known.Plan(pods, NoContent, now)
		for _, i := range try[:max(0, min(budget, len(try)))] {
			known = known.Refuse(pods[i], "", now)
			tried[i]++
			total++
		}
		known = known.Expire(now)
		if len(known) > Parallelism {
			t.Fatalf("%d writes are remembered", len(known))
		}
	}
	if len(tried) != len(pods) {
		t.Errorf("%d of %d writes are tried in a day", len(tried), len(pods))
	}
	if most := Parallelism * (24*12 + 7); total > most {
		t.Errorf("%d tries in a day, want at most %d", total, most)
	}
}

func TestARefusedWriteWaitsUnlessItIsAnother(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods := podsToWrite(2)
	known := Writes(nil)
	for range 4 {
		known = known.Refuse(pods[0], "a", now)
	}
	tests := map[string]struct {
		content string
		after   time.Duration
		want    []int
	}{
		"of the same content":                 {"a", 39 * time.Second, []int{1}},
		"of the same content, when it is due": {"a", 40 * time.Second, []int{1, 0}},
		"of another content":                  {"b", 5 * time.Second, []int{1, 0}},
		"of another content, at once":         {"b", 4 * time.Second, []int{1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try, _ := known.Plan(pods, func(client.Object) string { return tc.content }, now.Add(tc.after))
			if !slices.Equal(try, tc.want) {
				t.Errorf("tries %v, want %v", try, tc.want)
			}
		})
	}
}

func TestNoMoreIsTriedThanMayBeRefused(t *testing.T) {
	t.Parallel()
	numbers := make([]int, 1000)
	for i := range numbers {
		numbers[i] = i
	}
	for _, budget := range []int{-1, 0, 1, 5, Parallelism} {
		var all, allowed atomic.Int32
		Try(budget, numbers, func(int) bool { all.Add(1); return true })
		if got := int(all.Load()); got != max(budget, 0) {
			t.Errorf("%d are tried where all are refused and %d may be", got, budget)
		}
		Try(budget, numbers, func(int) bool { allowed.Add(1); return false })
		if got := int(allowed.Load()); budget > 0 && got != len(numbers) {
			t.Errorf("%d of %d are tried where none is refused and %d may be", got, len(numbers), budget)
		}
	}
}
