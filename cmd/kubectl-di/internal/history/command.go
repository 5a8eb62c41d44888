// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history implements the commands that read jobs from the history, also after their objects
// are gone: kubectl di history.
package history

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
)

const long = `Read jobs from the history of the installation, also those whose objects are gone.

The history is reached by a port that is forwarded to its pod, as kubectl port-forward
does, or by --server. It shows the jobs that you may read. It knows you by the token of
your kubeconfig. If that has another credential, such as a certificate, or with --as, a
token of 10 minutes is made for --service-account, whose rights count then.`

// NewCommand returns kubectl di history.
func NewCommand(env *cli.Env) *cobra.Command {
	command := cli.Help{
		Use: "history", Short: "Read jobs that are gone: list, show, logs, compare, rerun, export", Long: long,
		Example: `  # The jobs of the last day that failed
  kubectl di history list --since 24h --phase Failed

  # Why did job pong fail, and what did it print last?
  kubectl di history show pong
  kubectl di history logs pong

  # Run it again, with more memory
  kubectl di history rerun pong --name pong-2 --set 'spec.tasks[learner].template.spec.containers[0].resources.limits.memory=8Gi'`,
	}.Command()
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.Usagef("unknown command %q: %s show %s shows a job of this name\nsee %s --help", args[0], command.CommandPath(), args[0], command.CommandPath())
		}
		return nil
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	command.AddCommand(newListCommand(env), newShowCommand(env), newLogsCommand(env), newCompareCommand(env), newRerunCommand(env), newExportCommand(env),
		newSumsCommand(env), newCostCommand(env))
	return command
}

// job is what is recorded of a job.
type job = *record.Job

// reading are the flags of all commands.
type reading struct {
	*cli.Env
	server, namespace  string
	tokenFile, account string
}

func (o *reading) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.server, "server", "", "URL of the history (not of the API server), in place of a forwarded port")
	flags.StringVar(&o.namespace, "server-namespace", names.SystemNamespace, "namespace of the installation")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with a token of the cluster, in place of the kubeconfig's")
	flags.StringVar(&o.account, "service-account", "default", "service account of the namespace that a token is made for if the kubeconfig has none")
	cli.Before(command, func() error {
		parsed, err := url.Parse(o.server)
		isServer := err == nil && parsed.Scheme == "https" && parsed.Host != "" && parsed.RawQuery == "" && parsed.User == nil
		switch {
		case o.server != "" && !isServer:
			return cli.Usagef("--server %q: want a URL such as https://history.example.com", o.server)
		case o.server != "" && flags.Changed("server-namespace"):
			return cli.Usagef("--server and --server-namespace exclude each other")
		case o.account == "":
			return cli.Usagef("--service-account is empty: name one of the namespace")
		}
		o.server = strings.TrimRight(o.server, "/")
		return nil
	})
}

// jobCommand returns a command about one job of the history, which --uid picks among those of its name.
func (o *reading) jobCommand(help cli.Help, run func(context.Context, *reader.Reader, job) error) *cobra.Command {
	uid := ""
	command := o.NewJobCommand(help, func(ctx context.Context, name string) error {
		from, err := o.open(ctx)
		if err != nil {
			return err
		}
		defer from.End()
		found, err := jobOf(ctx, from, name, uid)
		if err != nil {
			return err
		}
		return run(ctx, from, found)
	})
	command.ValidArgsFunction = o.complete
	command.Flags().StringVar(&uid, "uid", "", "UID of the job, of several with this name (default the newest)")
	o.bind(command)
	return command
}

// complete completes the names of jobs.
func (o *reading) complete(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	from, err := o.open(command.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer from.End()
	found, err := from.Names(command.Context(), from.Cluster.Namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// open connects to the history. The caller must end the reader.
func (o *reading) open(ctx context.Context) (*reader.Reader, error) {
	found, err := o.Connect()
	if err != nil {
		return nil, err
	}
	from := reader.New(reader.Options{
		Cluster: found, Server: o.server, Namespace: o.namespace, TokenFile: o.tokenFile, Account: o.account,
	})
	return from, from.Connect(ctx)
}

// jobOf reads a job of the namespace. Without a UID it is the newest of its name. An unknown name is guessed.
func jobOf(ctx context.Context, from *reader.Reader, name, uid string) (job, error) {
	namespace := from.Cluster.Namespace
	found, err := from.Job(ctx, namespace, name, uid)
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	title := "job " + namespace + "/" + name
	if uid != "" {
		title += " with UID " + uid
	}
	others, err := from.Names(ctx, namespace)
	switch near := cluster.Nearest(name, others); {
	case slices.Contains(others, name):
		return nil, fmt.Errorf("the history has no %s: kubectl di history list --text %s -o wide shows those that it has", title, name)
	case near != "":
		return nil, fmt.Errorf("the history has no %s: did you mean %s?", title, near)
	case err == nil:
		return nil, fmt.Errorf("the history has no %s: see kubectl di history list", title)
	}
	return nil, fmt.Errorf("the history has no %s that you may read\n%s", title, from.RoleFor("get", "dijobs", v2alpha1.GroupName, namespace))
}

// timeOf returns the time of flag --since or --until, such as 36h ago, 7d ago or 2026-01-31; zero if it is empty.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	// More is an overflow of some unit, and not what is meant.
	const mostDays = 36_500
	if number, isDays := strings.CutSuffix(text, "d"); isDays {
		if days, err := strconv.Atoi(number); err == nil && days > 0 && days <= mostDays {
			return now.AddDate(0, 0, -days), nil
		}
	}
	span, err := time.ParseDuration(text)
	if err != nil || span <= 0 {
		return time.Time{}, cli.Usagef("--%s %q: want a span such as 36h or 7d, or a time such as 2026-01-31 or 2026-01-31T15:04:05Z", flag, text)
	}
	return now.Add(-span), nil
}
