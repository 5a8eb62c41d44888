// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// CompleteJobs completes the names of the namespace's jobs, except those that are given.
func (e *Env) CompleteJobs(command *cobra.Command, given []string) ([]string, cobra.ShellCompDirective) {
	found, err := e.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	jobs, err := found.Jobs(command.Context(), found.Namespace, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range jobs {
		names = append(names, jobs[i].Name)
	}
	return without(names, given), cobra.ShellCompDirectiveNoFileComp
}

// CompletePods completes the names of a job's pods, except those that are given.
func (e *Env) CompletePods(command *cobra.Command, job string, given []string) ([]string, cobra.ShellCompDirective) {
	found, read, err := e.ConnectJob(command.Context(), job)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	pods, err := found.Pods(command.Context(), read)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return without(names, given), cobra.ShellCompDirectiveNoFileComp
}

// CompleteClaims completes the names of the namespace's PersistentVolumeClaims, which a path follows.
func (e *Env) CompleteClaims(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	found, err := e.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var claims corev1.PersistentVolumeClaimList
	if err := found.List(command.Context(), found.Namespace, &claims); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range claims.Items {
		names = append(names, claims.Items[i].Name+":/")
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeOfJob completes a flag by what the job has that a command names. Without one there is nothing to choose from.
func completeOfJob(command *cobra.Command, flag string, choose func(command *cobra.Command, args []string, job string) ([]string, cobra.ShellCompDirective)) {
	_ = command.RegisterFlagCompletionFunc(flag, func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		job, err := Job(args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return choose(command, args, job)
	})
}

// CompleteTaskFlag completes the tasks of the job that a command names, in a flag. What follows the task, such as =, is added.
func (e *Env) CompleteTaskFlag(command *cobra.Command, flag, follows string) {
	completeOfJob(command, flag, func(command *cobra.Command, _ []string, job string) ([]string, cobra.ShellCompDirective) {
		_, read, err := e.ConnectJob(command.Context(), job)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, task := range replicas.Tasks(read) {
			names = append(names, task+follows)
		}
		if follows != "" {
			return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// CompletePodFlag completes the pods of the job that a command names, in a flag.
func (e *Env) CompletePodFlag(command *cobra.Command, flag string) {
	completeOfJob(command, flag, func(command *cobra.Command, _ []string, job string) ([]string, cobra.ShellCompDirective) {
		return e.CompletePods(command, job, nil)
	})
}

// CompleteContainerFlag completes the containers of the pod or of all pods of the job that a command names, in a flag.
func (e *Env) CompleteContainerFlag(command *cobra.Command, flag string) {
	completeOfJob(command, flag, func(command *cobra.Command, args []string, job string) ([]string, cobra.ShellCompDirective) {
		found, read, err := e.ConnectJob(command.Context(), job)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		pods, err := found.Pods(command.Context(), read)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return containersOf(read.Name, pods, args[1:]), cobra.ShellCompDirectiveNoFileComp
	})
}

// containersOf returns the containers of the named pods of a job, or of all: those of the templates first, and then the init
// containers. A pod is named by its name or by that of its replica.
func containersOf(job string, pods []*corev1.Pod, named []string) []string {
	var main, before []string
	for _, pod := range pods {
		isNamed := slices.ContainsFunc(named, func(text string) bool {
			text = strings.TrimPrefix(strings.TrimPrefix(text, "pods/"), "pod/")
			return text == pod.Name || text == replicas.Name(job, pod.Name)
		})
		if len(named) > 0 && !isNamed {
			continue
		}
		for i := range pod.Spec.Containers {
			main = append(main, pod.Spec.Containers[i].Name)
		}
		for i := range pod.Spec.InitContainers {
			before = append(before, pod.Spec.InitContainers[i].Name)
		}
	}
	return distinct(append(main, before...))
}

// CompleteQueues completes the queues of the namespace: those that its jobs name, and those of Kueue.
func (e *Env) CompleteQueues(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	found, err := e.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	jobs, err := found.Jobs(command.Context(), found.Namespace, "")
	var names []string
	for i := range jobs {
		if queue := jobview.Summarize(&jobs[i], jobview.Members{}).Queue; queue != "" {
			names = append(names, queue)
		}
	}
	for _, queue := range found.LocalQueues(command.Context()) {
		names, err = append(names, queue), nil
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// distinct returns each name once, in the order of the first ones.
func distinct(names []string) []string {
	var once []string
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

func without(names, given []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(given, name) })
}
