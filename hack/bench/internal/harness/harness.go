// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness runs the scenarios of the benchmark. It parses flags, builds the program under
// measurement, starts a control plane, runs the sections and prints the limits that they miss.
package harness

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// Bench is shared by the sections of a scenario.
type Bench struct {
	// Out receives the tables. Progress receives a line for each step.
	Out, Progress io.Writer
	// Folder contains the files and logs of processes.
	Folder string
	// Binary is the path of the di-orchestrator to measure.
	Binary string
	// Data are the figures of the section that runs, as its result has them. A section may set it.
	Data any

	only    string
	check   bool
	role    string
	results string
	// scenario and arguments are those of the command line.
	scenario  string
	arguments []string
}

// Scenario is a group of sections with flags of its own.
type Scenario struct {
	Name string
	// Bench is set before a section runs.
	Bench *Bench
	// Flags registers flags in addition to -only, -check, -binary and -results; may be nil.
	Flags func(*flag.FlagSet)
	// Prepare runs before the first section; may be nil.
	Prepare func(ctx context.Context) error
	// Sections run in this order.
	Sections []Section
	// Roles are further processes of the scenario that this program can run as.
	Roles map[string]func(ctx context.Context, in io.Reader, out io.Writer) error
}

// Section is one table of the report.
type Section struct {
	Name string
	// Run prints the table and returns the limits that it misses.
	Run func(ctx context.Context) (figures.Limits, error)
}

// Run runs the scenario with the arguments that follow its name.
func (s *Scenario) Run(ctx context.Context, arguments []string) error {
	b := s.Bench
	b.Out, b.Progress = os.Stdout, os.Stderr
	b.scenario, b.arguments = s.Name, arguments
	names := make([]string, 0, len(s.Sections))
	for _, section := range s.Sections {
		names = append(names, section.Name)
	}
	flags := flag.NewFlagSet("bench "+s.Name, flag.ContinueOnError)
	flags.StringVar(&b.only, "only", "", "comma-separated names of the sections to run ("+strings.Join(names, ", ")+"); all when empty")
	flags.BoolVar(&b.check, "check", false, "fail when a section misses a limit")
	flags.StringVar(&b.Binary, "binary", "", "the di-orchestrator to measure; built from this checkout when empty")
	flags.StringVar(&b.results, "results", "", "folder for a file of each section: what it prints and its figures, with the command, the machine, the date and the commit; none when empty")
	flags.StringVar(&b.role, "role", "", "run as a further process of the scenario")
	if s.Flags != nil {
		s.Flags(flags)
	}
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if b.role != "" {
		role, known := s.Roles[b.role]
		if !known {
			return fmt.Errorf("-role %s: scenario %s has no such role", b.role, s.Name)
		}
		return role(ctx, os.Stdin, os.Stdout)
	}
	return program.InFolder("bench-"+s.Name+"-", func(folder string) error {
		b.Folder = folder
		return s.runSections(ctx)
	})
}

// runSections runs the selected sections. A failed section does not stop the others.
func (s *Scenario) runSections(ctx context.Context) error {
	wanted, err := wantedOf(s.Sections, s.Bench.only)
	if err != nil {
		return err
	}
	if s.Prepare != nil {
		if err := s.Prepare(ctx); err != nil {
			return err
		}
	}
	var failed error
	for _, section := range wanted {
		if err := s.Bench.runSection(ctx, section); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", section.Name, err))
		}
	}
	return failed
}

func (b *Bench) runSection(ctx context.Context, section Section) error {
	fmt.Fprintf(b.Out, "\n## %s\n\n", section.Name)
	var report bytes.Buffer
	printed := b.Out
	b.Out, b.Data = io.MultiWriter(printed, &report), nil
	defer func() { b.Out = printed }()
	missed, err := b.measure(ctx, section)
	if err != nil {
		return err
	}
	if b.results != "" {
		if err := b.record(ctx, section.Name, report.String()); err != nil {
			return err
		}
	}
	if b.check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// measure runs a section and prints the limits that it misses.
func (b *Bench) measure(ctx context.Context, section Section) (figures.Limits, error) {
	busy, err := program.BusyProcessors(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b.Out, "Before it, others kept %s busy.\n\n", busy)
	missed, err := section.Run(ctx)
	for _, limit := range missed {
		fmt.Fprintf(b.Out, "MISSED: %s\n", limit)
	}
	return missed, err
}

// record writes the result of a section.
func (b *Bench) record(ctx context.Context, section, report string) error {
	words := []string{"go run ./hack/bench", b.scenario}
	for _, argument := range b.arguments {
		words = append(words, quoted(argument))
	}
	result, err := results.New(ctx, b.scenario+"-"+section, strings.Join(words, " "), report, b.Data)
	if err != nil {
		return err
	}
	return result.Write(b.results)
}

// wantedOf returns the sections with the given names, in the order of sections.
func wantedOf(sections []Section, only string) ([]Section, error) {
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	if len(names) == 0 {
		return sections, nil
	}
	var wanted []Section
	for _, section := range sections {
		if slices.Contains(names, section.Name) {
			wanted = append(wanted, section)
		}
	}
	if len(wanted) != len(names) {
		return nil, fmt.Errorf("-only %s: not all of these are sections", only)
	}
	return wanted, nil
}

// Build builds di-orchestrator, unless -binary names one.
func (b *Bench) Build(ctx context.Context) (err error) {
	if b.Binary == "" {
		b.Say("building di-orchestrator")
		b.Binary, err = program.Build(ctx, b.Folder)
	}
	return err
}

// Say prints progress.
func (b *Bench) Say(format string, arguments ...any) {
	fmt.Fprintf(b.Progress, "# %s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, arguments...)...)
}

// Table returns a table of the report with columns separated by tabs.
func (b *Bench) Table(flags uint) *tabwriter.Writer {
	return tabwriter.NewWriter(b.Out, 0, 0, 2, ' ', flags)
}

// Close calls end when a function returns, and joins its error to the function's error.
func Close(err *error, end func() error) {
	*err = errors.Join(*err, end())
}

// quoted returns an argument as a shell needs it.
func quoted(argument string) string {
	if argument != "" && !strings.ContainsAny(argument, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
}
