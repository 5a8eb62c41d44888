// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/history/record"
)

// completed returns texts once each, sorted. Those of an error are no texts to choose from.
func completed(texts []string, err error) ([]string, cobra.ShellCompDirective) {
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	slices.Sort(texts)
	return slices.Compact(texts), cobra.ShellCompDirectiveNoFileComp
}

// from returns a completion of what is read from the history.
func (o *reading) from(read func(*cobra.Command, *reader.Reader, []string) ([]string, error)) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		from, err := o.open(command.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer from.End()
		return completed(read(command, from, args))
	}
}

// completeFilter completes the flags of a filter by the newest jobs of the namespace.
func (o *reading) completeFilter(command *cobra.Command) {
	for flag, of := range map[string]func(*record.Summary) string{
		"group":  func(job *record.Summary) string { return job.Group },
		"user":   func(job *record.Summary) string { return job.Creator },
		"reason": func(job *record.Summary) string { return job.Reason },
	} {
		_ = command.RegisterFlagCompletionFunc(flag, o.from(func(command *cobra.Command, from *reader.Reader, _ []string) ([]string, error) {
			page, err := from.Page(command.Context(), url.Values{"namespace": {from.Cluster.Namespace}, "limit": {strconv.Itoa(record.MaxPage)}})
			var found []string
			for i := range page.Jobs {
				found = append(found, of(&page.Jobs[i]))
			}
			return found, err
		}))
	}
}

// completeTails completes flags by the last lines that are recorded of the job that a command names.
func (o *reading) completeTails(command *cobra.Command, flags map[string]func(job, *record.Tail) string) {
	for flag, of := range flags {
		_ = command.RegisterFlagCompletionFunc(flag, o.from(func(command *cobra.Command, from *reader.Reader, args []string) ([]string, error) {
			name, err := cli.Job(args)
			if err != nil {
				return nil, nil //nolint:nilerr // Without a job there is nothing to choose from.
			}
			found, err := jobOf(command.Context(), from, name, command.Flag("uid").Value.String())
			if err != nil {
				return nil, err
			}
			tails, err := from.Tails(command.Context(), found)
			var names []string
			for i := range tails {
				names = append(names, of(found, &tails[i]))
			}
			return names, err
		}))
	}
}
