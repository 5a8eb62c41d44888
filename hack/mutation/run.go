// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// maxMemoryKiB is the maximum address space of a mutant. One that loops may allocate without end.
const maxMemoryKiB = 4 << 20

// runner tests all mutants with one test binary.
type runner struct {
	binary, dir string
	args        []string
}

// build compiles the tests of a package with all mutants into a folder.
func build(ctx context.Context, s *source, mutants []mutant, into string, args []string) (*runner, error) {
	texts := map[string][]byte{"mutant_switch.go": switchFile(s.files[s.GoFiles[0]].Name.Name)}
	for _, m := range mutants {
		if texts[m.file] == nil {
			texts[m.file] = instrument(s.fset, m.file, s.texts[m.file], mutants)
		}
	}
	replace := map[string]string{}
	for name, text := range texts {
		replace[filepath.Join(s.Dir, name)] = filepath.Join(into, name)
		if err := os.WriteFile(filepath.Join(into, name), text, 0o644); err != nil {
			return nil, err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(into, "overlay.json")
	if err := os.WriteFile(overlay, content, 0o644); err != nil {
		return nil, err
	}
	r := &runner{binary: filepath.Join(into, "tests"), dir: s.Dir, args: args}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", r.binary, s.ImportPath)
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the tests with all mutants: %w\n%s", err, output)
	}
	return r, nil
}

// runAll tests the mutants, several in parallel, and reports for each index whether the mutant has
// survived.
func (r *runner) runAll(ctx context.Context, mutants, parallel int, report func(i int, survived bool)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	var reporting sync.Mutex
	next := make(chan int)
	for range parallel {
		workers.Go(func() {
			for i := range next {
				passed, err := r.passes(ctx, i+1)
				if err != nil {
					cancel(err)
					return
				}
				reporting.Lock()
				report(i, passed)
				reporting.Unlock()
			}
		})
	}
	for i := range mutants {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// passes reports whether the tests pass with an active mutant; 0 is none.
func (r *runner) passes(ctx context.Context, active int) (bool, error) {
	limited := fmt.Sprintf(`ulimit -v %d; exec "$@"`, maxMemoryKiB)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, "sh", r.binary}, r.args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), environmentKey+"="+strconv.Itoa(active))
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		// A mutant may fail in any way. Only an interrupted run has no result.
		return false, ctx.Err()
	}
	return err == nil, err
}
