// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
)

// executing are the flags of exec.
type executing struct {
	*cli.Env
	target
	command []string
	stdin   bool
}

// NewExecCommand returns kubectl di exec.
func NewExecCommand(env *cli.Env) *cobra.Command {
	o := &executing{Env: env}
	command := cli.Help{
		Use: "exec JOB [POD] [-- COMMAND [ARG...]]", Short: "Run a command in a replica of a job",
		Long: `Run a command in a replica of a job, in its main container; sh by default. Without POD it
is the first one that runs. On a terminal the command gets the terminal.

The exit code is 1 if the command fails, and stderr has the command's own.`,
		Example: `  # A shell in the first replica of job pong
  kubectl di exec pong

  # The GPUs that a collector sees
  kubectl di exec pong collector-2 -- nvidia-smi`,
	}.Command()
	command.Args = func(command *cobra.Command, args []string) (err error) {
		o.command = []string{"sh"}
		if dash := command.Flags().ArgsLenAtDash(); dash >= 0 {
			args, o.command = args[:dash], args[dash:]
		}
		if len(o.command) == 0 {
			return cli.Usagef(`COMMAND is missing: it follows "--"`)
		}
		o.job, o.pod, err = arguments(args)
		return err
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return o.run(command.Context()) }
	command.ValidArgsFunction = complete(env)
	command.SuggestFor = []string{"shell", "ssh", "attach", "enter"}
	command.Flags().StringVarP(&o.container, "container", "c", "", "the container; by default di-container, or the first")
	env.CompleteContainerFlag(command, "container")
	command.Flags().BoolVarP(&o.stdin, "stdin", "i", false, "pass on stdin also where it is no terminal")
	return command
}

func (o *executing) run(ctx context.Context) error {
	found, pod, of, err := o.connect(ctx, o.Env)
	if err != nil {
		return err
	}
	options := &corev1.PodExecOptions{Container: of.Name, Command: o.command, Stdout: true, Stderr: true, Stdin: o.stdin}
	streams := remotecommand.StreamOptions{Stdout: o.Out, Stderr: o.ErrOut}
	in, isTerminal := o.terminal()
	if options.TTY = isTerminal; isTerminal {
		// A terminal has one stream of output.
		options.Stdin, options.Stderr, streams.Stderr, streams.Tty = true, false, nil, true
		streams.TerminalSizeQueue = &once{in: in}
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return fmt.Errorf("preparing the terminal: %w", err)
		}
		defer term.Restore(int(in.Fd()), before) //nolint:errcheck // Nothing can be done about it.
	}
	if options.Stdin {
		streams.Stdin = o.In
	}
	err = found.In(pod.Namespace).Exec(ctx, pod.Name, options, streams)
	if code := (utilexec.CodeExitError{}); errors.As(err, &code) {
		return fmt.Errorf("the command in pod %s ended with exit code %d", pod.Name, code.Code)
	}
	return err
}

// terminal returns the terminal that the command runs on.
func (o *executing) terminal() (*os.File, bool) {
	in, isIn := o.In.(*os.File)
	out, isOut := o.Out.(*os.File)
	return in, isIn && isOut && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// once tells the size of the terminal at the beginning.
type once struct {
	in     *os.File
	isTold bool
}

// Next implements remotecommand.TerminalSizeQueue.
func (o *once) Next() *remotecommand.TerminalSize {
	width, height, err := term.GetSize(int(o.in.Fd()))
	if o.isTold || err != nil {
		return nil
	}
	o.isTold = true
	return &remotecommand.TerminalSize{Width: uint16(min(width, 1<<15)), Height: uint16(min(height, 1<<15))} //nolint:gosec // It is bounded.
}
