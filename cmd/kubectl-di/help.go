// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

// usageTemplate is the part of a command's help after its description. Unlike
// cobra's it leaves the flags that all commands have to kubectl di options, as
// kubectl does.
const usageTemplate = `Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .Aliases}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$commands := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $commands}}{{if and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if not .Groups}}

Commands:{{range $commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if and .HasParent .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more about a command.{{end}}

Use "{{.Root.CommandPath}} options" for the flags that all commands have.
`

// addGroup adds commands that the help shows together.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, command := range commands {
		command.GroupID = id
		root.AddCommand(command)
	}
}

func newOptionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "Print the flags that all commands have",
		Long:    "Print the flags that all commands have, which are kubectl's own: which cluster, as whom, and in which namespace.",
		Example: "  # The flags that say which cluster\n  kubectl di options",
		Args:    arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(command.OutOrStdout(), "All commands have these flags:\n\n", command.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// noCommand says which command may have been meant by one that there is not.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if suggested := root.SuggestionsFor(args[0]); len(suggested) > 0 {
		text += ": did you mean " + strings.Join(suggested, " or ") + "?"
	}
	return exit.Usagef("%s\nsee %s --help", text, root.CommandPath())
}

// wrongFlag says what is wrong with a flag, or with the command that it was
// given to, of which no flag is known where there is no such command.
func wrongFlag(command *cobra.Command, err error) error {
	if !command.HasParent() {
		if unknown := noCommand(command, command.Flags().Args()); unknown != nil {
			return unknown
		}
	}
	return exit.Usagef("%w\nsee %s --help", err, command.CommandPath())
}
