// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/tensorboard"
	"opendilab.org/di-orchestrator/history/record"
)

// exporting are the flags of history export.
type exporting struct {
	reading
	filter      filter
	every       bool
	uid         string
	form        string
	tensorboard string
}

func newExportCommand(env *cli.Env) *cobra.Command {
	o := &exporting{reading: reading{Env: env}}
	command := cli.Help{
		Use: "export JOB|--all", Short: "Write records and curves as JSON Lines, CSV or TensorBoard files",
		Long: `Write what is recorded of a job, or with --all of all jobs that the flags select.

jsonl has one line of JSON for each job: its record, with its curves as series. csv has
one line for each point: time, series, value; with --all the namespace, name and UID of
the job before them. --tensorboard writes a folder of event files for each job. A step is
a second since the job was created.`,
		Example: `  # The curves of job pong in TensorBoard
  kubectl di history export pong --tensorboard runs

  # All jobs of a week, for pandas.read_json(lines=True)
  kubectl di history export --all --since 7d > week.jsonl

  # The curves of a job as a table
  kubectl di history export pong -o csv > pong.csv`,
	}.Command()
	command.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case o.every && len(args) > 0:
			return cli.Usagef("JOB %q and --all exclude each other", args[0])
		case o.every:
			return nil
		case len(args) > 1:
			return cli.Usagef("%q: one job at a time, or --all", args[1])
		}
		_, err := cli.Job(args)
		return err
	}
	command.RunE = func(command *cobra.Command, args []string) error { return o.run(command.Context(), args) }
	command.ValidArgsFunction = o.complete
	flags := command.Flags()
	flags.BoolVar(&o.every, "all", false, "export all jobs that the flags select")
	flags.StringVar(&o.uid, "uid", "", "UID of the job, of several with this name (default the newest)")
	cli.Enum(command, &o.form, "output", "o", "jsonl", "write jsonl (records with curves) or csv (curves)", "jsonl", "csv")
	flags.StringVar(&o.tensorboard, "tensorboard", "", "write event files of TensorBoard into this folder instead")
	o.filter.bind(env, command)
	o.bind(command)
	o.completeFilter(command)
	cli.Before(command, func() error {
		switch {
		case !o.every && (o.filter.isSet() || o.filter.all):
			return cli.Usagef("flags that select jobs are for --all")
		case o.every && o.uid != "":
			return cli.Usagef("--uid and --all exclude each other")
		case o.tensorboard != "" && flags.Changed("output"):
			return cli.Usagef("--tensorboard and -o exclude each other")
		}
		return nil
	})
	return command
}

func (o *exporting) run(ctx context.Context, args []string) error {
	from, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer from.End()
	to := o.sink()
	if o.every {
		return errors.Join(o.exportAll(ctx, from, to), to.end())
	}
	name, err := cli.Job(args)
	if err != nil {
		return err
	}
	found, err := jobOf(ctx, from, name, o.uid)
	if err != nil {
		return err
	}
	return errors.Join(export(ctx, from, found, to), to.end())
}

// exportAll exports all jobs that the flags select. One whose record is removed meanwhile is left out.
func (o *exporting) exportAll(ctx context.Context, from *reader.Reader, to sink) error {
	const all = 1 << 30
	count := 0
	_, err := from.Pages(ctx, o.filter.query(from.Cluster.Namespace, time.Now()), all, func(jobs []record.Summary) (bool, error) {
		for i := range jobs {
			found, err := from.Job(ctx, jobs[i].Namespace, jobs[i].Name, jobs[i].UID)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err == nil {
				count++
				err = export(ctx, from, found, to)
			}
			if err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err == nil {
		fmt.Fprintf(o.ErrOut, "kubectl-di: exported jobs: %d\n", count)
	}
	return err
}

func export(ctx context.Context, from *reader.Reader, found job, to sink) error {
	curves, err := from.Curves(ctx, found)
	if err != nil {
		return err
	}
	return to.write(found, curves)
}

// sink is where jobs are exported to.
type sink interface {
	write(job, []record.Series) error
	// end writes what is buffered.
	end() error
}

func (o *exporting) sink() sink {
	switch {
	case o.tensorboard != "":
		return &folder{path: o.tensorboard, report: o.Out}
	case o.form == "csv":
		return &table{csv.NewWriter(o.Out), o.every, false}
	}
	return &lines{json.NewEncoder(o.Out)}
}

// lines writes a line of JSON for each job.
type lines struct{ *json.Encoder }

func (l *lines) write(found job, curves []record.Series) error {
	l.SetEscapeHTML(false)
	return l.Encode(struct {
		*record.Job
		Series []record.Series `json:"series"`
	}{found, curves})
}

func (*lines) end() error { return nil }

// table writes a line of CSV for each point.
type table struct {
	*csv.Writer
	hasJobs, isBegun bool
}

func (t *table) write(found job, curves []record.Series) error {
	header, of := []string{"time", "series", "value"}, []string{}
	if t.hasJobs {
		header, of = append([]string{"namespace", "job", "uid"}, header...), []string{found.Namespace, found.Name, found.UID}
	}
	if !t.isBegun {
		t.isBegun = true
		if err := t.Write(header); err != nil {
			return err
		}
	}
	for _, series := range curves {
		for _, point := range series.Points {
			cells := []string{point.At.UTC().Format(time.RFC3339Nano), series.Name, strconv.FormatFloat(point.Value, 'g', -1, 64)}
			if err := t.Write(slices.Concat(of, cells)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *table) end() error {
	t.Flush()
	return t.Error()
}

// folder writes a folder of event files for each job.
type folder struct {
	path   string
	report io.Writer
}

func (f *folder) write(found job, curves []record.Series) error {
	name := found.Namespace + "-" + found.Name + "-" + found.UID
	if name != filepath.Base(name) {
		return fmt.Errorf("--tensorboard: %q is no name of a folder", name)
	}
	run := filepath.Join(f.path, name)
	if err := os.MkdirAll(run, 0o755); err != nil { // Other users may read curves.
		return fmt.Errorf("--tensorboard: %w", err)
	}
	path := filepath.Join(run, fmt.Sprintf("events.out.tfevents.%d.kubectl-di", found.Created.Unix()))
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--tensorboard: %w", err)
	}
	err = errors.Join(tensorboard.Write(file, found.Created, curves), file.Close())
	if err != nil {
		return fmt.Errorf("--tensorboard: writing %s: %w", path, err)
	}
	_, err = fmt.Fprintln(f.report, path)
	return err
}

func (*folder) end() error { return nil }
