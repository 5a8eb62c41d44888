// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history implements the commands that read jobs from the history, also after their objects
// are gone: kubectl di history.
package history

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
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
	command.AddCommand(newListCommand(env), newShowCommand(env), newLogsCommand(env), newCompareCommand(env), newRerunCommand(env), newExportCommand(env))
	return command
}

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
func (o *reading) jobCommand(help cli.Help, run func(context.Context, *reader, job) error) *cobra.Command {
	uid := ""
	command := o.NewJobCommand(help, func(ctx context.Context, name string) error {
		from, err := o.open(ctx)
		if err != nil {
			return err
		}
		defer from.end()
		found, err := from.job(ctx, name, uid)
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
	defer from.end()
	found, err := from.names(command.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// open connects to the history. The caller must end the reader.
func (o *reading) open(ctx context.Context) (*reader, error) {
	found, err := o.Connect()
	if err != nil {
		return nil, err
	}
	from := &reader{login: o, cluster: found, way: found.Forward(o.namespace, cluster.History()), end: func() {}}
	if o.server != "" {
		from.way = diserver.At(o.server)
	}
	if err := from.connect(ctx); err != nil {
		from.end()
		return nil, err
	}
	return from, nil
}

// explain says how to switch the history on if it is not.
func (o *reading) explain(err error) error {
	if missing := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &missing) && missing.Status().Details != nil &&
		missing.Status().Details.Name == names.HistoryService {
		return fmt.Errorf("namespace %s has no history of jobs: switch it on by value history.enabled=true of the Helm chart, or name the "+
			"namespace of the installation by --server-namespace: %w", o.namespace, err)
	}
	return err
}

// trust returns what the certificate of the history is verified by.
func (o *reading) trust(ctx context.Context, found *cluster.Cluster) (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.server != "" {
		return trust, nil
	}
	authorities, err := o.authorities(ctx, found)
	trust.RootCAs, trust.ServerName = authorities, names.HistoryService+"."+o.namespace+".svc"
	return trust, err
}

// authorities returns those that sign the certificate of the history.
func (o *reading) authorities(ctx context.Context, found *cluster.Cluster) (*x509.CertPool, error) {
	bundle := &corev1.ConfigMap{}
	if err := found.Get(ctx, o.namespace, names.ServerBundle, bundle); err != nil {
		return nil, fmt.Errorf("reading whom to trust: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(bundle.Data[names.ServerBundleKey])) {
		return nil, fmt.Errorf("ConfigMap %s/%s: %s: has no certificate", o.namespace, names.ServerBundle, names.ServerBundleKey)
	}
	return authorities, nil
}

// identify gives a reader a token.
func (o *reading) identify(ctx context.Context, from *reader) (err error) {
	if o.tokenFile != "" {
		content, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		if from.token = strings.TrimSpace(string(content)); from.token == "" {
			return fmt.Errorf("--token-file %s: has no token", o.tokenFile)
		}
		return nil
	}
	if from.token, err = from.cluster.OwnToken(ctx); err != nil || from.token != "" {
		return err
	}
	from.account = from.cluster.Namespace + "/" + o.account
	from.token, err = from.cluster.AccountToken(ctx, from.cluster.Namespace, o.account)
	return err
}

// since returns the start of a flag such as 36h, 7d or 2026-01-31; zero if it is empty.
func since(text string, now time.Time) (time.Time, error) {
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
		return time.Time{}, cli.Usagef("--since %q: want a span such as 36h or 7d, or a time such as 2026-01-31 or 2026-01-31T15:04:05Z", text)
	}
	return now.Add(-span), nil
}
