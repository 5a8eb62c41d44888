// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

const completionLong = `Print what completes this plugin's commands, flags, jobs and pods in a shell.

For kubectl di ... the shell needs kubectl's own completion, which asks a program
kubectl_complete-di in a folder of PATH. "completion kubectl" prints that program,
and with --install writes it beside this plugin.

For kubectl-di ..., called by its own name, it needs the script of the shell.`

const completionExamples = `  # Complete kubectl di, in all shells that complete kubectl
  kubectl di completion kubectl --install

  # The same by hand, into a folder of PATH
  kubectl di completion kubectl > ~/bin/kubectl_complete-di && chmod +x ~/bin/kubectl_complete-di

  # Complete kubectl-di in bash
  source <(kubectl di completion bash)

  # In zsh, for good
  kubectl di completion zsh > "${fpath[1]}/_kubectl-di"

  # In fish, for good
  kubectl di completion fish > ~/.config/fish/completions/kubectl-di.fish`

// helperName is the program that kubectl asks for completions of kubectl di.
const helperName = "kubectl_complete-di"

const helper = `#!/bin/sh
# kubectl asks this program what may follow "kubectl di".
exec kubectl-di __complete "$@"
`

func newCompletionCommand(streams genericiooptions.IOStreams) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell", "kubectl"}
	install := false
	command := &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell|kubectl",
		Short:     "Print what completes commands in a shell",
		Long:      completionLong,
		Example:   completionExamples,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return exit.Usagef("%q: want one of %s", strings.Join(args, " "), strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if install && args[0] != "kubectl" {
				return exit.Usagef("--install: is for completion kubectl; the script of %s is printed", args[0])
			}
			return complete(command.Root(), streams, args[0], install)
		},
	}
	command.Flags().BoolVar(&install, "install", false, "write "+helperName+" beside this plugin, in place of printing it")
	return command
}

// complete prints what completes commands in a shell.
func complete(root *cobra.Command, streams genericiooptions.IOStreams, shell string, install bool) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(streams.Out, true)
	case "zsh":
		return root.GenZshCompletion(streams.Out)
	case "fish":
		return root.GenFishCompletion(streams.Out, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(streams.Out)
	}
	if install {
		return installHelper(streams.Out)
	}
	_, err := io.WriteString(streams.Out, helper)
	return err
}

// installHelper writes the program that kubectl asks beside this one.
func installHelper(out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("--install: finding the folder of this plugin: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), helperName)
	if err := os.WriteFile(path, []byte(helper), 0o755); err != nil { // It is a program for all.
		return fmt.Errorf("--install: %w", err)
	}
	_, err = fmt.Fprintln(out, path)
	return err
}
