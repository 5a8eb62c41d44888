// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wallclock builds programs whose wall clock an environment variable moves, as on a machine whose clock is
// wrong. Timers and the monotonic clock stay right. The programs themselves know nothing of it: the standard library
// is overlaid.
package wallclock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/program"
)

// variable has the offset of the wall clock in seconds.
const variable = "DI_TEST_WALL_CLOCK_OFFSET"

// Environment returns the environment of a program whose wall clock is ahead by an offset in whole seconds. It is
// behind if the offset is negative.
func Environment(offset time.Duration) string {
	return fmt.Sprintf("%s=%d", variable, int64(offset/time.Second))
}

// Offset returns how far a clock is ahead, up to a limit ahead or behind. It is the limit in half of the cases.
func Offset(random *rand.Rand, most time.Duration) time.Duration {
	share := 2*random.Float64() - 1
	switch random.IntN(4) {
	case 0:
		share = -1
	case 1:
		share = 1
	}
	return time.Duration(share * float64(most)).Truncate(time.Second)
}

// Build builds di-orchestrator from a checkout into a folder, so that Environment moves its wall clock.
func Build(ctx context.Context, checkout, folder string) (string, error) {
	flag, err := overlay(ctx, folder)
	if err != nil {
		return "", err
	}
	return program.BuildCommandOf(ctx, checkout, folder, "di-orchestrator", flag)
}

// overlay writes an overlay of the toolchain's standard library into a folder, and returns the flag of `go build`.
func overlay(ctx context.Context, folder string) (string, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOROOT")
	root, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("finding the standard library: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(path) //nolint:gosec // it is the toolchain's
	if err != nil {
		return "", fmt.Errorf("reading the standard library: %w", err)
	}
	moved, err := move(source)
	if err != nil {
		return "", fmt.Errorf("changing %s: %w", path, err)
	}
	changed, replaced := filepath.Join(folder, "time.go"), filepath.Join(folder, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", fmt.Errorf("encoding the overlay: %w", err)
	}
	for name, content := range map[string][]byte{changed: moved, replaced: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", fmt.Errorf("writing the overlay: %w", err)
		}
	}
	return "-overlay=" + replaced, nil
}

// change is a text of package time and what replaces it.
type change struct{ from, to string }

func changes() []change {
	return []change{
		{"\t\"math/bits\"\n", "\t\"math/bits\"\n\t\"syscall\"\n"},
		{
			"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
			"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += wallOffset\n",
		},
		{"// Now returns the current local time.\n", `// wallOffset is how many seconds the wall clock is ahead.
var wallOffset = func() int64 {
	text, has := syscall.Getenv("` + variable + `")
	seconds, err := atoi(text)
	if has && err != nil {
		panic("` + variable + ` is no number of seconds")
	}
	return int64(seconds)
}()

// Now returns the current local time.
`},
	}
}

// move changes the source of package time so that the variable moves the wall clock.
func move(source []byte) ([]byte, error) {
	for _, each := range changes() {
		if count := bytes.Count(source, []byte(each.from)); count != 1 {
			return nil, fmt.Errorf("it has %d times %q, and must have it once: adapt this package to the toolchain", count, each.from)
		}
		source = bytes.Replace(source, []byte(each.from), []byte(each.to), 1)
	}
	return source, nil
}
