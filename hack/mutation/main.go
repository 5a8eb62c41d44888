// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutation tests the tests of a package. It deletes each statement, and some expressions,
// of some files in turn. At least one test must fail each time. It exits with 1 if the tests pass
// with a mutant that is not in the list of equivalent mutants.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

type options struct {
	pkg, files, equivalent, only string
	parallel                     int
	testArgs                     []string
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
	flags.StringVar(&o.pkg, "package", ".", "package whose tests are tested")
	flags.StringVar(&o.files, "files", "", "files to change, by name, parted by commas")
	flags.StringVar(&o.equivalent, "equivalent", "", "file that lists, as this command prints them, the mutants that change nothing")
	flags.StringVar(&o.only, "only", "", "test only mutants whose name has this text")
	flags.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "mutants to test at a time")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.files == "" {
		return nil, errors.New("-files: required")
	}
	o.testArgs = append([]string{"-test.failfast"}, flags.Args()...)
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	equivalent, err := readEquivalent(o.equivalent)
	if err != nil {
		return err
	}
	loaded, err := load(ctx, o.pkg)
	if err != nil {
		return err
	}
	var mutants []mutant
	notViable := 0
	for name := range strings.SplitSeq(o.files, ",") {
		viable, rest, err := loaded.mutants(name)
		if err != nil {
			return err
		}
		mutants, notViable = append(mutants, chosen(viable, o.only)...), notViable+rest
	}
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, err := build(ctx, loaded, mutants, dir, o.testArgs)
	if err != nil {
		return err
	}
	began := time.Now()
	if passed, err := r.passes(ctx, 0); err != nil || !passed {
		return errors.Join(errors.New("the tests do not pass on the code as it is"), err)
	}
	// The timeout detects a mutant that loops forever.
	r.args = append(r.args, fmt.Sprintf("-test.timeout=%s", 5*time.Second+10*time.Since(began)))
	fmt.Fprintf(out, "%d mutants; %d more would not compile\n", len(mutants), notViable)
	tally := &tally{out: out, mutants: mutants, equivalent: equivalent, used: map[string]bool{}, began: time.Now()}
	if err := r.runAll(ctx, len(mutants), o.parallel, tally.report); err != nil {
		return err
	}
	return tally.end(o.only == "")
}

func chosen(mutants []mutant, only string) []mutant {
	var found []mutant
	for _, m := range mutants {
		if strings.Contains(m.name(), only) {
			found = append(found, m)
		}
	}
	return found
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

// tally counts outcomes and prints those that need attention.
type tally struct {
	out        io.Writer
	mutants    []mutant
	equivalent map[string]bool
	// used are the equivalent mutants that have survived.
	used        map[string]bool
	done, lived int
	began       time.Time
}

// report counts a mutant. Every fiftieth call prints the progress of the run.
func (t *tally) report(i int, survived bool) {
	t.done++
	m := t.mutants[i]
	switch {
	case survived && t.equivalent[m.name()]:
		t.used[m.name()] = true
	case survived:
		t.lived++
		fmt.Fprintf(t.out, "%s:%d: survived: %s\n", m.file, m.line, m.name())
	}
	if t.done%50 == 0 {
		passed := time.Since(t.began)
		left := passed / time.Duration(t.done) * time.Duration(len(t.mutants)-t.done)
		fmt.Fprintf(t.out, "%d of %d mutants, %s left\n", t.done, len(t.mutants), left.Round(time.Second))
	}
}

// end prints the totals. It returns an error if a mutant has survived. After a complete run it also
// does so if the list of equivalent mutants contains one that has not survived.
func (t *tally) end(complete bool) error {
	fmt.Fprintf(t.out, "%d mutants: %d killed, %d survived, %d change nothing; %s\n", len(t.mutants),
		t.done-t.lived-len(t.used), t.lived, len(t.used), time.Since(t.began).Round(time.Second))
	if t.lived > 0 {
		return fmt.Errorf("no test notices %d of the changes above", t.lived)
	}
	for name := range t.equivalent {
		if complete && !t.used[name] {
			return fmt.Errorf("listed as one that changes nothing, but none that survives: %s", name)
		}
	}
	return nil
}
