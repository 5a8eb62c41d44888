// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wallclock

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// clockProgram prints its wall clock, and how long a timer takes by the two clocks.
const clockProgram = `package main

import "time"

func main() {
	begin := time.Now()
	<-time.After(time.Millisecond)
	println(begin.Unix(), time.Since(begin).Milliseconds(), time.Now().Round(0).Sub(begin.Round(0)).Milliseconds())
}
`

func TestAVariableMovesTheWallClockAndNotTheMonotonicOne(t *testing.T) {
	folder := t.TempDir()
	flag, err := overlay(t.Context(), folder)
	expect.NoError(t, err)
	source, binary := filepath.Join(folder, "main.go"), filepath.Join(folder, "clock")
	expect.NoError(t, os.WriteFile(source, []byte(clockProgram), 0o600))
	output, err := exec.CommandContext(t.Context(), "go", "build", flag, "-o", binary, source).CombinedOutput()
	if err != nil {
		t.Fatalf("building a program: %v\n%s", err, output)
	}
	for _, offset := range []time.Duration{0, time.Hour, -time.Hour} {
		program := exec.CommandContext(t.Context(), binary)
		program.Env = append(os.Environ(), Environment(offset))
		before := time.Now().Add(offset)
		output, err := program.CombinedOutput()
		expect.NoError(t, err)
		after := time.Now().Add(offset)
		var printed []int64
		for _, field := range strings.Fields(string(output)) {
			number, err := strconv.ParseInt(field, 10, 64)
			expect.NoError(t, err)
			printed = append(printed, number)
		}
		if printed[0] < before.Unix() || printed[0] > after.Unix() {
			t.Errorf("with offset %s the clock is at %s, and must be between %s and %s", offset, time.Unix(printed[0], 0), before, after)
		}
		took := after.Sub(before).Milliseconds()
		if printed[1] > took || printed[2] > took {
			t.Errorf("with offset %s a millisecond took %d ms by the monotonic clock and %d ms by the other; the program took %d ms", offset, printed[1], printed[2], took)
		}
	}
}

func TestAnotherStandardLibraryIsRefused(t *testing.T) {
	if _, err := move([]byte("package time\n\nfunc Now() Time { return Time{} }\n")); err == nil {
		t.Error("a package time without the expected text was changed")
	}
}
