// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/history/record"
)

// summing are the flags of history sums.
type summing struct {
	reading
	by, since, until string
	all              bool
	output           cli.Data
}

func newSumsCommand(env *cli.Env) *cobra.Command {
	o := &summing{reading: reading{Env: env}}
	command := cli.NewCommand(cli.Help{
		Use: "sums", Short: "Sum up the jobs that ended: GPU hours, waiting, failures, requests and usage",
		Example: `  # The GPU hours of each namespace in the last 30 days
  kubectl di history sums -A --by namespace

  # Why jobs of this namespace did not succeed in the last week
  kubectl di history sums --by cause --since 7d`,
	}, o.run)
	var known []string
	for _, by := range record.Bys() {
		known = append(known, string(by))
	}
	command.Flags().StringVar(&o.by, "by", string(record.ByGroup), "what to sum up by: "+strings.Join(known, ", "))
	command.Flags().StringVar(&o.since, "since", "30d", "the jobs that ended in this span, such as 7d, or since a time; whole days")
	command.Flags().StringVar(&o.until, "until", "", "the jobs that ended before this span, such as 7d, or until a time; by default until now")
	command.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "the jobs of all namespaces")
	_ = command.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	o.output.Bind(command, "print the sums")
	o.bind(command)
	cli.Before(command, func() error {
		if err := env.CheckNamespaces(o.all); err != nil {
			return err
		}
		if !slices.Contains(known, o.by) {
			return cli.Usagef("--by %q: want one of %s", o.by, strings.Join(known, ", "))
		}
		_, err := o.query(time.Now())
		return err
	})
	return command
}

// query returns the query without the namespace.
func (o *summing) query(now time.Time) (url.Values, error) {
	query := url.Values{"by": {o.by}}
	for flag, text := range map[string]string{"since": o.since, "until": o.until} {
		at, err := timeOf(flag, text, now)
		if err != nil {
			return nil, err
		}
		if !at.IsZero() {
			query.Set(flag, at.UTC().Format(time.RFC3339))
		}
	}
	return query, nil
}

func (o *summing) run(ctx context.Context) error {
	from, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer from.End()
	query, err := o.query(time.Now())
	if err != nil {
		return err
	}
	if !o.all {
		query.Set("namespace", from.Cluster.Namespace)
	}
	list, err := from.Sums(ctx, query)
	if err != nil {
		return err
	}
	if err := o.print(list); err != nil {
		return err
	}
	if list.Truncated {
		fmt.Fprintf(o.ErrOut, "kubectl-di: there is more than is summed up at once: these are jobs since %s; name a namespace, or a shorter --since\n",
			list.Since.Format(time.DateOnly))
	}
	return nil
}

func (o *summing) print(list record.SumList) error {
	switch {
	case !o.output.IsText():
		return o.output.Print(o.Out, list)
	case len(list.Sums) == 0:
		fmt.Fprintf(o.ErrOut, "kubectl-di: no job ended there since %s\n", list.Since.Format(time.DateOnly))
		return nil
	}
	rows := cli.Table{{strings.ToUpper(o.by), "JOBS", "UNSUCCESSFUL", "GPU HOURS", "WAITED", "CPU USED", "MEMORY USED"}}
	for i := range list.Sums {
		sum := &list.Sums[i]
		cpu, memory := sum.Shares()
		none := "(none)"
		if o.by == string(record.ByCause) {
			none = "(succeeded)"
		}
		rows = append(rows, []string{
			cmp.Or(sum.Key, none), strconv.FormatInt(sum.Jobs, 10), strconv.FormatInt(sum.Unsuccessful, 10), hours(sum.GPU), hours(sum.Waited) + "h",
			percent(cpu), percent(memory),
		})
	}
	var out bytes.Buffer
	rows.Write(&out, "")
	_, err := o.Out.Write(out.Bytes())
	return err
}

func hours(of float64) string { return strconv.FormatFloat(of, 'f', 1, 64) }

// percent returns a share of requests; "" if it was not measured.
func percent(share *float64) string {
	if share == nil {
		return ""
	}
	return strconv.FormatFloat(100**share, 'f', 0, 64) + "%"
}
