// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top shows a job and its changes, live on a terminal. It must not change anything.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

const long = `Show all jobs of the namespace, live, or one: Enter opens it, and esc leads back.

Of a job it shows its phase and what stalls it, its replicas by task and by node, the
numbers that it reports of itself, and the latest events.

Without a terminal, and with --once or --output, it prints this once. With
--watch and without a terminal it prints a line on each change, until the job
has finished.`

// options are the flags of the command.
type options struct {
	*cli.Env
	clock  clock.Clock
	all    bool
	once   bool
	watch  bool
	output cli.Data
}

// NewCommand returns kubectl di top.
func NewCommand(env *cli.Env) *cobra.Command {
	o := &options{Env: env, clock: clock.RealClock{}}
	command := env.NewJobCommand(cli.Help{Use: "top [JOB]", Short: "Show jobs, or a job and its replicas, live", Long: long, Example: `  # Look at all jobs, and open one
  kubectl di top

  # Look at job cartpole; ? shows the keys
  kubectl di top cartpole

  # Which of its replicas are not ready
  kubectl di top cartpole -o json | jq '.replicas[] | select(.ready | not)'`}, o.run)
	ofJob, runJob := command.Args, command.RunE
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return ofJob(command, args)
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		if len(args) == 0 {
			return o.overview(command.Context())
		}
		return runJob(command, args)
	}
	command.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "without JOB: the jobs of all namespaces")
	command.Flags().BoolVar(&o.once, "once", false, "Print it once")
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "Without a terminal: print a line on each change")
	o.output.Bind(command, "print it once", "name")
	cli.Before(command, func() error {
		if o.watch && (o.once || !o.output.IsText()) {
			return cli.Usagef("--watch: prints lines, and neither --once nor -o: leave one of them out")
		}
		return o.CheckNamespaces(o.all)
	})
	return command
}

func (o *options) run(ctx context.Context, name string) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	job, err := found.Job(ctx, name)
	if err != nil {
		return err
	}
	in, out, isTerminal := o.terminal()
	switch {
	case o.once || !o.output.IsText() || !isTerminal && !o.watch:
		return o.printOnce(ctx, found, job)
	case !isTerminal:
		return o.printChanges(ctx, found, job)
	}
	return o.program(ctx, found, newModel(newWorld(job), o.clock.Now(), everySecond), in, out)
}

// everySecond returns the command for the next tick.
func everySecond() tea.Cmd {
	return tea.Tick(time.Second, func(at time.Time) tea.Msg { return tick(at) })
}

// terminal returns the terminal that the command runs on.
func (o *options) terminal() (in, out *os.File, isTerminal bool) {
	in, isIn := o.In.(*os.File)
	out, isOut := o.Out.(*os.File)
	return in, out, isIn && isOut && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"
}

// printOnce prints the job when all watches have synced.
func (o *options) printOnce(ctx context.Context, from watches, job *v2alpha1.DIJob) error {
	w := newWorld(job)
	var failed error
	feed(ctx, from, o.clock, job, func(updates batch) bool {
		w.apply(updates)
		if w.failed == nil && w.missing > 0 {
			return true
		}
		if failed = w.failed; failed == nil {
			failed = o.print(w)
		}
		return false
	})
	return failed
}

// print prints a job in the format of -o.
func (o *options) print(w *world) error {
	s := summarize(w)
	switch {
	case o.output.IsText():
		_, err := io.WriteString(o.Out, text(w, &s, o.clock.Now()))
		return err
	case o.output.Form == "name":
		_, err := fmt.Fprintf(o.Out, "dijob.%s/%s\n", v2alpha1.GroupName, s.Name)
		return err
	}
	return o.output.Print(o.Out, s)
}

