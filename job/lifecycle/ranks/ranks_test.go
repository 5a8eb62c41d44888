// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestRanksReadAsTheyAreWritten(t *testing.T) {
	tests := map[string]struct {
		text string
		want []int32
	}{
		"none":                     {"", nil},
		"one":                      {"3", []int32{3}},
		"ranges":                   {"0-2,5,7-8", []int32{0, 1, 2, 5, 7, 8}},
		"ranges that overlap":      {"4-6,0-1,5-8,1", []int32{0, 1, 4, 5, 6, 7, 8}},
		"one within another":       {"0-8,2", []int32{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"what is none":             {"a,1-b,-3,3-1,2", []int32{2}},
		"more than anybody counts": {"2-99999999999", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := Read(tc.text)
			for rank := range int32(10) {
				expect.Equal(t, fmt.Sprintf("%q has rank %d", tc.text, rank), slices.Contains(tc.want, rank), set.Has(rank))
			}
			if set.Has(math.MaxInt32) {
				t.Errorf("%q has the highest rank", tc.text)
			}
		})
	}
}

func TestRecordedRanksAreReadAsTheyWereWritten(t *testing.T) {
	for text, ranks := range map[string][]int32{
		"0": {0}, "1-2,4": {1, 2, 4}, "4,3": {4, 3}, "3,0-1": {3, 0, 1},
	} {
		expect.Equal(t, fmt.Sprintf("%v is written as", ranks), text, FormatRun(ranks))
		expect.Equal(t, fmt.Sprintf("%q", text), ranks, ReadRun(text))
	}
	for _, text := range []string{"", "x", "3-1", "-1", "0-99999999", "1,,2"} {
		if got := ReadRun(text); got != nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func FuzzRecordedRanks(f *testing.F) {
	for _, text := range []string{"", "0", "0-3,7", "7,1-2", "0-2147483647", "-1", "99999-100000", "0-99999,0-99999", "3-1,,5-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		run := ReadRun(text)
		if len(run) > limits.Replicas || slices.ContainsFunc(run, func(rank int32) bool { return rank < 0 || rank >= limits.Replicas }) {
			t.Fatalf("read %d ranks of %q", len(run), text)
		}
		if again := ReadRun(FormatRun(run)); !slices.Equal(again, run) {
			t.Errorf("%q reads as %v, and what is written of that as %v", text, run, again)
		}
		set := Read(text)
		last := int32(-1)
		for _, each := range set.ranges {
			if each.first <= last || each.last < each.first || each.last >= limits.Replicas || !set.Has(each.first) || !set.Has(each.last) {
				t.Fatalf("%q has the ranges %v", text, set.ranges)
			}
			last = each.last
		}
	})
}
