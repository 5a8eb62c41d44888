// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// listing are the flags of list.
type listing struct {
	*cli.Env
	selector string
	phases   []string
	stuck    bool
	all      bool
	output   cli.Data
}

// NewListCommand returns kubectl di list.
func NewListCommand(env *cli.Env) *cobra.Command {
	o, phases := &listing{Env: env}, replicas.Phases()
	command := cli.NewCommand(cli.Help{
		Use: "list", Short: "List jobs, all or those in a phase or stuck",
		Long: `List jobs with the columns of kubectl get dijobs.

A job is stuck if a user must act: its spec is invalid, the API server refuses its pods,
or its pods make no progress, as with an image that cannot be pulled. A job that waits
in a queue or for capacity is not stuck, nor is a suspended one.`,
		Example: `  # What is stuck, in all namespaces
  kubectl di list --stuck -A

  # What runs or has failed
  kubectl di list --phase Running,Failed

  # The names of those that have failed
  kubectl di list --phase Failed -o name`,
	}, o.run)
	command.Aliases = []string{"ls"}
	command.SuggestFor = []string{"get", "jobs", "ps"}
	flags := command.Flags()
	flags.StringSliceVar(&o.phases, "phase", nil, "only jobs in these phases: "+strings.Join(phases, ", "))
	flags.BoolVar(&o.stuck, "stuck", false, "only jobs that are stuck: a user must act")
	flags.BoolVarP(&o.all, "all-namespaces", "A", false, "the jobs of all namespaces")
	flags.StringVarP(&o.selector, "selector", "l", "", "only jobs with these labels")
	o.output.Bind(command, "print the jobs", "name")
	_ = command.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phases, cobra.ShellCompDirectiveNoFileComp))
	cli.Before(command, o.check)
	return command
}

func (o *listing) check() error {
	phases := replicas.Phases()
	for i, phase := range o.phases {
		at := slices.IndexFunc(phases, func(known string) bool { return strings.EqualFold(known, phase) })
		if at < 0 {
			return cli.Usagef("--phase %q: want one of %s", phase, strings.Join(phases, ", "))
		}
		o.phases[i] = phases[at]
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return cli.Usagef("-l %q: %w", o.selector, err)
	}
	return o.CheckNamespaces(o.all)
}

func (o *listing) run(ctx context.Context) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	namespace := found.Namespace
	if o.all {
		namespace = ""
	}
	jobs, err := found.Jobs(ctx, namespace, o.selector)
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(job v2alpha1.DIJob) bool { return !o.isWanted(&job) })
	if len(jobs) == 0 && o.output.IsText() {
		where := "any namespace"
		if namespace != "" {
			where = "namespace " + namespace
		}
		fmt.Fprintf(o.ErrOut, "kubectl-di: there are no %sjobs in %s\n", o.filtered(), where)
		return nil
	}
	return o.print(jobs)
}

// filtered returns what precedes the jobs that flags select.
func (o *listing) filtered() string {
	if len(o.phases) > 0 || o.stuck || o.selector != "" {
		return "such "
	}
	return ""
}

// isWanted reports whether a job is listed.
func (o *listing) isWanted(job *v2alpha1.DIJob) bool {
	phase := jobview.Summarize(job, jobview.Members{}).Phase
	return (len(o.phases) == 0 || slices.Contains(o.phases, string(phase))) && (!o.stuck || jobview.IsStuck(job))
}

func (o *listing) print(jobs []v2alpha1.DIJob) error {
	if o.output.Form == "name" {
		for i := range jobs {
			fmt.Fprintf(o.Out, "dijob.%s/%s\n", v2alpha1.GroupName, jobs[i].Name)
		}
		return nil
	}
	if !o.output.IsText() {
		return o.output.Print(o.Out, listOf(jobs))
	}
	rows := cli.Table{{"NAME", "PHASE", "READY", "REASON", "RESTARTS", "DURATION", "AGE"}}
	for i := range jobs {
		rows = append(rows, Row(&jobs[i], time.Now()))
	}
	if o.all {
		rows[0] = slices.Insert(rows[0], 0, "NAMESPACE")
		for i := range jobs {
			rows[i+1] = slices.Insert(rows[i+1], 0, jobs[i].Namespace)
		}
	}
	var out bytes.Buffer
	rows.Write(&out, "")
	_, err := o.Out.Write(out.Bytes())
	return err
}

// listOf returns the list that kubectl get prints.
func listOf(jobs []v2alpha1.DIJob) *v2alpha1.DIJobList {
	list := &v2alpha1.DIJobList{Items: jobs}
	list.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJobList"))
	for i := range jobs {
		jobs[i].SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
		jobs[i].ManagedFields = nil
	}
	return list
}

// Row returns the columns of a job in the list.
func Row(job *v2alpha1.DIJob, now time.Time) []string {
	s := jobview.Summarize(job, jobview.Members{})
	recorded := ptr.Deref(job.Status.Summary, v2alpha1.StatusSummary{Restarts: s.Restarts})
	return []string{s.Name, string(s.Phase), s.ReadyText(), s.Reason, strconv.Itoa(int(recorded.Restarts)), recorded.Duration, replicas.Age(now, s.CreatedAt)}
}
