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
	"strings"
	"sync"
	"time"
)

// maxMemoryKiB is the maximum address space of a mutant. One that loops may allocate without end.
const maxMemoryKiB = 4 << 20

// quick is the duration of a test that runs before all slower ones.
const quick = time.Second

// suite are the tests of a package, with all mutants in one binary.
type suite struct {
	pkg         string
	binary, dir string
	args        []string
	tests       []*test
}

// test is a test of a suite.
type test struct {
	name string
	took time.Duration
	// reached are the functions that the test calls, by the number of their first mutant.
	reached map[int]bool
}

// overlay writes the instrumented files, and returns the path of the overlay that makes the compiler read them.
func overlay(sources []*source, mutants []*mutant, into string) (string, error) {
	replace := map[string]string{}
	for i, s := range sources {
		own := map[string]bool{}
		for _, m := range mutants {
			if m.source == s {
				own[m.file] = true
			}
		}
		if len(own) == 0 {
			continue
		}
		texts := map[string][]byte{switchName: switchFile(s.files[s.GoFiles[0]].Name.Name)}
		for name := range own {
			texts[name], _ = instrument(s.fset, name, s.texts[name], s.of(mutants))
		}
		for name, text := range texts {
			at := filepath.Join(into, fmt.Sprintf("%d-%s", i, name))
			replace[filepath.Join(s.Dir, name)] = at
			if err := os.WriteFile(at, text, 0o600); err != nil {
				return "", err
			}
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(into, "overlay.json")
	return path, os.WriteFile(path, content, 0o600)
}

// build compiles the tests of a package.
func build(ctx context.Context, own tests, overlay, into string) (*suite, error) {
	listed, err := list(ctx, []string{own.Package})
	if err != nil {
		return nil, err
	}
	pkg := listed[len(listed)-1]
	s := &suite{pkg: own.Package, binary: filepath.Join(into, strings.ReplaceAll(pkg.ImportPath, "/", "-")), dir: pkg.Dir, args: own.Args}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, pkg.ImportPath)
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the tests of %s with all mutants: %w\n%s", own.Package, err, output)
	}
	return s, nil
}

// survey runs each test of the suite alone without a mutant, to learn how long it takes and what it calls.
func (s *suite) survey(ctx context.Context, into string, parallel int) error {
	list := exec.CommandContext(ctx, s.binary, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = s.dir
	output, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the tests of %s: %w", s.pkg, err)
	}
	for name := range strings.FieldsSeq(string(output)) {
		s.tests = append(s.tests, &test{name: name, reached: map[int]bool{}})
	}
	return each(ctx, len(s.tests), parallel, func(ctx context.Context, i int) error {
		one, began := s.tests[i], time.Now()
		path := filepath.Join(into, fmt.Sprintf("%s-%d.reached", filepath.Base(s.binary), i))
		output, err := s.run(ctx, []*test{one}, 0, reachedKey+"="+path)
		if err != nil {
			return fmt.Errorf("%s of %s does not pass on the code as it is: %w\n%s", one.name, s.pkg, err, output)
		}
		one.took = time.Since(began)
		return one.readReached(path)
	})
}

func (t *test) readReached(path string) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.FieldsSeq(string(content)) {
		number, err := strconv.Atoi(line)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		t.reached[number] = true
	}
	return nil
}

// run runs tests with an active mutant; 0 is none.
func (s *suite) run(ctx context.Context, chosen []*test, active int, environment ...string) ([]byte, error) {
	names, took := make([]string, len(chosen)), time.Duration(0)
	for i, one := range chosen {
		names[i], took = one.name, took+one.took
	}
	args := append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, maxMemoryKiB), "sh", s.binary, "-test.failfast", "-test.run=^(" + strings.Join(names, "|") + ")$"}, s.args...)
	if active > 0 {
		// The timeout detects a mutant that loops forever.
		args = append(args, fmt.Sprintf("-test.timeout=%s", 5*time.Second+10*took))
	}
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), environment...), activeKey+"="+strconv.Itoa(active))
	return cmd.CombinedOutput()
}

// survives reports whether all tests that reach the function of a mutant pass with it.
func survives(ctx context.Context, suites []*suite, m *mutant) (bool, error) {
	for _, isQuick := range []bool{true, false} {
		for _, s := range suites {
			var chosen []*test
			for _, one := range s.tests {
				if one.reached[m.leader] && (one.took <= quick) == isQuick {
					chosen = append(chosen, one)
				}
			}
			if len(chosen) == 0 {
				continue
			}
			_, err := s.run(ctx, chosen, m.number)
			if exit := new(exec.ExitError); errors.As(err, &exit) {
				// A mutant may fail in any way. Only an interrupted run has no result.
				return false, ctx.Err()
			}
			if err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// each calls a function for each index, several in parallel, until one fails.
func each(ctx context.Context, count, parallel int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	next := make(chan int)
	for range parallel {
		workers.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range count {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
