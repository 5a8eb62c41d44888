// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	// heapRatio is the limit: how much more than the pods themselves the operator
	// may hold; processorRatio, how much more a pod of the largest job may cost
	// beyond being watched than one of the smallest. What a pod of a small job
	// takes beside its bytes is let pass.
	heapRatio      = 2
	heapSlack      = 16 << 10
	processorRatio = 2
)

// memoryShapes are one job of growing size, and many small.
func memoryShapes() []shape {
	return []shape{{1, 125}, {1, 250}, {1, 500}, {1, 1000}, {100, 5}, {500, 1}}
}

// cost is what a program holds and has computed for each pod.
type cost struct {
	heap, processor float64
	resident        int64
}

const memoryNotes = `
Per pod, from before the jobs are submitted until they run: the live heap after a garbage collection, and processor time. The
watcher is a process that does nothing but keep the same pods in an informer, without their managed fields: what the pods
themselves take, and what it takes to learn of them. A pod's bytes are those of one as protobuf. Beyond is the operator less the
watcher: what it costs to decide and to write, and what is held besides. RSS is of the operator, under %s.
`

// runMemory measures what the operator holds and computes for each pod.
func (b *bench) runMemory(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs x pods\ta pod's bytes\theap/pod: operator\twatcher\tratio\tbeyond\tRSS\tCPU/pod: operator\twatcher\tbeyond\t")
	kibibytes := func(bytes float64) string { return fmt.Sprintf("%.1f KiB", bytes/1024) }
	millis := func(seconds float64) string { return fmt.Sprintf("%.2f ms", seconds*1000) }
	beyond := map[shape]float64{}
	for _, s := range memoryShapes() {
		size, ours, bare, err := w.weigh(ctx, s)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", s, err)
		}
		beyond[s] = ours.processor - bare.processor
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\t", s, kibibytes(float64(size)),
			kibibytes(ours.heap), kibibytes(bare.heap), ours.heap/bare.heap, kibibytes(ours.heap-bare.heap), figures.Mebibytes(ours.resident),
			millis(ours.processor), millis(bare.processor), millis(beyond[s]))
		fmt.Fprintln(table, row)
		b.Say("%s", row)
		missed.Require(ours.heap <= heapRatio*bare.heap+heapSlack, "%s: the operator holds %s for each pod, the pods themselves are %s, the limit is %d times that and %s",
			s, kibibytes(ours.heap), kibibytes(bare.heap), heapRatio, kibibytes(heapSlack))
	}
	least, most := shape{1, 125}, shape{1, 1000}
	missed.Require(beyond[most] <= processorRatio*beyond[least], "a pod of %s costs %s beyond being watched, one of %s %s: not linear",
		most, millis(beyond[most]), least, millis(beyond[least]))
	err = table.Flush()
	fmt.Fprintf(b.Out, memoryNotes, harness.OperatorMemoryLimit)
	return missed, err
}

// weigh measures the operator and the watcher while a shape comes to run.
func (w *world) weigh(ctx context.Context, s shape) (size int, ours, bare cost, err error) {
	w.Say("%s", s)
	if err := w.startOperator(ctx); err != nil {
		return 0, cost{}, cost{}, err
	}
	kubeconfig, err := w.Kubeconfig(userWatcher)
	if err != nil {
		return 0, cost{}, cost{}, err
	}
	watcher, err := program.StartOwn(ctx, nil, "controller", "-role", roleWatcher, "-cluster", strings.TrimPrefix(kubeconfig, "KUBECONFIG="))
	if err != nil {
		return 0, cost{}, cost{}, err
	}
	defer harness.Close(&err, watcher.Stop)
	if err := w.warmUp(ctx); err != nil {
		return 0, cost{}, cost{}, err
	}
	before, err := w.weighBoth(ctx, watcher)
	if err != nil {
		return 0, cost{}, cost{}, err
	}
	if err := w.submitAll(ctx, jobsOf(oursNamespace, "weigh", s.jobs, s.pods), nil); err != nil {
		return 0, cost{}, cost{}, err
	}
	if err := w.waitRunning(ctx, oursNamespace, s.jobs, s.jobs*s.pods); err != nil {
		return 0, cost{}, cost{}, err
	}
	if _, err := w.WaitQuiet(ctx, time.Second); err != nil {
		return 0, cost{}, cost{}, err
	}
	after, err := w.weighBoth(ctx, watcher)
	if err != nil {
		return 0, cost{}, cost{}, err
	}
	if size, err = w.podSize(ctx); err != nil {
		return 0, cost{}, cost{}, err
	}
	err = errors.Join(w.stopOperator(), w.clear(ctx))
	pods := s.jobs * s.pods
	return size, after[0].less(&before[0], pods), after[1].less(&before[1], pods), err
}

// weight is what a program holds and has computed at one moment.
type weight struct {
	heap  int64
	usage program.Usage
}

// less returns what came since, for each pod.
func (w *weight) less(before *weight, pods int) cost {
	return cost{
		heap:      float64(w.heap-before.heap) / float64(pods),
		processor: (w.usage.Processor - before.usage.Processor).Seconds() / float64(pods),
		resident:  w.usage.Resident,
	}
}

// weighBoth weighs the operator and the watcher. What they compute for it is
// not theirs: the usage is read before it at the end, and nearly nothing is
// there to collect at the start.
func (w *world) weighBoth(ctx context.Context, watcher *program.Process) (both [2]weight, err error) {
	for i, one := range []struct {
		process *program.Process
		pprof   string
	}{{w.operator, w.pprof}, {watcher, watcher.Address}} {
		if both[i].usage, err = one.process.Usage(); err != nil {
			return both, err
		}
		if both[i].heap, err = liveHeap(ctx, one.pprof); err != nil {
			return both, err
		}
	}
	return both, nil
}

var heapAllocated = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap returns what is left of a program's heap after a garbage collection.
func liveHeap(ctx context.Context, pprof string) (int64, error) {
	raw, err := program.Read(ctx, "http://"+pprof+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAllocated.FindSubmatch(raw)
	if found == nil {
		return 0, errors.New("a heap profile does not tell what is allocated")
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

// podSize returns the size of a pod as protobuf, as it is cached, without managed fields.
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
