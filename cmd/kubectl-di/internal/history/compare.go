// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/view"
)

// comparing are the flags of history compare.
type comparing struct {
	reading
	uids   [2]string
	lowest []string
	output cli.Data
}

func newCompareCommand(env *cli.Env) *cobra.Command {
	o := &comparing{reading: reading{Env: env}}
	command := cli.Help{
		Use: "compare A B", Short: "Compare two jobs: spec, resources, times and reported values",
		Long: `Compare two jobs of the history: how they ended, the fields of the spec that differ,
what their tasks requested and used at most, and the last and best value of each series.

The best value is the highest one, and the lowest one of a series with loss or error in
its name. --lowest names others. A and B may be one name, of two jobs by their UIDs.`,
		Example: `  # Has the larger batch helped?
  kubectl di history compare pong pong-2

  # A job and its rerun of the same name
  kubectl di history compare pong pong --uid-a 2b7c... --uid-b 91f0...`,
	}.Command()
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 2 {
			return cli.Usagef("%d jobs: want two to compare", len(args))
		}
		return nil
	}
	command.RunE = func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) }
	command.ValidArgsFunction = func(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		return o.complete(command, nil, "")
	}
	flags := command.Flags()
	flags.StringVar(&o.uids[0], "uid-a", "", "UID of A, of several with this name (default the newest)")
	flags.StringVar(&o.uids[1], "uid-b", "", "UID of B, of several with this name (default the newest)")
	flags.StringSliceVar(&o.lowest, "lowest", nil, "series whose lowest value is the best; may be repeated")
	o.output.Bind(command, "print the comparison")
	o.bind(command)
	return command
}

func (o *comparing) run(ctx context.Context, args []string) error {
	names := [2]string{}
	for i := range args {
		name, err := cli.Job(args[i:])
		if err != nil {
			return err
		}
		names[i] = name
	}
	from, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer from.End()
	sides := make([]view.Side, len(names))
	for i, name := range names {
		if sides[i].Job, err = jobOf(ctx, from, name, o.uids[i]); err != nil {
			return err
		}
		if sides[i].Curves, err = from.Curves(ctx, sides[i].Job); err != nil {
			return err
		}
	}
	compared := &comparison{Comparison: view.Compare(sides, o.lowest, time.Now())}
	for _, one := range compared.Comparison.Spec {
		compared.Spec = append(compared.Spec, pair{one.Field, one.Values[0], one.Values[1]})
	}
	if !o.output.IsText() {
		return o.output.Print(o.Out, compared)
	}
	var out bytes.Buffer
	compared.render(&out)
	_, err = o.Out.Write(out.Bytes())
	return err
}

// comparison is the answer about two jobs.
type comparison struct {
	*view.Comparison
	Spec []pair `json:"spec"`
}

// pair is a field that differs. A value is JSON; "" in a job without the field.
type pair struct {
	Field string `json:"field"`
	A     string `json:"a,omitempty"`
	B     string `json:"b,omitempty"`
}

// render writes the comparison as text.
func (c *comparison) render(out *bytes.Buffer) {
	a, b := &c.Jobs[0], &c.Jobs[1]
	count := func(number int32) string { return strconv.Itoa(int(number)) }
	rows := cli.Table{
		{"JOB", "A", "B"},
		{"Name:", a.Name, b.Name},
		{"UID:", a.UID, b.UID},
		{"Phase:", a.Phase, b.Phase},
		{"Reason:", a.Reason, b.Reason},
		{"Created:", view.Moment(a.Created), view.Moment(b.Created)},
		{"Time to start:", a.ToStart, b.ToStart},
		{"Duration:", a.Took, b.Took},
		{"Restarts:", count(a.Restarts), count(b.Restarts)},
		{"Reschedules:", count(a.Reschedules), count(b.Reschedules)},
	}
	rows.Write(out, "")
	c.renderSpec(out)
	rows = cli.Table{{"TASK", "OF A REPLICA", "A", "B"}}
	for _, one := range c.Resources() {
		rows = append(rows, append([]string{one.Task, one.What}, one.Values...))
	}
	writePart(out, "Resources", rows)
	rows = cli.Table{{"SERIES", "LAST OF A", "LAST OF B", "BEST OF A", "BEST OF B", "BEST IS"}}
	for _, name := range slices.Sorted(maps.Keys(c.Series)) {
		series, is := c.Series[name], "highest"
		if series.Lowest {
			is = "lowest"
		}
		rows = append(rows, []string{name, number(series.Last[0]), number(series.Last[1]), number(series.Best[0]), number(series.Best[1]), is})
	}
	writePart(out, "Series", rows)
}

func (c *comparison) renderSpec(out *bytes.Buffer) {
	for _, why := range c.Unknown {
		writePart(out, "Spec", cli.Table{{"FIELD"}, {why}})
	}
	if len(c.Unknown) > 0 {
		return
	}
	rows := cli.Table{{"FIELD", "A", "B"}}
	for i := range c.Spec {
		one := &c.Spec[i]
		rows = append(rows, []string{one.Field, shortened(one.A), shortened(one.B)})
	}
	writePart(out, "Spec", rows)
}

// writePart writes a part whose table has a header.
func writePart(out *bytes.Buffer, title string, rows cli.Table) {
	fmt.Fprintf(out, "\n%s:\n", title)
	if len(rows) == 1 {
		rows = cli.Table{{view.None}}
	}
	rows.Write(out, "  ")
}

func number(value *float64) string {
	if value == nil {
		return view.None
	}
	return strconv.FormatFloat(*value, 'g', 6, 64)
}

// shortened returns a value that fits in a cell.
func shortened(value string) string {
	const most = 60
	if runes := []rune(value); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return value
}
