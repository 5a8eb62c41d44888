// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/internal/memlimit"
	"opendilab.org/di-orchestrator/web"
)

const (
	// mostCallers bounds the callers of a server in a cluster.
	mostCallers = 64
	// ownToken is where a kubelet mounts the token of a pod.
	ownToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// runInCluster serves callers with their own tokens until the context ends.
func (o *options) runInCluster(ctx context.Context, found *cluster.Cluster) error {
	if err := refuseOwnRights(found.Config(), ownToken); err != nil {
		return fmt.Errorf("--in-cluster: %w", err)
	}
	guard, err := gate.OfHosts(o.hosts, o.certFile != "")
	if err != nil {
		return fmt.Errorf("--host: %w", err)
	}
	listener, err := o.listen(ctx, "")
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s\n", listener.Addr())
	if o.certFile != "" {
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: o.certificate,
		})
	}
	tokens := gate.NewTokens(guard, o.opener(found), gate.Bounds{Callers: mostCallers, IsFull: isFull}, clock.RealClock{})
	return serve(ctx, listener, tokens.Handler(), tokens.Run)
}

// certificate reads the certificate for each connection, so that a renewed one is used at once.
func (o *options) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
	return &pair, err
}

// refuseOwnRights refuses a server that has rights of its own. It could give them to its callers.
func refuseOwnRights(config *rest.Config, tokenFile string) error {
	if _, err := os.Stat(tokenFile); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s is mounted: the page must have no service account token; set automountServiceAccountToken: false", tokenFile), err)
	}
	given := config.BearerToken + config.BearerTokenFile + config.Username + config.Password + config.CertFile + config.KeyFile +
		config.Impersonate.UserName
	if given != "" || len(config.CertData)+len(config.KeyData) > 0 || config.ExecProvider != nil || config.AuthProvider != nil {
		return errors.New("the kubeconfig has credentials: it must only name the API server and its certificate authority")
	}
	return nil
}

// opener returns what makes the servers of callers. Only their own token reaches the API server.
func (o *options) opener(found *cluster.Cluster) gate.Open {
	config := rest.AnonymousClientConfig(found.Config())
	config.WarningHandler = rest.NoWarnings{}
	past := o.past()
	return func(ctx context.Context, login gate.Login) (gate.Caller, error) {
		if login.Namespace == "" && o.HasNamespace() {
			login.Namespace = found.Namespace
		}
		own := rest.CopyConfig(config)
		own.BearerToken = login.Token
		connected, err := cluster.New(own, login.Namespace)
		if err != nil {
			return nil, err
		}
		user, err := userOf(ctx, connected)
		switch {
		case apierrors.IsUnauthorized(err):
			return nil, gate.Refuse(http.StatusUnauthorized, "Unauthorized", "token: the API server does not accept it")
		case err != nil:
			return nil, err
		}
		options := Options{Past: past, Metering: o.metering, Installation: o.namespace, Prices: o.prices, Files: web.Files(), Clock: clock.RealClock{}, Version: o.version, CanSignOut: login.ByForm}
		if options.Namespace, err = scope(ctx, connected, user); err != nil {
			return nil, err
		}
		options.Cluster = connected.In(options.Namespace)
		return &caller{New(options), user}, nil
	}
}

// scope returns the namespace whose jobs a caller sees; empty for all. A service account that may not
// list those of all namespaces sees those of its own.
func scope(ctx context.Context, connected *cluster.Cluster, user string) (string, error) {
	namespace := connected.Namespace
	may, err := connected.May(ctx, jobsAttributes("list", namespace))
	if err != nil || may {
		return namespace, err
	}
	if rest, isAccount := strings.CutPrefix(user, "system:serviceaccount:"); isAccount && namespace == "" {
		namespace, _, _ = strings.Cut(rest, ":")
		if may, err = connected.May(ctx, jobsAttributes("list", namespace)); err != nil || may {
			return namespace, err
		}
	}
	if namespace == "" {
		return "", gate.Refuse(http.StatusForbidden, "Forbidden", user+" may not list the jobs of all namespaces: name a namespace")
	}
	return "", gate.Refuse(http.StatusForbidden, "Forbidden", fmt.Sprintf("%s may not list the jobs of namespace %s", user, namespace))
}

// verifyTime is how long the API server may take to say whose a token is. A worthless one blocks others no longer.
const verifyTime = 5 * time.Second

func userOf(ctx context.Context, connected *cluster.Cluster) (string, error) {
	ctx, stop := context.WithTimeout(ctx, verifyTime)
	defer stop()
	return connected.User(ctx)
}

// caller is the server of one caller.
type caller struct {
	*Server
	user string
}

// User implements gate.Caller.
func (c *caller) User() string { return c.user }

// Check implements gate.Caller. An API server that does not answer ends no session.
func (c *caller) Check(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	may, err := c.Cluster.May(ctx, jobsAttributes("list", c.Namespace))
	switch {
	case cluster.IsDenied(err):
		return err
	case err == nil && !may:
		return errors.New("the caller may not list jobs any more")
	}
	return nil
}

// isFull reports whether the server uses three quarters of the memory that GOMEMLIMIT allows. Without it, a limit is
// one that follows the memory of a page.
func isFull() bool {
	return os.Getenv("GOMEMLIMIT") != "" && memlimit.Live() > debug.SetMemoryLimit(-1)/4*3
}
