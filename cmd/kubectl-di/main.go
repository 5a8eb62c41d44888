// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-di is a plugin of kubectl. kubectl runs it as kubectl di if it is in a directory
// of PATH.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/klog/v2"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/bugreport"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/events"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/inside"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/logs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/plans"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/resize"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/top"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui"
)

// version is set by the linker.
var version = "dev"

func main() {
	// Users cannot act on logs of the libraries; errors are returned.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	stop()
	os.Exit(code)
}

// run executes the command and returns the exit code.
func run(ctx context.Context, command *cobra.Command) int {
	err := command.ExecuteContext(ctx)
	if err != nil {
		// The error may quote a server that poses as di-server.
		fmt.Fprintln(command.ErrOrStderr(), "kubectl-di:", printers.EscapeTerminal(err.Error()))
	}
	return cli.Code(err)
}

// newCommand connects the commands to the streams and to kubectl's flags.
func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	env := cli.NewEnv(streams)
	root := &cobra.Command{
		Use:           "kubectl-di",
		Short:         "Work with the jobs of DI Orchestrator",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl di"},
		Args:          noCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(wrongFlag)
	root.SuggestionsMinimumDistance = 2
	root.SetUsageTemplate(usageTemplate)
	env.Bind(root.PersistentFlags())
	addGroup(root, "jobs", "Jobs:",
		jobs.NewRunCommand(env), jobs.NewSubmitCommand(env), jobs.NewListCommand(env), jobs.NewDescribeCommand(env),
		top.NewCommand(env), ui.NewCommand(env, version), logs.NewCommand(env), events.NewCommand(env), cost.NewCommand(env), inside.NewExecCommand(env), inside.NewOpenCommand(env), jobs.NewProfilingsCommand(env), jobs.NewWaitCommand(env), history.NewCommand(env), bugreport.NewCommand(env, version),
		jobs.NewSuspendCommand(env), jobs.NewResumeCommand(env), jobs.NewDeleteCommand(env, resize.NewDeleteCommands(env)...))
	addGroup(root, "replicas", "Replicas of running jobs:",
		resize.NewScaleCommand(env), resize.NewAddCommand(env), resize.NewRestartCommand(env),
		plans.NewCommand(env))
	addGroup(root, "installation", "The installation:",
		installation.NewPreflightCommand(env), installation.NewMigrateCommand(env), installation.NewRotateCommand(env))
	addGroup(root, "others", "Manifests and this plugin:",
		convert.NewCommand(env), installation.NewVersionCommand(env, version), newCompletionCommand(env), newOptionsCommand(env))
	root.SetHelpCommandGroupID("others")
	root.InitDefaultHelpCmd()
	for _, command := range root.Commands() {
		if command.Name() == "help" {
			command.Long, command.Example = "Print the help of a command.", "  # The help of describe\n  kubectl di help describe"
		}
	}
	root.AddCommand(newReferenceCommand(env, root))
	return root
}
