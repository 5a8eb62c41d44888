// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inside implements the commands that lead into a replica of a job: kubectl di exec and open.
package inside

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
)

// complete completes a job, and then one of its pods.
func complete(env *cli.Env) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return env.CompleteJobs(command, nil)
		case 1:
			return env.CompletePods(command, strings.TrimPrefix(args[0], "dijob/"), nil)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// arguments returns the job and the pod, "" for the first one.
func arguments(args []string) (job, pod string, err error) {
	job, err = cli.Job(args)
	switch {
	case err != nil:
		return "", "", err
	case len(args) > 2:
		return "", "", cli.Usagef("%q: one replica at a time", args[2])
	case len(args) == 2:
		pod = strings.TrimPrefix(strings.TrimPrefix(args[1], "pods/"), "pod/")
	}
	return job, pod, nil
}

// target is what a command leads into. It names a pod of the job, or a replica; the first one that runs by default.
type target struct{ job, pod, container string }

// connect returns the cluster, the pod and the container of a target.
func (t *target) connect(ctx context.Context, env *cli.Env) (*cluster.Cluster, *corev1.Pod, *corev1.Container, error) {
	found, job, err := env.ConnectJob(ctx, t.job)
	if err != nil {
		return nil, nil, nil, err
	}
	pods, err := found.Pods(ctx, job)
	if err != nil {
		return nil, nil, nil, err
	}
	pod, err := choose(job, replicas.Sorted(job, pods), t.pod)
	if err != nil {
		return nil, nil, nil, err
	}
	of, err := container(pod, t.container)
	return found, pod, of, err
}

func choose(job *v2alpha1.DIJob, pods []*corev1.Pod, named string) (*corev1.Pod, error) {
	title := "job " + job.Namespace + "/" + job.Name
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s is in phase %s and has no pods", title, cmp.Or(job.Status.Phase, v2alpha1.JobPending))
	}
	if named == "" {
		at := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
		if at < 0 {
			return nil, fmt.Errorf("%s has no pod that runs: kubectl di describe %s says why", title, job.Name)
		}
		return pods[at], nil
	}
	var all, short []string
	for _, pod := range pods {
		if pod.Name == named || replicas.Name(job.Name, pod.Name) == named {
			return pod, nil
		}
		all, short = append(all, pod.Name), append(short, replicas.Name(job.Name, pod.Name))
	}
	if near := cluster.Nearest(named, append(short, all...)); near != "" {
		return nil, fmt.Errorf("%s has no pod %s: did you mean %s?", title, named, near)
	}
	return nil, fmt.Errorf("%s has no pod %s, but %s", title, named, cluster.Some(all))
}

// container returns the container of a name; the main one by default.
func container(pod *corev1.Pod, named string) (*corev1.Container, error) {
	if named == "" {
		return names.MainContainerOf(pod), nil
	}
	var there []string
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == named {
			return &pod.Spec.Containers[i], nil
		}
		there = append(there, pod.Spec.Containers[i].Name)
	}
	return nil, fmt.Errorf("--container %s: pod %s has no such container, but %s", named, pod.Name, strings.Join(there, ", "))
}
