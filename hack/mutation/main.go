// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutation tests the tests of packages. It deletes each statement, and some expressions, in turn. At least
// one test must fail each time. It exits with 1 if more mutants of a group of packages survive than its record
// has, which may only fall. It runs only tests that call the function of a mutant.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
)

type options struct {
	net, group, equivalent, record, only string
	parallel                             int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	flags.StringVar(&o.net, "net", "hack/mutation/net.yaml", "file with the groups of packages")
	flags.StringVar(&o.group, "group", "", "test this group only")
	flags.StringVar(&o.equivalent, "equivalent", "", "file that lists, as this command prints them, the mutants that change nothing")
	flags.StringVar(&o.record, "record", "", "file with the number of survivors of each file; a complete run writes it if no group has more")
	flags.StringVar(&o.only, "only", "", "test only mutants whose name has this text")
	flags.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "tests to run at a time")
	return o, flags.Parse(args)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	groups, err := readNet(o.net, o.group)
	if err != nil {
		return err
	}
	equivalent, err := readEquivalent(o.equivalent)
	if err != nil {
		return err
	}
	var failed []error
	for i := range groups {
		if err := o.test(ctx, &groups[i], equivalent, out); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", groups[i].Name, err))
		}
	}
	return errors.Join(failed...)
}

// test tests the tests of a group.
func (o *options) test(ctx context.Context, of *group, equivalent map[string]bool, out io.Writer) (err error) {
	sources, err := load(ctx, of.Change)
	if err != nil {
		return err
	}
	mutants, notViable, err := collect(sources, o.only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	suites, err := o.prepare(ctx, of, sources, mutants, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d mutants; %d more would not compile\n", of.Name, len(mutants), notViable)
	found := newTally(of.Name, mutants, equivalent, out)
	err = each(ctx, len(mutants), o.parallel, func(ctx context.Context, i int) error {
		survived, err := survives(ctx, suites, mutants[i])
		if err == nil {
			found.report(mutants[i], survived)
		}
		return err
	})
	if err != nil {
		return err
	}
	return found.end(o.record, o.only == "")
}

// collect returns the numbered mutants of packages whose names have a text.
func collect(sources []*source, only string) (mutants []*mutant, notViable int, err error) {
	working, err := os.Getwd()
	if err != nil {
		return nil, 0, err
	}
	for _, s := range sources {
		folder, err := filepath.Rel(working, s.Dir)
		if err != nil {
			return nil, 0, err
		}
		viable, rest, err := s.viable()
		if err != nil {
			return nil, 0, err
		}
		notViable += rest
		for _, m := range viable {
			m.source, m.folder = s, folder
			if strings.Contains(m.name(), only) {
				mutants = append(mutants, m)
			}
		}
	}
	number(mutants)
	return mutants, notViable, nil
}

// prepare builds the tests of a group with the mutants, and surveys them.
func (o *options) prepare(ctx context.Context, of *group, sources []*source, mutants []*mutant, dir string) ([]*suite, error) {
	over, err := overlay(sources, mutants, dir)
	if err != nil {
		return nil, err
	}
	var suites []*suite
	for _, own := range of.suites(sources) {
		built, err := build(ctx, own, over, dir)
		if err != nil {
			return nil, err
		}
		if err := built.survey(ctx, dir, o.parallel); err != nil {
			return nil, err
		}
		suites = append(suites, built)
	}
	return suites, nil
}

// readEquivalent returns the lines of a file that are not comments.
func readEquivalent(path string) (map[string]bool, error) {
	equivalent := map[string]bool{}
	if path == "" {
		return equivalent, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			equivalent[line] = true
		}
	}
	return equivalent, nil
}
