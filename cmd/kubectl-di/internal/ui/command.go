// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui serves a web page of jobs with the rights of those who look at it: on their computer
// with their kubeconfig, or in the cluster with the token that each of them brings. openapi.yaml
// describes its API. No one gains a right by it.
package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/usage"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/web"
)

// options are the flags of the command.
type options struct {
	*cli.Env
	version   string
	port      uint16
	open      bool
	inCluster bool
	hosts     []string
	certFile  string
	keyFile   string
	// historyServer, historyAuthority, namespace and account say where the history is, and who reads it.
	historyServer, historyAuthority string
	namespace, account              string
	// prometheus is where the usage of pods is, and metering reads it; nil without one.
	prometheus string
	metering   *Metering
	prices     cost.Prices
}

// NewCommand returns kubectl di ui.
func NewCommand(env *cli.Env, version string) *cobra.Command {
	o := &options{Env: env, version: version}
	command := cli.NewCommand(cli.Help{
		Use: "ui", Short: "Serve a web page of jobs on this computer",
		Long: `Serve a web page of jobs, their replicas, logs and curves, and of the cluster's GPUs,
on this computer until it is interrupted.

The page has the rights of your kubeconfig, and nothing is installed in the cluster. It
shows the jobs of all namespaces, or with -n those of one. If you may not list the jobs of
all namespaces, it shows those of the kubeconfig's namespace.

Only this computer can connect. The printed URL can be opened once: it has a token, for
which the browser gets a cookie.

With --in-cluster the page is served to the network, and has no rights: each caller brings
a bearer token of the API server, in the Authorization header of a proxy or in a form. The
kubeconfig then names the API server, and has no credentials.`,
		Example: `  # The page in the browser
  kubectl di ui --open

  # The jobs of one namespace, always on the same port
  kubectl di ui -n rl --port 8765

  # In a pod, behind a proxy that serves https://jobs.example.com
  kubectl di ui --in-cluster --kubeconfig /etc/di/kubeconfig --port 8080 --host jobs.example.com`,
	}, o.run)
	command.Flags().Uint16Var(&o.port, "port", 0, "port to listen on; 0 for any that is free")
	command.Flags().BoolVar(&o.open, "open", false, "open the page in the browser")
	command.Flags().BoolVar(&o.inCluster, "in-cluster", false, "serve the network, with the token of each caller and without rights")
	command.Flags().StringArrayVar(&o.hosts, "host", nil, "host that browsers know the page by, as name or name:port; with --in-cluster (repeatable)")
	command.Flags().StringVar(&o.certFile, "tls-cert-file", "", "certificate; with --in-cluster. Without one, a proxy must serve TLS")
	command.Flags().StringVar(&o.keyFile, "tls-key-file", "", "key of the certificate")
	command.Flags().StringVar(&o.historyServer, "history-server", "", "URL of the history of jobs, in place of a forwarded port")
	command.Flags().StringVar(&o.historyAuthority, "history-ca-file", "", "certificate authorities of --history-server; those of the system by default")
	command.Flags().StringVar(&o.prometheus, "prometheus", "", "URL of a Prometheus with the usage of pods, such as http://prometheus.monitoring:9090")
	command.Flags().StringVar(&o.namespace, "server-namespace", names.SystemNamespace, "namespace of the installation, whose history of jobs is shown")
	command.Flags().StringVar(&o.account, "service-account", "default", "service account of the namespace that reads the history if the kubeconfig has no token")
	o.prices.Bind(command)
	cli.Before(command, o.check)
	return command
}

// check checks the flags.
func (o *options) check() error {
	switch {
	case !o.inCluster && (len(o.hosts) > 0 || o.certFile != "" || o.keyFile != ""):
		return cli.Usagef("--host and --tls-cert-file are for --in-cluster")
	case o.historyServer != "" && !isHTTPS(o.historyServer):
		return cli.Usagef("--history-server %q: want a URL such as https://history.example.com", o.historyServer)
	case o.historyServer == "" && o.historyAuthority != "":
		return cli.Usagef("--history-ca-file is for --history-server")
	case o.inCluster && o.open:
		return cli.Usagef("--open and --in-cluster exclude each other")
	case (o.certFile == "") != (o.keyFile == ""):
		return cli.Usagef("--tls-cert-file and --tls-key-file must be given together")
	}
	if err := o.knowPrometheus(); err != nil || !o.inCluster {
		return err
	}
	if _, err := gate.OfHosts(o.hosts, o.certFile != ""); err != nil {
		return cli.Usagef("--host: %w", err)
	}
	return nil
}

