// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"fmt"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

const (
	// finishedNamespace has the jobs that have ended.
	finishedNamespace = "bench-finished"
	// roundJobs are the jobs that run beside them.
	roundJobs = 100
)

const finishedNotes = `
%d jobs run, first alone, then beside jobs that have ended and have no pods. Each row has an operator of its own. For a pod: of these jobs,
until all run and requests cease. At rest: no job changes.
`

// runFinished measures the same jobs alone and beside finished ones.
func (b *bench) runFinished(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx, 2*roundJobs*podsOfJob/podsOfNode)
	if w != nil {
		defer harness.Close(&err, w.stop)
	}
	if err != nil {
		return nil, err
	}
	alone, err := w.climb(ctx, roundJobs)
	if err != nil {
		return nil, fmt.Errorf("alone: %w", err)
	}
	if err := w.finish(ctx); err != nil {
		return nil, err
	}
	beside, err := w.climb(ctx, roundJobs)
	if err != nil {
		return nil, fmt.Errorf("beside %d finished jobs: %w", b.finished, err)
	}
	beside.Finished = b.finished
	b.Data = []*results.Rung{alone, beside}
	missed.Require(beside.Operator.PodMillis <= flatFactor*alone.Operator.PodMillis, "a pod takes %.2f ms of the operator beside finished jobs, %.2f alone",
		beside.Operator.PodMillis, alone.Operator.PodMillis)
	missed.Require(beside.PodRequests <= flatFactor*alone.PodRequests, "a pod takes %.2f requests beside finished jobs, %.2f alone", beside.PodRequests, alone.PodRequests)
	missed.Require(beside.FirstPod.P99 < alone.FirstPod.P99+slowerBy.Seconds(), "the first pod of a new job after %.2f s, alone %.2f s", beside.FirstPod.P99, alone.FirstPod.P99)
	return missed, b.printFinished(alone, beside)
}

func (b *bench) printFinished(rows ...*results.Rung) error {
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "finished jobs\trequests/pod\tCPU/pod\trest\trequests a minute\theap\tfirst pod: p50\tp99\tresize: p50\tp99\t")
	for _, row := range rows {
		fmt.Fprintf(table, "%d\t%.2f\t%.2f ms\t%.1f%%\t%.0f\t%s\t%s\t%s\t\n", row.Finished, row.PodRequests, row.Operator.PodMillis, row.Operator.RestPercent,
			row.RestRequests, figures.Mebibytes(row.Heap), row.FirstPod, row.Resize)
	}
	err := table.Flush()
	fmt.Fprintf(b.Out, finishedNotes, roundJobs)
	return err
}

// finish deletes the running jobs, and stores the finished ones while no operator runs.
func (w *world) finish(ctx context.Context) error {
	if err := w.operator.Stop(); err != nil {
		return err
	}
	w.operator = nil
	if err := w.Clear(ctx, namespace, w.kubelet); err != nil {
		return err
	}
	w.watched.forget(namespace)
	w.askers.forget(namespace)
	if err := w.CreateNamespaces(ctx, finishedNamespace); err != nil {
		return err
	}
	w.Say("storing %d finished jobs", w.bench.finished)
	if err := w.SubmitAll(ctx, w.bench.finished, w.submitFinished); err != nil {
		return err
	}
	return w.startOperator(ctx)
}

// ended is the status of a finished job.
const ended = `{"status":{"phase":"Succeeded","startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T01:00:00Z",` +
	`"conditions":[{"type":"Succeeded","status":"True","reason":"JobSucceeded","message":"","lastTransitionTime":"2026-01-01T01:00:00Z"}]}}`

func (w *world) submitFinished(ctx context.Context, index int) error {
	if err := w.submit(ctx, finishedNamespace, index); err != nil {
		return err
	}
	job := &v2alpha1.DIJob{}
	job.Namespace, job.Name = finishedNamespace, jobName(index)
	if err := w.submitter.Status().Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(ended))); err != nil {
		return fmt.Errorf("ending job %s: %w", job.Name, err)
	}
	return nil
}
