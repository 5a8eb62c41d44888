// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/view"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/history/record"
)

// filter are the flags that select jobs.
type filter struct {
	since, phase, group, user, reason, text string
	all                                     bool
}

func (f *filter) bind(env *cli.Env, command *cobra.Command) {
	phases := replicas.Phases()
	flags := command.Flags()
	flags.StringVar(&f.since, "since", "", "only jobs that were created in this span, such as 36h or 7d, or since a time")
	flags.StringVar(&f.phase, "phase", "", "only jobs whose last phase is this: "+strings.Join(phases, ", "))
	flags.StringVar(&f.group, "group", "", "only jobs of this group")
	flags.StringVar(&f.user, "user", "", "only jobs that this user created")
	flags.StringVar(&f.reason, "reason", "", "only jobs that ended for this reason, such as OOMKilled")
	flags.StringVar(&f.text, "text", "", "only jobs with this in their name, group, user, reason or message")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "the jobs of all namespaces")
	_ = command.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phases, cobra.ShellCompDirectiveNoFileComp))
	cli.Before(command, func() error {
		if err := env.CheckNamespaces(f.all); err != nil {
			return err
		}
		at := slices.IndexFunc(phases, func(known string) bool { return strings.EqualFold(known, f.phase) })
		if f.phase != "" && at < 0 {
			return cli.Usagef("--phase %q: want one of %s", f.phase, strings.Join(phases, ", "))
		}
		if f.phase != "" {
			f.phase = phases[at]
		}
		_, err := timeOf("since", f.since, time.Now())
		return err
	})
}

// isSet reports whether a flag selects jobs.
func (f *filter) isSet() bool { return f.since+f.phase+f.group+f.user+f.reason+f.text != "" }

// query returns the query of a page of a namespace.
func (f *filter) query(namespace string, now time.Time) url.Values {
	if f.all {
		namespace = ""
	}
	query := url.Values{
		"namespace": {namespace}, "phase": {f.phase}, "group": {f.group}, "creator": {f.user}, "reason": {f.reason}, "text": {f.text},
	}
	// The flag was checked.
	if start, err := timeOf("since", f.since, now); err == nil && !start.IsZero() {
		query.Set("since", start.UTC().Format(time.RFC3339Nano))
	}
	return query
}

// listing are the flags of history list.
type listing struct {
	reading
	filter filter
	limit  int
	output cli.Data
}

func newListCommand(env *cli.Env) *cobra.Command {
	o := &listing{reading: reading{Env: env}}
	command := cli.NewCommand(cli.Help{
		Use: "list", Short: "List jobs of the history, the newest first",
		Example: `  # What failed in the last week, in all namespaces
  kubectl di history list --since 7d --phase Failed -A

  # What ran out of memory
  kubectl di history list --reason OOMKilled

  # The UIDs of all jobs named pong
  kubectl di history list --text pong -o wide`,
	}, o.run)
	command.Aliases = []string{"ls"}
	o.filter.bind(env, command)
	command.Flags().IntVar(&o.limit, "limit", 100, "list at most this many jobs")
	o.output.Bind(command, "print the jobs", "wide", "name")
	o.bind(command)
	o.completeFilter(command)
	cli.Before(command, func() error {
		if o.limit < 1 {
			return cli.Usagef("--limit %d: must be 1 or more", o.limit)
		}
		return nil
	})
	return command
}

func (o *listing) run(ctx context.Context) error {
	from, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer from.End()
	list := record.Page{Jobs: []record.Summary{}}
	list.Next, err = from.Pages(ctx, o.filter.query(from.Cluster.Namespace, time.Now()), o.limit, func(jobs []record.Summary) (bool, error) {
		list.Jobs = append(list.Jobs, jobs...)
		return true, nil
	})
	if err != nil {
		return err
	}
	if err := o.print(list, time.Now()); err != nil {
		return err
	}
	if list.Next != "" {
		fmt.Fprintf(o.ErrOut, "kubectl-di: there are more jobs than --limit %d: raise it, or select fewer\n", o.limit)
	}
	return nil
}

func (o *listing) print(list record.Page, now time.Time) error {
	switch {
	case o.output.Form == "name":
		for i := range list.Jobs {
			fmt.Fprintf(o.Out, "dijob.%s/%s\n", v2alpha1.GroupName, list.Jobs[i].Name)
		}
		return nil
	case !o.output.IsText() && o.output.Form != "wide":
		return o.output.Print(o.Out, list)
	case len(list.Jobs) == 0:
		such := ""
		if o.filter.isSet() {
			such = "such "
		}
		fmt.Fprintf(o.ErrOut, "kubectl-di: the history has no %sjobs there\n", such)
		return nil
	}
	rows := cli.Table{{"NAME", "PHASE", "REASON", "AGE", "ENDED", "DURATION", "GROUP", "USER"}}
	wide := []string{"RESTARTS", "UID", "MESSAGE"}
	for i := range list.Jobs {
		rows = append(rows, row(&list.Jobs[i], now))
	}
	for i := range rows {
		if o.output.Form == "wide" {
			if i > 0 {
				job := &list.Jobs[i-1]
				wide = []string{strconv.FormatInt(job.Restarts, 10), job.UID, job.Message}
			}
			rows[i] = append(rows[i], wide...)
		}
		if o.filter.all {
			place := "NAMESPACE"
			if i > 0 {
				place = list.Jobs[i-1].Namespace
			}
			rows[i] = slices.Insert(rows[i], 0, place)
		}
	}
	var out bytes.Buffer
	rows.Write(&out, "")
	_, err := o.Out.Write(out.Bytes())
	return err
}

// row returns the columns of a job in the list.
func row(job *record.Summary, now time.Time) []string {
	ended := ""
	if !job.Ended.IsZero() {
		ended = replicas.Age(now, job.Ended) + " ago"
	}
	return []string{
		job.Name, view.PhaseOf(job.Phase, job.Ended, job.Unseen), job.Reason, replicas.Age(now, job.Created), ended, view.SpanOf(job.Started, job.Ended, now),
		job.Group, job.Creator,
	}
}