// knowPrometheus makes what reads the usage of pods, if --prometheus is given.
func (o *options) knowPrometheus() error {
	if o.prometheus == "" {
		return nil
	}
	if parsed, err := url.Parse(o.prometheus); err == nil && parsed.User != nil {
		return cli.Usagef("--prometheus: want a URL without a user and a password, which others of the computer would see")
	}
	meter, err := usage.NewMeter(o.prometheus)
	if err != nil {
		return cli.Usagef("--prometheus %w", err)
	}
	o.metering = NewMetering(meter)
	return nil
}

// isHTTPS reports whether a text is the URL of a server.
func isHTTPS(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && parsed.Scheme == "https" && parsed.Host != "" && parsed.RawQuery == "" && parsed.User == nil && strings.Trim(parsed.Path, "/") == ""
}

// past returns how callers read the history.
func (o *options) past() *Past {
	if o.inCluster && o.historyServer == "" {
		return nil
	}
	return NewPast(strings.TrimRight(o.historyServer, "/"), o.historyAuthority, o.namespace, o.account)
}

// run serves until the context ends.
func (o *options) run(ctx context.Context) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	if o.inCluster {
		return o.runInCluster(ctx, found)
	}
	listener, err := o.listen(ctx, "127.0.0.1")
	if err != nil {
		return err
	}
	once, err := gate.NewOnce(listener.Addr().String())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server, err := o.newServer(ctx, found)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	fmt.Fprintf(o.Out, "%s\n", once.URL())
	fmt.Fprintln(o.ErrOut, "kubectl-di: open this URL in a browser on this computer; it works once. Interrupt to end.")
	if o.open {
		if err := browse(ctx, once.URL()); err != nil {
			fmt.Fprintf(o.ErrOut, "kubectl-di: --open: %v\n", err)
		}
	}
	return serve(ctx, listener, once.Protect(server), func(ctx context.Context) {
		var working sync.WaitGroup
		working.Go(func() { limitMemory(ctx, clock.RealClock{}) })
		server.Run(ctx)
		working.Wait()
	})
}

func (o *options) listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(int(o.port))))
	if err != nil {
		return nil, fmt.Errorf("--port %d: %w", o.port, err)
	}
	return listener, nil
}

// newServer returns the server of the kubeconfig's user. It asks the API server which jobs the user
// may see.
func (o *options) newServer(ctx context.Context, found *cluster.Cluster) (*Server, error) {
	known := o.Names()
	options := Options{
		Past: o.past(), Metering: o.metering, Installation: o.namespace, Prices: o.prices,
		Cluster: found, Files: web.Files(), Clock: clock.RealClock{}, Version: o.version,
		ClusterName: known.Cluster, Context: known.Context, Language: language(os.Getenv),
	}
	if o.HasNamespace() {
		options.Namespace = found.Namespace
		return New(options), nil
	}
	all, err := found.May(ctx, jobsAttributes("list", ""))
	if err != nil {
		return nil, err
	}
	if !all {
		options.Namespace = found.Namespace
		options.Notes = []string{
			fmt.Sprintf("You may not list the jobs of all namespaces, so only those of namespace %s are shown.", found.Namespace),
		}
	}
	return New(options), nil
}

// language returns the language of an environment.
func language(getenv func(string) string) string {
	return languageOf(cmp.Or(getenv("LC_ALL"), getenv("LC_MESSAGES"), getenv("LANG")))
}

// languageOf returns the language of a locale, or of a browser.
func languageOf(tag string) string {
	if strings.HasPrefix(tag, "zh") {
		return "zh"
	}
	return "en"
}

// browse opens a URL in the browser of the user.
func browse(ctx context.Context, url string) error {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	return exec.CommandContext(ctx, name, args...).Run()
}