// printChanges prints a line for each change until the job has finished.
func (o *options) printChanges(ctx context.Context, from watches, job *v2alpha1.DIJob) error {
	w := newWorld(job)
	last, wasBroken, lacks := "", false, 0
	feed(ctx, from, o.clock, job, func(updates batch) bool {
		w.apply(updates)
		for _, lack := range w.lacks[lacks:] {
			fmt.Fprintln(o.ErrOut, "kubectl-di:", lack)
		}
		lacks = len(w.lacks)
		if broken := w.whyBroken(); broken != nil && !wasBroken {
			fmt.Fprintf(o.ErrOut, "kubectl-di: no connection: %v; trying again\n", broken)
		}
		wasBroken = w.whyBroken() != nil
		if w.failed != nil || w.missing > 0 {
			return w.failed == nil
		}
		if now := brief(w); now != last {
			last = now
			_, w.failed = fmt.Fprintln(o.Out, o.clock.Now().UTC().Format(time.RFC3339), now)
		}
		return w.failed == nil && !w.isGone && !replicas.IsFinished(w.job)
	})
	return w.failed
}

// program runs the view until the user quits.
func (o *options) program(ctx context.Context, from watches, view *model, in io.Reader, out io.Writer, more ...tea.ProgramOption) error {
	program := tea.NewProgram(view, append([]tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(),
	}, more...)...)
	feeding, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() {
		feed(feeding, from, o.clock, view.world.job, func(updates batch) bool { program.Send(updates); return true })
	})
	_, err := program.Run()
	stop()
	working.Wait()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the user has ended the command
	}
	return errors.Join(view.world.failed, err)
}

// Text returns a job as the command prints it once.
func Text(o *jobview.Observed) string {
	w := newWorld(o.Job)
	w.membership, w.complete[watchOfMembers] = o.Members.List, o.Members.IsRead
	for _, pod := range o.Pods {
		w.pods[pod.UID] = pod
	}
	for _, event := range o.Events {
		w.events[event.UID] = event
	}
	s := summarize(w)
	return text(w, &s, o.Now)
}

// text renders a snapshot without a terminal.
func text(w *world, s *Snapshot, now time.Time) string {
	const wide = 1 << 16
	var out strings.Builder
	fact := func(name, value string) { fmt.Fprintf(&out, "%-12s %s\n", name+":", clean(value)) }
	fact("Job", s.Namespace+"/"+s.Name)
	fact("Phase", string(s.Phase))
	if s.Reason != "" {
		fact("Reason", s.Reason)
	}
	fact("Lifecycle", string(s.Lifecycle))
	fact("Age", replicas.Age(s.end(now), s.CreatedAt))
	if s.readyText != "" {
		fact("Ready", s.readyText)
	}
	fact("Restarts", strconv.Itoa(int(s.Restarts)))
	if s.Reschedules > 0 {
		fact("Reschedules", strconv.Itoa(int(s.Reschedules)))
	}
	for _, condition := range s.Conditions {
		fact("Condition", fmt.Sprintf("%s %s: %s", condition.Type, condition.Reason, condition.Message))
	}
	fact("Tasks", counts(s.Tasks))
	fact("Nodes", counts(s.Nodes))
	if s.Preemptible {
		fact("Placed", placed(s.placement))
	}
	for _, text := range s.Scaling {
		fact("Scaled", text)
	}
	for _, name := range w.numbers() {
		fact("Reported", name+" "+number(last(w.series[name])))
	}
	for _, lack := range s.Lacks {
		fact("Not shown", lack)
	}
	m := &model{snapshot: *s, now: now}
	for _, m.pane = range []pane{paneReplicas, paneEvents} {
		if list := m.table(); list.count > 0 {
			header, body := list.lines(wide, 0, list.count)
			out.WriteString("\n" + header + "\n" + strings.Join(body, "\n") + "\n")
		}
	}
	return out.String()
}

// brief returns the state of a job on one line.
func brief(w *world) string {
	s := summarize(w)
	facts := []string{fmt.Sprintf("phase=%s ready=%d/%d restarts=%d reschedules=%d", s.Phase, s.Ready, s.Wanted, s.Restarts, s.Reschedules)}
	if s.Reason != "" {
		facts = append(facts, "reason="+clean(s.Reason))
	}
	for _, task := range s.Tasks {
		facts = append(facts, fmt.Sprintf("%s=%d/%s", task.Name, task.Ready, task.wanted()))
	}
	for _, condition := range s.Conditions {
		facts = append(facts, "condition="+condition.Type)
	}
	for _, name := range w.numbers() {
		facts = append(facts, clean(name)+"="+number(last(w.series[name])))
	}
	return strings.Join(facts, " ")
}
