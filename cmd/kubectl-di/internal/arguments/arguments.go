// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arguments reads the arguments of kubectl di's commands, and completes
// them for a shell.
package arguments

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

// None is cobra.NoArgs with the exit code of wrong use.
func None(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("%q: %s takes no arguments, only flags", args[0], command.CommandPath())
	}
	return nil
}

// Job reads the name of a job, with or without that of its kind, off the first
// argument.
func Job(args []string) (string, error) {
	if len(args) == 0 {
		return "", exit.Usagef("JOB is missing: name a DIJob, see kubectl get dijobs")
	}
	job := strings.TrimPrefix(args[0], "dijob/")
	if len(validation.IsDNS1123Subdomain(job)) > 0 {
		return "", exit.Usagef("JOB %q: want the name of a DIJob, see kubectl get dijobs", args[0])
	}
	return job, nil
}

// OneJob reads the name of a job, and refuses further arguments.
func OneJob(args []string) (string, error) {
	job, err := Job(args)
	if err == nil && len(args) > 1 {
		return "", exit.Usagef("%q: one job at a time", args[1])
	}
	return job, err
}

// Jobs reads the names of jobs, each once.
func Jobs(args []string) ([]string, error) {
	var jobs []string
	for i := range args {
		job, err := Job(args[i:])
		if err != nil {
			return nil, err
		}
		if !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// CompleteJob completes the name of the one job that a command takes.
func CompleteJob(flags *cluster.Flags) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return JobNames(command, flags)
	}
}

// CompleteJobs completes the names of the jobs that a command takes.
func CompleteJobs(flags *cluster.Flags) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		jobs, directive := JobNames(command, flags)
		return slices.DeleteFunc(jobs, func(job string) bool { return slices.Contains(args, job) }), directive
	}
}

// JobNames returns the names of the namespace's jobs for a shell.
func JobNames(command *cobra.Command, flags *cluster.Flags) ([]string, cobra.ShellCompDirective) {
	found, err := flags.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	jobs, err := found.JobNames(command.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return jobs, cobra.ShellCompDirectiveNoFileComp
}

// PodNames returns the names of a job's pods for a shell.
func PodNames(command *cobra.Command, flags *cluster.Flags, job string) ([]string, cobra.ShellCompDirective) {
	found, err := flags.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	read, err := found.Job(command.Context(), job)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	pods, err := found.Pods(command.Context(), read)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var pod []string
	for i := range pods {
		pod = append(pod, pods[i].Name)
	}
	return pod, cobra.ShellCompDirectiveNoFileComp
}
