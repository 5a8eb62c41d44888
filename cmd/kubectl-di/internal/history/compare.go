// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/fields"
	"opendilab.org/di-orchestrator/history/record"
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
	defer from.end()
	var sides [2]side
	for i, name := range names {
		if sides[i].job, err = from.job(ctx, name, o.uids[i]); err != nil {
			return err
		}
		if sides[i].curves, err = from.curves(ctx, sides[i].job); err != nil {
			return err
		}
		sides[i].spec, sides[i].why = specOf(sides[i].job)
	}
	compared := compare(sides, o.lowest, time.Now())
	if !o.output.IsText() {
		return o.output.Print(o.Out, compared)
	}
	var out bytes.Buffer
	compared.render(&out)
	_, err = o.Out.Write(out.Bytes())
	return err
}

// side is one of the jobs.
type side struct {
	job    job
	spec   *spec
	why    error
	curves []record.Series
}

// comparison is the answer. The values of A come first.
type comparison struct {
	Jobs    [2]outcome           `json:"jobs"`
	Spec    []fields.Difference  `json:"spec"`
	Tasks   map[string][2]*task  `json:"tasks"`
	Series  map[string]seriesEnd `json:"series"`
	unknown []string
}

// outcome is how a job went.
type outcome struct {
	Name    string    `json:"name"`
	UID     string    `json:"uid"`
	Phase   string    `json:"phase"`
	Reason  string    `json:"reason,omitempty"`
	Created time.Time `json:"created"`
	// TimeToStart and Duration are in seconds; nil if the job has not started.
	TimeToStart *float64 `json:"timeToStart,omitempty"`
	Duration    *float64 `json:"duration,omitempty"`
	Restarts    int32    `json:"restarts"`
	Reschedules int32    `json:"reschedules,omitempty"`

	toStart, took string
}

// seriesEnd is the last and the best value of a series in both jobs; nil in a job without it.
type seriesEnd struct {
	Last [2]*float64 `json:"last"`
	Best [2]*float64 `json:"best"`
	// Lowest is set if the best value is the lowest one.
	Lowest bool `json:"lowest,omitempty"`
}

// compare compares two jobs.
func compare(sides [2]side, lowest []string, now time.Time) *comparison {
	c := &comparison{Tasks: map[string][2]*task{}, Series: map[string]seriesEnd{}}
	var manifests [2]json.RawMessage
	for i := range sides {
		of := &sides[i]
		c.Jobs[i] = outcomeOf(of.job, now)
		if of.why != nil {
			c.unknown = append(c.unknown, fmt.Sprintf("job %s: %v", of.job.Name, of.why))
		}
		manifests[i] = of.job.Manifest
		for _, found := range tasksOf(of.job, of.spec) {
			both := c.Tasks[found.Name]
			both[i] = &found
			c.Tasks[found.Name] = both
		}
		for _, series := range of.curves {
			if len(series.Points) == 0 {
				continue
			}
			both := c.Series[series.Name]
			both.Lowest = isLowestBest(series.Name, lowest)
			both.Last[i], both.Best[i] = &series.Points[len(series.Points)-1].Value, best(series.Points, both.Lowest)
			c.Series[series.Name] = both
		}
	}
	if len(c.unknown) == 0 {
		c.Spec = fields.Differences(manifests[0], manifests[1])
	}
	return c
}

func outcomeOf(of job, now time.Time) outcome {
	found := outcome{
		Name: of.Name, UID: of.UID, Phase: phaseOf(of.Phase, of.Ended, of.Unseen), Reason: of.Reason, Created: of.Created,
		Restarts: of.Seen.Restarts, Reschedules: of.Seen.Reschedules,
	}
	if of.Started.IsZero() {
		return found
	}
	ended := of.Ended
	if ended.IsZero() {
		ended = now
	}
	toStart, took := of.Started.Sub(of.Created).Seconds(), ended.Sub(of.Started).Seconds()
	found.TimeToStart, found.Duration = &toStart, &took
	found.toStart, found.took = spanOf(of.Created, of.Started, now), spanOf(of.Started, of.Ended, now)
	return found
}

func isLowestBest(series string, named []string) bool {
	lower := strings.ToLower(series)
	return strings.Contains(lower, "loss") || strings.Contains(lower, "error") || slices.Contains(named, series)
}

// best returns the highest or the lowest value.
func best(points []record.Point, isLowest bool) *float64 {
	found := points[0].Value
	for _, point := range points {
		if isLowest {
			found = math.Min(found, point.Value)
		} else {
			found = math.Max(found, point.Value)
		}
	}
	return &found
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
		{"Created:", moment(a.Created), moment(b.Created)},
		{"Time to start:", a.toStart, b.toStart},
		{"Duration:", a.took, b.took},
		{"Restarts:", count(a.Restarts), count(b.Restarts)},
		{"Reschedules:", count(a.Reschedules), count(b.Reschedules)},
	}
	rows.Write(out, "")
	c.renderSpec(out)
	rows = cli.Table{{"TASK", "OF A REPLICA", "A", "B"}}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		rows = append(rows, taskRows(name, c.Tasks[name])...)
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
	for _, why := range c.unknown {
		writePart(out, "Spec", cli.Table{{"FIELD"}, {why}})
	}
	if len(c.unknown) > 0 {
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
		rows = cli.Table{{none}}
	}
	rows.Write(out, "  ")
}

// taskRows returns what differs or is known of a task.
func taskRows(name string, both [2]*task) cli.Table {
	var rows cli.Table
	for _, of := range []struct {
		title string
		text  func(*task) string
	}{
		{"replicas", func(t *task) string { return t.Replicas }},
		{"requests", (*task).requestText},
		{"used at most", (*task).peakText},
		{"killed at", (*task).killedText},
	} {
		texts := [2]string{none, none}
		for i, t := range both {
			if t != nil {
				texts[i] = of.text(t)
			}
		}
		if texts != [2]string{} && texts != [2]string{none, none} {
			rows = append(rows, []string{name, of.title, texts[0], texts[1]})
		}
	}
	return rows
}

func number(value *float64) string {
	if value == nil {
		return none
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
