// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// watcher prints the jobs of a list, and then those that change.
type watcher struct {
	*listing
	selector labels.Selector
	lines    cli.Lines
	isBegun  bool
	first    []v2alpha1.DIJob
	// shown are the last rows, without the age.
	shown  map[types.UID][]string
	failed error
}

// follow lists the jobs of a namespace, and then prints a line for each change until the context ends.
func (o *listing) follow(ctx context.Context, found *cluster.Cluster, namespace string) error {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := &watcher{listing: o, selector: selector, lines: cli.Lines{Out: o.Out, Column: "PHASE"}, shown: map[types.UID][]string{}}
	err = found.Observe(ctx, cluster.WatchJobs(namespace), func(change cluster.Change) {
		if w.see(change); w.failed != nil {
			stop()
		}
	})
	return cmp.Or(w.failed, err)
}

// see takes a change.
func (w *watcher) see(change cluster.Change) {
	job, isJob := change.Object.(*v2alpha1.DIJob)
	switch {
	case change.Broken != nil:
		fmt.Fprintf(w.ErrOut, "kubectl-di: watching jobs: %v; trying again\n", change.Broken)
	case change.Complete && !w.isBegun:
		w.begin()
	case !isJob || !w.selector.Matches(labels.Set(job.Labels)):
	case !w.isBegun:
		w.first = append(w.first, *job)
	default:
		w.changed(job, change.Gone)
	}
}

// begin prints the jobs that exist.
func (w *watcher) begin() {
	w.isBegun = true
	slices.SortFunc(w.first, func(a, b v2alpha1.DIJob) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	w.first = slices.DeleteFunc(w.first, func(job v2alpha1.DIJob) bool { return !w.isWanted(&job) })
	for i := range w.first {
		w.shown[w.first[i].UID] = w.row(&w.first[i], time.Time{})
	}
	w.failed = w.lines.Write(w.table(w.first, time.Now()))
}

// changed prints a job if one of its columns has changed.
func (w *watcher) changed(job *v2alpha1.DIJob, isGone bool) {
	before, isShown := w.shown[job.UID]
	row := w.row(job, time.Time{})
	switch {
	case isGone && !isShown, !isShown && !w.isWanted(job), !isGone && slices.Equal(before, row):
		return
	}
	w.shown[job.UID] = row
	row = w.row(job, time.Now())
	if isGone {
		delete(w.shown, job.UID)
		row[slices.Index(w.table(nil, time.Time{})[0], "PHASE")] = "Deleted"
	}
	w.failed = w.lines.Write(cli.Table{row})
}
