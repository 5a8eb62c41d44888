// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top shows a job and its changes, live on a terminal. It must
// change nothing.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
)

const long = `Show a job, live: its phase and what keeps it from getting on, its replicas by
task and by node, the numbers that it reports of itself, and the latest events.

Without a terminal, and with --once or --output, it prints this once. With
--watch and without a terminal it prints a line on each change, until the job
has finished.`

const example = `  # Look at job cartpole; ? shows the keys
  kubectl di top cartpole

  # Which of its replicas are not ready
  kubectl di top cartpole -o json | jq '.replicas[] | select(.ready | not)'`

// options are the flags of the command.
type options struct {
	flags   *cluster.Flags
	streams genericiooptions.IOStreams
	clock   clock.Clock
	once    bool
	watch   bool
	output  *printing.Data
}

// NewCommand returns the command that shows a job live.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, clock: clock.RealClock{}, output: printing.NewData(formatName)}
	help := arguments.Help{Use: "top JOB", Short: "Show a job and its replicas, live", Long: long, Example: example}
	command := arguments.NewJobCommand(flags, help, func(command *cobra.Command, job string) error { return o.run(command.Context(), job) })
	bound := command.Flags()
	bound.BoolVar(&o.once, "once", false, "Print it once")
	bound.BoolVarP(&o.watch, "watch", "w", false, "Without a terminal: print a line on each change")
	o.output.Bind(command, "print it once")
	return command
}

func (o *options) run(ctx context.Context, name string) error {
	if err := o.check(); err != nil {
		return err
	}
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	job, err := found.JobOrWhich(ctx, name)
	if err != nil {
		return err
	}
	feed := newFeed(found, o.clock, job)
	_, _, isTerminal := o.terminal()
	switch {
	case o.once || !o.output.IsText() || !isTerminal && !o.watch:
		return o.printOnce(ctx, feed)
	case !isTerminal:
		return o.printChanges(ctx, feed)
	}
	return o.show(ctx, feed)
}

func (o *options) check() error {
	switch {
	case o.watch && o.once:
		return exit.Usagef("--watch: --once is given too: leave one of them out")
	case o.watch && !o.output.IsText():
		return exit.Usagef("--watch: prints lines, not -o %s: leave one of them out", o.output.Form())
	}
	return o.output.Check()
}

// terminal returns the terminal that the command runs on, if it does.
func (o *options) terminal() (in, out *os.File, is bool) {
	in, isIn := o.streams.In.(*os.File)
	out, isOut := o.streams.Out.(*os.File)
	return in, out, isIn && isOut && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"
}

// printOnce prints what there is.
func (o *options) printOnce(ctx context.Context, feed *feed) error {
	w := newWorld(feed.job)
	var failed error
	feed.run(ctx, func(next batch) bool {
		if failed = next.failed; failed != nil {
			return false
		}
		if next.lack != "" {
			w.lack(next.lack)
			return true
		}
		for _, change := range next.changes {
			w.apply(change)
		}
		s := summarize(w)
		failed = print(o.streams.Out, &s, &w.history, o.output, o.clock.Now())
		return false
	})
	return failed
}

// printChanges prints a line on each change until the job has finished.
func (o *options) printChanges(ctx context.Context, feed *feed) error {
	w := newWorld(feed.job)
	var failed error
	last, isBroken := "", false
	feed.run(ctx, func(next batch) bool {
		if failed = next.failed; failed != nil {
			return false
		}
		if next.lack != "" {
			w.lack(next.lack)
			fmt.Fprintln(o.streams.ErrOut, "kubectl-di:", next.lack)
		}
		if o.tellBroken(next.broken, isBroken); next.lack == "" {
			isBroken = next.broken != nil
		}
		for _, change := range next.changes {
			w.apply(change)
		}
		if len(next.changes) == 0 {
			return true
		}
		s := summarize(w)
		failed = o.printChange(&last, brief(&s, &w.history))
		return failed == nil && !w.isFinished()
	})
	return failed
}

// tellBroken tells once that the connection broke.
func (o *options) tellBroken(broken error, isTold bool) {
	if broken != nil && !isTold {
		fmt.Fprintf(o.streams.ErrOut, "kubectl-di: no connection: %v; trying again\n", broken)
	}
}

func (o *options) printChange(last *string, now string) error {
	if now == *last {
		return nil
	}
	*last = now
	_, err := fmt.Fprintln(o.streams.Out, o.clock.Now().UTC().Format(time.RFC3339), now)
	return err
}

// show shows the job on the terminal until the user quits.
func (o *options) show(ctx context.Context, feed *feed) error {
	in, out, _ := o.terminal()
	next := func() tea.Cmd { return tea.Tick(time.Second, func(at time.Time) tea.Msg { return tick(at) }) }
	return o.program(ctx, feed, newModel(newWorld(feed.job), o.clock.Now(), next), in, out)
}

// program runs the view, fed by the feed.
func (o *options) program(ctx context.Context, feed *feed, view *model, in io.Reader, out io.Writer, more ...tea.ProgramOption) error {
	program := tea.NewProgram(view, append([]tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(),
	}, more...)...)
	feeding, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() {
		feed.run(feeding, func(next batch) bool {
			program.Send(next)
			return next.failed == nil
		})
	})
	_, err := program.Run()
	stop()
	working.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the user has ended the command
	}
	return errors.Join(view.failed, err)
}

var _ tea.Model = (*model)(nil)

var _ watches = (*cluster.Cluster)(nil)
