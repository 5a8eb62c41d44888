// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
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
	watch    bool
	output   cli.Data
}

// The forms of the list beside those of all commands.
const (
	formName = "name"
	formWide = "wide"
)

// selectable returns the phases by which jobs are selected, and Suspended, which is no phase.
func selectable() []string { return append(replicas.Phases(), v2alpha1.ConditionSuspended) }

// NewListCommand returns kubectl di list.
func NewListCommand(env *cli.Env) *cobra.Command {
	o, phases := &listing{Env: env}, selectable()
	command := cli.NewCommand(cli.Help{
		Use: "list", Short: "List jobs, all or those in a phase or stuck",
		Long: `List jobs with the columns of kubectl get dijobs.

A job is stuck if a user must act: its spec is invalid, the API server refuses its pods,
or its pods make no progress, as with an image that cannot be pulled. A job that waits
in a queue or for capacity is not stuck, nor is a suspended one.

With --watch it prints a line for each change, until it is interrupted.`,
		Example: `  # What is stuck, in all namespaces
  kubectl di list --stuck -A

  # What runs or has failed
  kubectl di list --phase Running,Failed

  # The queue and the GPUs of each, and what changes
  kubectl di list -o wide -w

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
	flags.BoolVarP(&o.watch, "watch", "w", false, "print a line for each change")
	o.output.Bind(command, "print the jobs", formName, formWide)
	_ = command.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phases, cobra.ShellCompDirectiveNoFileComp))
	cli.Before(command, o.check)
	return command
}

func (o *listing) check() error {
	phases := selectable()
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
	if o.watch && !o.isTable() {
		return cli.Usagef("--watch: prints lines, and not -o %s: leave one of them out", o.output.Form)
	}
	return o.CheckNamespaces(o.all)
}

// isTable reports whether the jobs are printed as a table.
func (o *listing) isTable() bool { return o.output.IsText() || o.output.Form == formWide }

func (o *listing) run(ctx context.Context) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	namespace := found.Namespace
	if o.all {
		namespace = ""
	}
	if o.watch {
		return o.follow(ctx, found, namespace)
	}
	jobs, err := found.Jobs(ctx, namespace, o.selector)
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(job v2alpha1.DIJob) bool { return !o.isWanted(&job) })
	if len(jobs) == 0 && o.isTable() {
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
	s := jobview.Summarize(job, jobview.Members{})
	isSelected := len(o.phases) == 0 || slices.Contains(o.phases, string(s.Phase)) ||
		s.IsSuspended && !s.IsFinished && slices.Contains(o.phases, v2alpha1.ConditionSuspended)
	return isSelected && (!o.stuck || jobview.IsStuck(job))
}

func (o *listing) print(jobs []v2alpha1.DIJob) error {
	if o.output.Form == formName {
		for i := range jobs {
			fmt.Fprintf(o.Out, "dijob.%s/%s\n", v2alpha1.GroupName, jobs[i].Name)
		}
		return nil
	}
	if !o.isTable() {
		return o.output.Print(o.Out, listOf(jobs))
	}
	return (&cli.Lines{Out: o.Out, Column: "PHASE"}).Write(o.table(jobs, time.Now()))
}

// table returns the rows of jobs below their header.
func (o *listing) table(jobs []v2alpha1.DIJob, now time.Time) cli.Table {
	rows := cli.Table{{"NAME", "PHASE", "READY", "REASON", "RESTARTS", "DURATION", "AGE"}}
	if o.output.Form == formWide {
		rows[0] = append(rows[0], "QUEUE", "GPUS")
	}
	if o.all {
		rows[0] = slices.Insert(rows[0], 0, "NAMESPACE")
	}
	for i := range jobs {
		rows = append(rows, o.row(&jobs[i], now))
	}
	return rows
}

// row returns the columns of a job.
func (o *listing) row(job *v2alpha1.DIJob, now time.Time) []string {
	row := Row(job, now)
	if o.output.Form == formWide {
		s := jobview.Summarize(job, jobview.Members{})
		row = append(row, s.Queue, strconv.FormatInt(s.GPUs, 10))
	}
	if o.all {
		row = slices.Insert(row, 0, job.Namespace)
	}
	return row
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
