// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resize implements the commands that change the number of a job's replicas, or the
// replicas themselves: kubectl di scale, add, delete and restart.
package resize

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/uuid"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/internal/names"
)

// retryWait is the backoff before the first retry of a call to di-server. Another pod usually serves already.
const retryWait = 100 * time.Millisecond

const reachLong = `
di-server is reached by a port that is forwarded to one of its pods, as kubectl
port-forward does, or by --server. The caller is authenticated by a token of 10 minutes
that is made for the job's coordinator, or another of its pods, or by --token-file.
Where a connection breaks the call is retried.

Who may not reach di-server requests the same by a ScalePlan in the job's namespace.`

// calling are the flags of the commands that call di-server.
type calling struct {
	*cli.Env
	coordinator        string
	server             string
	namespace, service string
	tokenFile          string
	key                string
	output             cli.Data
}

func (o *calling) bind(command *cobra.Command) {
	flags := command.Flags()
	o.output.Bind(command, "the data of di-server's answer")
	flags.StringVar(&o.coordinator, "coordinator-name", "", "pod name of the job's coordinator, in place of JOB")
	flags.StringVar(&o.server, "server", "", "URL of di-server (not of the API server), in place of a forwarded port")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with a token of audience di-server, in place of one made for the job's pod")
	flags.StringVar(&o.namespace, "server-namespace", names.SystemNamespace, "namespace of di-server")
	flags.StringVar(&o.service, "server-service", names.ServerService, "name of di-server's Service")
	flags.StringVar(&o.key, "idempotency-key", "", "name of this request; a repetition of it is not done again (default a random one)")
	cli.Before(command, func() (err error) {
		for _, other := range []string{"server-namespace", "server-service"} {
			if o.server != "" && flags.Changed(other) {
				return cli.Usagef("--server and --%s exclude each other", other)
			}
		}
		if o.key == "" {
			o.key = string(uuid.NewUUID())
		}
		o.server, err = serverURL(o.server)
		return err
	})
}

// serverURL normalizes an address with or without a scheme, or an empty one.
func serverURL(given string) (string, error) {
	address := given
	if !strings.Contains(address, "://") && address != "" {
		address = "http://" + address
	}
	parsed, err := url.Parse(address)
	isServer := err == nil && parsed.Host != "" && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.RawQuery == "" &&
		parsed.User == nil
	if given != "" && !isServer {
		return "", cli.Usagef("--server %q: want a URL such as http://localhost:8080", given)
	}
	return strings.TrimRight(address, "/"), nil
}

// jobName returns the name of the job from the arguments or from --coordinator-name, and the other
// arguments.
func (o *calling) jobName(args []string) (string, []string, error) {
	if o.coordinator != "" {
		job, found := strings.CutSuffix(o.coordinator, names.CoordinatorPod(""))
		if !found || job == "" {
			return "", nil, cli.Usagef("--coordinator-name %q: want the name of a coordinator's pod, %s", o.coordinator, names.CoordinatorPod("JOB"))
		}
		return job, args, nil
	}
	job, err := cli.Job(args)
	if err != nil {
		return "", nil, err
	}
	return job, args[1:], nil
}

// call is the context of a call to di-server about a job.
type call struct {
	*calling
	cluster *cluster.Cluster
	job     *v2alpha1.DIJob
	server  *diserver.Client
	// denied is why the user got no token, if a right is missing.
	denied error
}

// begin reads the job, requests a token and prepares the connection to di-server. It calls only the
// API server. The check may refuse the job before a token is requested.
func (o *calling) begin(ctx context.Context, name string, check func(*v2alpha1.DIJob) error) (*call, error) {
	found, job, err := o.ConnectJob(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := check(job); err != nil {
		return nil, err
	}
	token, err := o.token(ctx, found, job)
	if err != nil && !cluster.IsDenied(err) {
		return nil, err
	}
	var way diserver.Way = found.Forward(o.namespace, cluster.DIServer(o.service))
	if o.server != "" {
		way = diserver.At(o.server)
	}
	return &call{calling: o, cluster: found, job: job, denied: err, server: diserver.New(diserver.Options{
		Way: way, Token: token, IdempotencyKey: o.key, RetryWait: retryWait,
		Report: func(err error) { fmt.Fprintf(o.ErrOut, "kubectl-di: %v; calling again\n", err) },
	})}, nil
}

// token returns the token of the flag, or requests one for the job.
func (o *calling) token(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) (string, error) {
	if o.tokenFile == "" {
		return found.Token(ctx, job)
	}
	content, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("--token-file %s: has no token", o.tokenFile)
	}
	return token, nil
}

// coordinator returns the job's name in the v1 protocol.
func (c *call) coordinator() diserver.Coordinator {
	return diserver.Coordinator{Namespace: c.job.Namespace, Name: names.CoordinatorPod(c.job.Name)}
}

// title returns the job's name for messages.
func title(job *v2alpha1.DIJob) string { return "job " + job.Namespace + "/" + job.Name }

// isCoordinatorLed reports whether a job uses the v1 protocol.
func isCoordinatorLed(job *v2alpha1.DIJob) bool {
	return job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed
}

// explain adds advice to an error if the result of the request is unknown.
func (c *call) explain(err error) error {
	if unanswered := (*diserver.UnansweredError)(nil); !errors.As(err, &unanswered) {
		return err
	}
	return fmt.Errorf("%w\nwhether it was done is not known: run the command again within an hour with "+
		"--idempotency-key %s, and it is done once", err, c.key)
}
