// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/quantity"
)

// Env is the environment of all commands: the streams, and kubectl's flags for the cluster, the
// user and the namespace. It omits --server, which is di-server's URL in kubectl di, and
// --cache-dir, because there is no discovery.
type Env struct {
	genericiooptions.IOStreams
	config *genericclioptions.ConfigFlags
}

// NewEnv returns the environment of the commands.
func NewEnv(streams genericiooptions.IOStreams) *Env {
	config := genericclioptions.NewConfigFlags(true)
	config.APIServer, config.CacheDir = nil, nil
	return &Env{streams, config}
}

// Bind adds kubectl's flags.
func (e *Env) Bind(flags *pflag.FlagSet) { e.config.AddFlags(flags) }

// HasNamespace reports whether a flag sets the namespace.
func (e *Env) HasNamespace() bool { return *e.config.Namespace != "" }

// CheckNamespaces refuses flag -n of a command whose flag -A selects all namespaces.
func (e *Env) CheckNamespaces(all bool) error {
	if all && e.HasNamespace() {
		return Usagef("-A and -n exclude each other")
	}
	return nil
}

// Connect returns the cluster of the flags and the kubeconfig. It makes no call.
func (e *Env) Connect() (*cluster.Cluster, error) {
	kubeconfig := e.config.ToRawKubeConfigLoader()
	config, err := e.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if raw, err := kubeconfig.RawConfig(); err == nil && len(raw.Clusters) == 0 && config.Host == clientcmd.ClusterDefaults.Server {
		return nil, errors.New("no kubeconfig names a cluster: set --kubeconfig or KUBECONFIG, or write ~/.kube/config")
	}
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace of the kubeconfig: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reportSlow(e.ErrOut, next) })
	config.WarningHandler = rest.NewWarningWriter(e.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	return cluster.New(config, namespace)
}

// ConnectJob connects and reads a job.
func (e *Env) ConnectJob(ctx context.Context, name string) (*cluster.Cluster, *v2alpha1.DIJob, error) {
	found, err := e.Connect()
	if err != nil {
		return nil, nil, err
	}
	job, err := found.Job(ctx, name)
	return found, job, err
}

// Help contains the help texts of a command.
type Help struct{ Use, Short, Long, Example string }

// Command returns a command with these texts.
func (h Help) Command() *cobra.Command {
	command := &cobra.Command{Use: h.Use, Short: h.Short, Long: h.Long, Example: h.Example}
	command.Flags().SortFlags = false
	return command
}

type (
	// Run runs a command without arguments.
	Run func(context.Context) error
	// RunJob runs a command for the job of a name.
	RunJob func(ctx context.Context, job string) error
	// RunJobs runs a command for jobs that were read.
	RunJobs func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob) error
	// runJobs also gets the error about those that could not be read.
	runJobs func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob, unread error) error
	// Check finds a mistake in flags.
	Check func() error
)

// NewCommand returns a command without arguments.
func NewCommand(help Help, run Run) *cobra.Command {
	command := help.Command()
	command.Args = None
	command.RunE = func(command *cobra.Command, _ []string) error { return run(command.Context()) }
	return command
}

// NewJobCommand returns a command with the name of one job as its argument.
func (e *Env) NewJobCommand(help Help, run RunJob) *cobra.Command {
	command := help.Command()
	command.Args = func(command *cobra.Command, args []string) error {
		args, err := withoutCount(command.Flags(), args)
		if err == nil {
			_, err = oneJob(args)
		}
		return err
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		args, err := withoutCount(command.Flags(), args)
		if err != nil {
			return err
		}
		job, err := oneJob(args)
		if err != nil {
			return err
		}
		return run(command.Context(), job)
	}
	command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return e.CompleteJobs(command, nil)
	}
	return command
}

// NewJobsCommand returns a command with jobs by name or by label. It calls run with the jobs that
// it could read.
func (e *Env) NewJobsCommand(help Help, run RunJobs) *cobra.Command {
	return e.newJobsCommand(help, func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob, unread error) error {
		return Join(unread, run(ctx, found, jobs))
	})
}

// NewAllJobsCommand is NewJobsCommand for a command that does nothing if it cannot read all jobs.
func (e *Env) NewAllJobsCommand(help Help, run RunJobs) *cobra.Command {
	return e.newJobsCommand(help, func(ctx context.Context, found *cluster.Cluster, jobs []*v2alpha1.DIJob, unread error) error {
		if unread != nil {
			return fmt.Errorf("%w\nnothing was done", unread)
		}
		return run(ctx, found, jobs)
	})
}

func (e *Env) newJobsCommand(help Help, run runJobs) *cobra.Command {
	command := help.Command()
	var selector string
	var names []string
	command.Flags().StringVarP(&selector, "selector", "l", "", "the jobs of the namespace with these labels, in place of JOB")
	command.Args = func(_ *cobra.Command, args []string) (err error) {
		names, err = jobsOf(args)
		return err
	}
	Before(command, func() error { return checkChoice(names, selector) })
	command.RunE = func(command *cobra.Command, _ []string) error {
		found, err := e.Connect()
		if err != nil {
			return err
		}
		jobs, unread := choose(command.Context(), found, names, selector)
		return run(command.Context(), found, jobs, unread)
	}
	command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return e.CompleteJobs(command, args)
	}
	return command
}

