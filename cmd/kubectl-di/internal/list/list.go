// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package list is kubectl di list.
package list

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
)

const long = `List jobs, in the columns of kubectl get dijobs.

-o wide adds how many pods of each role run, and why a job does not get on. With
-w the list goes on with each job that changes.`

const examples = `  # The jobs of the namespace, and why one does not get on
  kubectl di list -o wide

  # The jobs of all namespaces, as they change
  kubectl di list -A -w

  # The jobs of a team, by label
  kubectl di list -l team=rl

  # The names of the jobs that have failed
  kubectl di list -o jsonpath='{range .items[?(@.status.phase=="Failed")]}{.metadata.name}{"\n"}{end}'`

const formWide = "wide"

// options are the flags of list.
type options struct {
	flags     *cluster.Flags
	streams   genericiooptions.IOStreams
	print     *printing.Flags
	all       bool
	labels    string
	fields    string
	watch     bool
	noHeaders bool
	showLabel bool
}

// NewCommand returns the command.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	options := &options{flags: flags, streams: streams, print: printing.New("", formWide)}
	command := &cobra.Command{
		Use:     "list [JOB...]",
		Aliases: []string{"ls", "get"},
		Short:   "List jobs",
		Long:    long,
		Example: examples,
		Args:    arguments.CheckJobs,
		RunE: func(command *cobra.Command, args []string) error {
			return options.run(command.Context(), args)
		},
		ValidArgsFunction: arguments.CompleteJobs(flags),
	}
	own := command.Flags()
	own.SortFlags = false
	own.BoolVarP(&options.all, "all-namespaces", "A", false, "list the jobs of all namespaces")
	own.StringVarP(&options.labels, "selector", "l", "", "list the jobs that these labels select, such as team=rl,stage!=test")
	own.StringVar(&options.fields, "field-selector", "", "list the jobs that these fields select; the API server knows status.phase, spec.lifecycle, metadata.name and metadata.namespace")
	own.BoolVarP(&options.watch, "watch", "w", false, "go on with each job that changes")
	own.BoolVar(&options.noHeaders, "no-headers", false, "print no headers")
	own.BoolVar(&options.showLabel, "show-labels", false, "print the labels as the last column")
	options.print.Bind(command)
	return command
}

// check says what is wrong with the flags.
func (o *options) check(jobs []string) error {
	switch {
	case len(jobs) > 0 && (o.labels != "" || o.fields != ""):
		return exit.Usagef("JOB %q and a selector exclude each other: they say in two ways which jobs", jobs[0])
	case len(jobs) > 0 && o.all:
		return exit.Usagef("JOB %q and -A exclude each other: a name is one of a namespace", jobs[0])
	case len(jobs) > 1 && o.watch:
		return exit.Usagef("-w: want one job, or all of them, not %d", len(jobs))
	}
	return nil
}

func (o *options) run(ctx context.Context, args []string) error {
	jobs, err := arguments.Jobs(args)
	if err != nil {
		return err
	}
	if err := o.check(jobs); err != nil {
		return err
	}
	shown, err := o.shown()
	if err != nil {
		return err
	}
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	which := o.selection(found)
	if len(jobs) == 0 {
		jobs = []string{""}
	}
	var from string
	for _, which.Name = range jobs {
		if from, err = found.Select(ctx, &which, shown.add); err != nil {
			return err
		}
	}
	if err := shown.end(o, &which); err != nil || !o.watch {
		return err
	}
	return found.Watch(ctx, &which, from, shown.change)
}

// selection says which jobs are meant.
func (o *options) selection(found *cluster.Cluster) cluster.Selection {
	which := cluster.Selection{Namespace: found.Namespace, Labels: o.labels, Fields: o.fields, Table: o.print.IsText()}
	if o.all {
		which.Namespace = ""
	}
	return which
}

// shower shows jobs: those that are there, and those that change.
type shower interface {
	add(object runtime.Object) error
	end(o *options, which *cluster.Selection) error
	change(kind watch.EventType, object runtime.Object) error
}

func (o *options) shown() (shower, error) {
	if o.print.IsText() {
		writer := printers.GetNewTabWriter(o.streams.Out)
		return &rows{flush: writer.Flush, out: writer, last: map[types.UID]string{}, isWide: o.print.Form() == formWide, printer: printers.NewTablePrinter(printers.PrintOptions{
			WithNamespace: o.all, Wide: o.print.Form() == formWide, NoHeaders: o.noHeaders, ShowLabels: o.showLabel,
		})}, nil
	}
	if o.noHeaders || o.showLabel {
		return nil, exit.Usagef("--no-headers and --show-labels: want no -o, or -o wide, not %q", o.print.Form())
	}
	printer, err := o.print.Printer("")
	if err != nil {
		return nil, err
	}
	return &forms{out: o.streams.Out, printer: printer, last: map[types.UID]string{}}, nil
}

