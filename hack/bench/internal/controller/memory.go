// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// heapLimit is the maximum heap of the operator per pod, as documented in docs/operations.md.
const heapLimit = 50 << 10

// shape is a number of jobs and the number of pods of each.
type shape struct{ jobs, pods int }

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.jobs, s.pods) }

const memoryNotes = `
Per pod, from before the jobs are submitted until they run: the live heap after a garbage collection, and processor time. A pod's bytes are
those of one as protobuf, without managed fields. RSS is of the operator, under %s.
`

// runMemory measures the operator's memory and processor time for each pod.
func (b *bench) runMemory(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs x pods\ta pod's bytes\theap/pod\tRSS\tCPU/pod\t")
	for _, s := range []shape{{1, 125}, {1, 1000}, {100, 5}, {500, 1}} {
		row, err := w.weigh(ctx, s)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", s, err)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.2f ms\t\n", s, kibibytes(int64(row.podSize)), kibibytes(row.heap), figures.Mebibytes(row.resident),
			row.processor.Seconds()*1000)
		missed.Require(row.heap <= heapLimit, "%s: the operator holds %s for each pod, the limit is %s", s, kibibytes(row.heap), kibibytes(heapLimit))
	}
	err = table.Flush()
	fmt.Fprintf(b.Out, memoryNotes, harness.OperatorMemoryLimit)
	return missed, err
}

func kibibytes(bytes int64) string { return fmt.Sprintf("%.1f KiB", float64(bytes)/1024) }

// cost is the cost of a shape: per pod, except for the resident memory.
type cost struct {
	podSize   int
	heap      int64
	resident  int64
	processor time.Duration
}

// weigh measures the operator until all jobs of a shape are running. It reads the processor usage
// before the heap, so that it excludes the cost of the measurement.
func (w *world) weigh(ctx context.Context, s shape) (c cost, err error) {
	w.Say("%s", s)
	if err := w.startOperator(ctx); err != nil {
		return c, err
	}
	defer harness.Close(&err, w.stopOperator)
	if err := w.warmUp(ctx); err != nil {
		return c, err
	}
	before, err := w.operator.Usage()
	if err != nil {
		return c, err
	}
	heap, err := liveHeap(ctx, w.pprof)
	if err != nil {
		return c, err
	}
	pods := s.jobs * s.pods
	if err := w.submitAll(ctx, s); err != nil {
		return c, err
	}
	if err := w.waitRunning(ctx, oursNamespace, s.jobs, pods); err != nil {
		return c, err
	}
	if _, err := w.WaitQuiet(ctx, time.Second); err != nil {
		return c, err
	}
	after, err := w.operator.Usage()
	if err != nil {
		return c, err
	}
	c.resident, c.processor = after.Resident, (after.Processor-before.Processor)/time.Duration(pods)
	if c.heap, err = liveHeap(ctx, w.pprof); err != nil {
		return c, err
	}
	c.heap = (c.heap - heap) / int64(pods)
	if c.podSize, err = w.podSize(ctx); err != nil {
		return c, err
	}
	return c, w.clear(ctx)
}

var heapAllocated = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap returns the size of a program's heap after a garbage collection.
func liveHeap(ctx context.Context, pprof string) (int64, error) {
	raw, err := program.Read(ctx, "http://"+pprof+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAllocated.FindSubmatch(raw)
	if found == nil {
		return 0, errors.New("a heap profile lacks HeapAlloc")
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

// podSize returns the size of a cached pod: encoded as protobuf, without managed fields.
func (w *world) podSize(ctx context.Context) (int, error) {
	var pods corev1.PodList
	if err := w.API.List(ctx, &pods, client.InNamespace(oursNamespace), client.Limit(1)); err != nil || len(pods.Items) == 0 {
		return 0, errors.Join(errors.New("reading a pod"), err)
	}
	pods.Items[0].ManagedFields = nil
	raw, err := pods.Items[0].Marshal()
	if err != nil {
		return 0, fmt.Errorf("encoding a pod: %w", err)
	}
	return len(raw), nil
}
