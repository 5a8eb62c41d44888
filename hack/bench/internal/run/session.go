// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package run runs one measurement: it parses its flags, builds the program under measurement, prints the
// limits that are missed, and records the result.
package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// Measurement is one measurement of a load.
type Measurement interface {
	// Name is the first argument of the command.
	Name() string
	// Flags registers the flags of the load with this measurement's defaults.
	Flags(flags *flag.FlagSet)
	// Run prints the figures and returns the limits that they miss.
	Run(ctx context.Context, s *Session) (figures.Limits, error)
}

// Session is a run of a measurement.
type Session struct {
	// Out receives the figures. Progress receives a line for each step.
	Out, Progress io.Writer
	// Folder contains the files and logs of processes.
	Folder string
	// Binary is the path of the di-orchestrator to measure.
	Binary string
	// Data are the figures as the result has them. A measurement may set it.
	Data any

	check         bool
	results, name string
	command       string
}

// Do runs a measurement with the arguments that follow its name.
func Do(ctx context.Context, m Measurement, arguments []string) error {
	s := &Session{Out: os.Stdout, Progress: os.Stderr}
	flags := flag.NewFlagSet("bench "+m.Name(), flag.ContinueOnError)
	flags.BoolVar(&s.check, "check", false, "fail when a limit is missed")
	flags.StringVar(&s.Binary, "binary", "", "the di-orchestrator to measure; built from this checkout when empty")
	flags.StringVar(&s.results, "results", "", "folder for a file of what is printed and the figures, with the command, the machine, the date and the commit; none when empty")
	flags.StringVar(&s.name, "name", "", "name of the result; that of the measurement when empty")
	m.Flags(flags)
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	s.name = cmp.Or(s.name, m.Name())
	words := []string{"out/bin/bench", m.Name()}
	for _, argument := range arguments {
		words = append(words, quoted(argument))
	}
	s.command = strings.Join(words, " ")
	return program.InFolder("bench-"+m.Name()+"-", func(folder string) error {
		s.Folder = folder
		return s.run(ctx, m)
	})
}

func (s *Session) run(ctx context.Context, m Measurement) (err error) {
	if s.Binary == "" {
		s.Say("building di-orchestrator")
		if s.Binary, err = program.Build(ctx, s.Folder); err != nil {
			return err
		}
	}
	var report bytes.Buffer
	s.Out = io.MultiWriter(s.Out, &report)
	busy, err := program.BusyProcessors(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "Before it, others kept %s busy.\n\n", busy)
	missed, err := m.Run(ctx, s)
	for _, limit := range missed {
		fmt.Fprintf(s.Out, "MISSED: %s\n", limit)
	}
	if err != nil {
		return err
	}
	if s.results != "" {
		result, err := results.New(ctx, s.name, s.command, report.String(), s.Data)
		if err != nil {
			return err
		}
		if err := result.Write(s.results); err != nil {
			return err
		}
	}
	if s.check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// Say prints progress.
func (s *Session) Say(format string, arguments ...any) {
	fmt.Fprintf(s.Progress, "# %s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, arguments...)...)
}

// Table returns a table of the report with columns separated by tabs.
func (s *Session) Table(flags uint) *tabwriter.Writer {
	return tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', flags)
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
