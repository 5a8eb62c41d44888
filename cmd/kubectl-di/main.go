// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-di is a plugin of kubectl: in a folder of PATH, it is run as
// kubectl di.
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

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/describe"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/logs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/migrate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/preflight"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/profilings"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/release"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/resize"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/rotate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/submit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/suspend"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/top"
)

// version is stamped by the linker.
var version = "dev"

func main() {
	// What its libraries log is nothing that a user can act on; errors are returned.
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
		// Others' words are in it, such as those of a server that poses as di-server.
		fmt.Fprintln(command.ErrOrStderr(), "kubectl-di:", printers.EscapeTerminal(err.Error()))
	}
	return exit.Code(err)
}

// newCommand wires the commands to the streams, and to the flags that say which
// cluster, which they share.
func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	flags := cluster.NewFlags(streams)
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
	flags.Bind(root.PersistentFlags())
	addGroup(root, "jobs", "Jobs:",
		submit.NewCommand(flags, streams), describe.NewCommand(flags, streams),
		suspend.NewSuspendCommand(flags, streams), suspend.NewResumeCommand(flags, streams),
		top.NewCommand(flags, streams), logs.NewCommand(flags, streams), profilings.NewCommand(flags))
	addGroup(root, "replicas", "Replicas of running jobs:",
		resize.NewScaleCommand(flags), resize.NewAddCommand(flags), resize.NewDeleteCommand(flags), resize.NewRestartCommand(flags))
	addGroup(root, "installation", "The installation:",
		preflight.NewCommand(flags, streams), migrate.NewCommand(flags, streams), rotate.NewCommand(flags, streams))
	addGroup(root, "others", "Manifests and this plugin:",
		convert.NewCommand(), release.NewCommand(flags, streams, version), newCompletionCommand(streams), newOptionsCommand())
	root.SetHelpCommandGroupID("others")
	root.InitDefaultHelpCmd()
	for _, command := range root.Commands() {
		if command.Name() == "help" {
			command.Long, command.Example = "Print the help of a command.", "  # What describe can do\n  kubectl di help describe"
		}
	}
	root.AddCommand(newReferenceCommand())
	return root
}
