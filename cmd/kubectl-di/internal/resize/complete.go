// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"slices"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
)

// complete completes the arguments of add and delete for a shell.
func (o *resizeOptions) complete(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return []string{string(v2alpha1.TaskTypeCollector), string(v2alpha1.TaskTypeLearner)}, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && o.coordinator == "":
		return arguments.JobNames(command, o.flags)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeReplicas completes the arguments of restart for a shell.
func (o *callOptions) completeReplicas(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 && o.coordinator == "" {
		return arguments.JobNames(command, o.flags)
	}
	job, named, err := o.job(args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	found, err := o.flags.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	pods, err := found.ReplicaNames(command.Context(), job)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	pods = slices.DeleteFunc(pods, func(pod string) bool { return slices.Contains(named, pod) })
	return pods, cobra.ShellCompDirectiveNoFileComp
}