// rows shows jobs in a table.
type rows struct {
	printer printers.ResourcePrinter
	out     io.Writer
	flush   func() error
	count   int
	// last are the rows that were printed last, of which none is printed again.
	last   map[types.UID]string
	isWide bool
	// columns are those of the first table: later ones come without.
	columns []metav1.TableColumnDefinition
}

func (r *rows) add(object runtime.Object) error {
	table, err := tableOf(object)
	if err != nil {
		return err
	}
	for i := range table.Rows {
		r.isNew(table, &table.Rows[i])
	}
	if r.count += len(table.Rows); len(table.Rows) == 0 {
		return nil
	}
	return r.printer.PrintObj(table, r.out)
}

func tableOf(object runtime.Object) (*metav1.Table, error) {
	table, isTable := object.(*metav1.Table)
	if !isTable {
		return nil, errors.New("listing jobs: the API server makes no table of them: use -o json")
	}
	return table, nil
}

// isNew reports whether a row says anything but its age that was not printed of its
// job last, and keeps it as the last.
func (r *rows) isNew(table *metav1.Table, row *metav1.TableRow) bool {
	metadata, err := meta.Accessor(row.Object.Object)
	if err != nil {
		return true // It is of no job that is known again.
	}
	if len(table.ColumnDefinitions) > 0 {
		r.columns = table.ColumnDefinitions
	}
	if len(r.columns) != len(row.Cells) {
		return true // It is not known what its cells are.
	}
	var cells []any
	for i, cell := range row.Cells {
		if column := &r.columns[i]; column.Type != "date" && (column.Priority == 0 || r.isWide) {
			cells = append(cells, cell)
		}
	}
	now := fmt.Sprint(cells, metadata.GetLabels())
	if r.last[metadata.GetUID()] == now {
		return false
	}
	r.last[metadata.GetUID()] = now
	return true
}

func (r *rows) end(o *options, which *cluster.Selection) error {
	if r.count == 0 && !o.watch {
		fmt.Fprintln(o.streams.ErrOut, none(which))
	}
	return r.flush()
}

// none says where there is no job.
func none(which *cluster.Selection) string {
	text := "No jobs found"
	if which.Labels != "" || which.Fields != "" {
		text = "No such jobs found"
	}
	if which.Namespace == "" {
		return text + " in any namespace."
	}
	return text + " in namespace " + which.Namespace + "."
}

// change shows rows that say something new, and those of jobs that are gone.
func (r *rows) change(kind watch.EventType, object runtime.Object) error {
	table, err := tableOf(object)
	if err != nil {
		return err
	}
	table = table.DeepCopy()
	table.Rows = slices.DeleteFunc(table.Rows, func(row metav1.TableRow) bool { return !r.isNew(table, &row) && kind != watch.Deleted })
	if err := r.printer.PrintObj(table, r.out); err != nil {
		return err
	}
	return r.flush()
}

// forms shows jobs as -o says.
type forms struct {
	printer printers.ResourcePrinter
	out     io.Writer
	items   []runtime.Object
	single  bool
	// last are the versions of the jobs that were printed last.
	last map[types.UID]string
}

func (f *forms) add(object runtime.Object) error {
	if !meta.IsListType(object) {
		f.items, f.single = append(f.items, object), true
		return nil
	}
	items, err := meta.ExtractList(object)
	f.items = append(f.items, items...)
	return err
}

// end prints the jobs: one that was named as it is, others in a list, and those
// that are watched one by one, as kubectl get does.
func (f *forms) end(o *options, _ *cluster.Selection) error {
	if o.watch || f.single && len(f.items) == 1 {
		for _, item := range f.items {
			f.isNew(item)
			if err := f.printer.PrintObj(item, f.out); err != nil {
				return err
			}
		}
		return nil
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}}}
	for _, item := range f.items {
		if one, isUnstructured := item.(*unstructured.Unstructured); isUnstructured {
			list.Items = append(list.Items, *one)
		}
	}
	return f.printer.PrintObj(list, f.out)
}

func (f *forms) change(_ watch.EventType, object runtime.Object) error {
	if !f.isNew(object) {
		return nil
	}
	return f.printer.PrintObj(object, f.out)
}

// isNew reports whether a version of a job was not printed last, and keeps it as
// the last.
func (f *forms) isNew(object runtime.Object) bool {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return true // It is of no job that is known again.
	}
	if f.last[metadata.GetUID()] == metadata.GetResourceVersion() {
		return false
	}
	f.last[metadata.GetUID()] = metadata.GetResourceVersion()
	return true
}
