// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

func TestFlamesHaveEachFunctionAboveItsCallerAndAsWideAsItsTime(t *testing.T) {
	t.Parallel()
	location := func(names ...string) *profile.Location {
		at := &profile.Location{}
		for _, name := range names {
			at.Line = append(at.Line, profile.Line{Function: &profile.Function{Name: name}})
		}
		return at
	}
	// The first location is the innermost, and in it the first line.
	outer := location("main.main")
	recorded := &profile.Profile{Sample: []*profile.Sample{
		{Location: []*profile.Location{location("a/b.Inlined", "a/b.(*T[...]).Do<x>"), outer}, Value: []int64{3, 300}},
		{Location: []*profile.Location{location("a/b.Rare"), outer}, Value: []int64{1, 100}},
		{Location: []*profile.Location{location("a/b.Never"), outer}, Value: []int64{0, 0}},
	}}
	var drawn bytes.Buffer
	writeFlames(&drawn, mergeStacks(recorded))
	for _, want := range []string{
		`height="68"`,
		`<title>all: 100.0%</title><rect x="0.0" y="51" width="1200.0"`,
		`<title>main.main: 100.0%</title><rect x="0.0" y="34" width="1200.0"`,
		`<title>a/b.(*T[...]).Do&lt;x&gt;: 75.0%</title><rect x="0.0" y="17" width="900.0"`,
		`<title>a/b.Inlined: 75.0%</title><rect x="0.0" y="0" width="900.0"`,
		`<title>a/b.Rare: 25.0%</title><rect x="900.0" y="17" width="300.0"`,
		`>b.Rare</text>`,
	} {
		if !strings.Contains(drawn.String(), want) {
			t.Errorf("the graph lacks %s:\n%s", want, drawn.String())
		}
	}
	if strings.Contains(drawn.String(), "Never") {
		t.Errorf("the graph has a function without time:\n%s", drawn.String())
	}
}