func checkChoice(names []string, selector string) error {
	switch {
	case len(names) == 0 && selector == "":
		return Usagef("JOB is missing: name DIJobs, see kubectl get dijobs, or select them by -l")
	case len(names) > 0 && selector != "":
		return Usagef("JOB %q and -l exclude each other", names[0])
	}
	if _, err := labels.Parse(selector); err != nil {
		return Usagef("-l %q: %w", selector, err)
	}
	return nil
}

// choose reads the named or selected jobs. It returns an error about those that it could not read.
func choose(ctx context.Context, found *cluster.Cluster, names []string, selector string) ([]*v2alpha1.DIJob, error) {
	var jobs []*v2alpha1.DIJob
	var failures []error
	for _, name := range names {
		job, err := found.Job(ctx, name)
		if failures = append(failures, err); err == nil {
			jobs = append(jobs, job)
		}
	}
	if selector != "" {
		selected, err := found.Jobs(ctx, found.Namespace, selector)
		for i := range selected {
			jobs = append(jobs, &selected[i])
		}
		if err == nil && len(jobs) == 0 {
			err = fmt.Errorf("-l %s: selects no job of namespace %s", selector, found.Namespace)
		}
		failures = append(failures, err)
	}
	return jobs, errors.Join(failures...)
}

// Before adds a check of flags that runs before the command makes any call.
func Before(command *cobra.Command, check Check) {
	earlier := command.PreRunE
	command.PreRunE = func(command *cobra.Command, args []string) error {
		if earlier != nil {
			if err := earlier(command, args); err != nil {
				return err
			}
		}
		return check()
	}
}

// Quantity returns the positive amount of a flag; nil if the flag is empty.
func Quantity(flag, text string) (*resource.Quantity, error) {
	if text == "" {
		return nil, nil
	}
	if err := quantity.Check(text); err != nil {
		return nil, Usagef("--%s %q: %w", flag, text, err)
	}
	parsed, err := resource.ParseQuantity(text)
	if err != nil || parsed.Sign() <= 0 {
		return nil, Usagef("--%s %q: want a quantity above 0, such as 2, 500m or 4Gi", flag, text)
	}
	return &parsed, nil
}

// None is cobra.NoArgs with the exit code for wrong usage.
func None(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%q: %s takes no arguments, only flags", args[0], command.CommandPath())
	}
	return nil
}

// Job returns the name of a job, with or without its kind, from the first argument.
func Job(args []string) (string, error) {
	if len(args) == 0 {
		return "", Usagef("JOB is missing: name a DIJob, see kubectl get dijobs")
	}
	job := strings.TrimPrefix(args[0], "dijob/")
	if len(validation.IsDNS1123Subdomain(job)) > 0 {
		return "", Usagef("JOB %q: want the name of a DIJob, see kubectl get dijobs", args[0])
	}
	return job, nil
}

// withoutCount sets --replicas of a command that has it from an argument: scale JOB COUNT. It returns the other arguments.
func withoutCount(flags *pflag.FlagSet, args []string) ([]string, error) {
	flag := flags.Lookup("replicas")
	if len(args) != 2 || flag == nil {
		return args, nil
	}
	if _, err := strconv.Atoi(args[1]); err != nil {
		return args, nil //nolint:nilerr // It is no count, but a name.
	}
	if flag.Changed && flag.Value.String() != args[1] {
		return nil, Usagef("%q: --replicas is %s: leave out one of them", args[1], flag.Value)
	}
	if err := flags.Set("replicas", args[1]); err != nil {
		return nil, Usagef("%q: want a number of replicas: %w", args[1], err)
	}
	return args[:1], nil
}

func oneJob(args []string) (string, error) {
	job, err := Job(args)
	if err == nil && len(args) > 1 {
		return "", Usagef("%q: one job at a time", args[1])
	}
	return job, err
}

// jobsOf returns the distinct names of jobs.
func jobsOf(args []string) ([]string, error) {
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

// KubeconfigNames are the names of the kubeconfig that a user knows.
type KubeconfigNames struct{ Context, Cluster string }

// Names returns the names of the context and the cluster; empty ones if the kubeconfig has none.
func (e *Env) Names() KubeconfigNames {
	raw, err := e.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return KubeconfigNames{}
	}
	names := KubeconfigNames{Context: raw.CurrentContext}
	if *e.config.Context != "" {
		names.Context = *e.config.Context
	}
	if context := raw.Contexts[names.Context]; context != nil {
		names.Cluster = context.Cluster
	}
	if *e.config.ClusterName != "" {
		names.Cluster = *e.config.ClusterName
	}
	return names
}
