// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui serves a web page of jobs on this computer, with the rights of its user. openapi.yaml
// describes its API. The cluster gets no object and its user no right by it.
package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/web"
)

// options are the flags of the command.
type options struct {
	*cli.Env
	version string
	port    uint16
	open    bool
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
which the browser gets a cookie.`,
		Example: `  # The page in the browser
  kubectl di ui --open

  # The jobs of one namespace, always on the same port
  kubectl di ui -n rl --port 8765`,
	}, o.run)
	command.Flags().Uint16Var(&o.port, "port", 0, "port to listen on; 0 for any that is free")
	command.Flags().BoolVar(&o.open, "open", false, "open the page in the browser")
	return command
}

// run serves until the context ends.
func (o *options) run(ctx context.Context) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(o.port))))
	if err != nil {
		return fmt.Errorf("--port %d: %w", o.port, err)
	}
	names := o.Names()
	server, err := New(ctx, Options{
		Cluster: found, OnlyNamespace: o.HasNamespace(), Files: web.Files(), Clock: clock.RealClock{}, Version: o.version,
		ClusterName: names.Cluster, Context: names.Context, Language: language(os.Getenv), Address: listener.Addr().String(),
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	fmt.Fprintf(o.Out, "%s\n", server.URL())
	fmt.Fprintln(o.ErrOut, "kubectl-di: open this URL in a browser on this computer; it works once. Interrupt to end.")
	if o.open {
		if err := browse(ctx, server.URL()); err != nil {
			fmt.Fprintf(o.ErrOut, "kubectl-di: --open: %v\n", err)
		}
	}
	return serve(ctx, listener, server)
}

// serve serves until the context ends, and ends all requests.
func serve(ctx context.Context, listener net.Listener, server *Server) error {
	serving := &http.Server{
		Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	watching := make(chan error, 1)
	go func() { watching <- server.Run(ctx) }()
	stop := context.AfterFunc(ctx, func() { _ = serving.Close() })
	defer stop()
	err := serving.Serve(listener)
	if ctx.Err() != nil {
		err = nil // The user has ended the command.
	}
	return errors.Join(err, <-watching)
}

// language returns the language of an environment.
func language(getenv func(string) string) string {
	if strings.HasPrefix(cmp.Or(getenv("LC_ALL"), getenv("LC_MESSAGES"), getenv("LANG")), "zh") {
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
