// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resize has the commands that change how many replicas a job has, or
// which: kubectl di scale, add, delete and restart.
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
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
	"opendilab.org/di-orchestrator/internal/names"
)

// retryWait is the pause before di-server is called again.
const retryWait = time.Second

const reachLong = `
di-server is reached by a port that is forwarded to one of its pods, as kubectl
port-forward does, or by --server. It is told who calls by a token of 10 minutes
that is made for the job's coordinator, or another of its pods, or by --token-file.
Where a connection breaks the call is made again.`

// callOptions are the flags of the commands that call di-server.
type callOptions struct {
	flags       *cluster.Flags
	coordinator string
	server      string
	namespace   string
	service     string
	tokenFile   string
	key         string
	output      printing.Data
}

// bind adds the flags to a command's.
func (o *callOptions) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.SortFlags = false
	o.output.Bind(command, "what di-server answers, as it is,")
	flags.StringVar(&o.coordinator, "coordinator-name", "", "pod name of the job's coordinator, in place of JOB")
	flags.StringVar(&o.server, "server", "", "URL of di-server (not of the API server), in place of a forwarded port")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with a token of audience di-server, in place of one made for the job's pod")
	flags.StringVar(&o.namespace, "server-namespace", names.SystemNamespace, "namespace that di-server runs in")
	flags.StringVar(&o.service, "server-service", names.ServerService, "name of di-server's Service")
	flags.StringVar(&o.key, "idempotency-key", "", "name of this request; the same one again is not done again (default a random one)")
}

// check says what is wrong with the flags, and completes them.
func (o *callOptions) check(command *cobra.Command) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.server != "" {
		for _, other := range []string{"server-namespace", "server-service"} {
			if command.Flags().Changed(other) {
				return exit.Usagef("--server and --%s exclude each other: they say in two ways where di-server is", other)
			}
		}
		var err error
		if o.server, err = serverURL(o.server); err != nil {
			return err
		}
	}
	if o.key == "" {
		o.key = string(uuid.NewUUID())
	}
	return nil
}

// serverURL accepts an address with and without scheme.
func serverURL(given string) (string, error) {
	address := given
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.RawQuery != "" || parsed.User != nil {
		return "", exit.Usagef("--server %q: want a URL such as http://localhost:8080", given)
	}
	return strings.TrimRight(address, "/"), nil
}

// job takes the name of the job off the arguments, or from --coordinator-name.
func (o *callOptions) job(args []string) (string, []string, error) {
	if o.coordinator != "" {
		job, found := strings.CutSuffix(o.coordinator, names.CoordinatorPod(""))
		if !found || job == "" {
			return "", nil, exit.Usagef("--coordinator-name %q: want the name of a coordinator's pod, %s", o.coordinator, names.CoordinatorPod("JOB"))
		}
		return job, args, nil
	}
	job, err := arguments.Job(args)
	if err != nil {
		return "", nil, err
	}
	return job, args[1:], nil
}

// conversation is what a command has to talk to di-server about a job.
type conversation struct {
	*callOptions
	cluster *cluster.Cluster
	job     *v2alpha1.DIJob
	server  *diserver.Client
}

// begin finds the job, a token and a way to di-server. It calls the API server
// only. The check may refuse the job before a token is made.
func (o *callOptions) begin(command *cobra.Command, name string, check func(*v2alpha1.DIJob) error) (*conversation, error) {
	ctx := command.Context()
	found, err := o.flags.Connect()
	if err != nil {
		return nil, err
	}
	job, err := found.Job(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := check(job); err != nil {
		return nil, err
	}
	token, err := o.token(ctx, found, job)
	if err != nil {
		return nil, err
	}
	return &conversation{callOptions: o, cluster: found, job: job, server: diserver.New(diserver.Options{
		Way: o.way(found), Token: token, IdempotencyKey: o.key, RetryWait: retryWait,
		Report: func(err error) { fmt.Fprintf(command.ErrOrStderr(), "kubectl-di: %v; calling again\n", err) },
	})}, nil
}

func (o *callOptions) way(found *cluster.Cluster) diserver.Way {
	if o.server != "" {
		return diserver.At(o.server)
	}
	return found.Forward(o.namespace, o.service)
}

// token returns the token that is given, or one that is made for the job.
func (o *callOptions) token(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) (string, error) {
	if o.tokenFile == "" {
		return found.Token(ctx, job)
	}
	content, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("--token-file %s: holds no token", o.tokenFile)
	}
	return token, nil
}

// of returns whom a request is about in the v1 protocol.
func (c *conversation) of() diserver.Coordinator {
	return diserver.Coordinator{Namespace: c.job.Namespace, Name: names.CoordinatorPod(c.job.Name)}
}

// title names the job for people.
func (c *conversation) title() string {
	return "job " + c.job.Namespace + "/" + c.job.Name
}

// isCoordinatorLed reports whether a job speaks the v1 protocol.
func isCoordinatorLed(job *v2alpha1.DIJob) bool {
	return job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed
}

// explain adds to an error what to do where it is unknown whether the request was
// done.
func (c *conversation) explain(err error) error {
	var unanswered *diserver.UnansweredError
	if !errors.As(err, &unanswered) {
		return err
	}
	return fmt.Errorf("%w\nwhether it was done is not known: run the command again within an hour with "+
		"--idempotency-key %s, and it is done once", err, c.key)
}
