// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/etcd"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

const (
	// operatorMemory is the memory limit of the chart's default.
	operatorMemory = 768 << 20
	// podGrowth is the limit: how much larger a pod of the largest job may be than one of the smallest.
	podGrowth = 1.1
)

// sizes are how many pods the one job has.
func sizes() []int { return []int{100, 1000, 5000} }

// footprint is what etcd holds of one job once it runs.
type footprint struct {
	job, pods, configMaps, memberships int64
	// nodes is the length of DI_NODES.
	nodes int64
}

func (f *footprint) total() int64 { return f.job + f.pods + f.configMaps + f.memberships }

// sizeRow is what one job took.
type sizeRow struct {
	pods           int
	exist, running time.Duration
	peak           int64
	holds          footprint
	asked          controlplane.Requests
}

const sizeNotes = `
One worker-led job. Bytes are the values in etcd once the job runs, as they are stored: the DIJob, all its pods together, its
ConfigMaps of addresses and its Memberships, of which a worker-led job has none. Inline is what DI_NODES alone would take as a
value in each pod: its length times the pods. Each row has an operator of its own, under %s; its peak is the most memory
that it held at any time (VmHWM), and must stay below the chart's memory limit of %s.
`

// runSizes measures what jobs of growing size hold in etcd, and in the operator.
func runSizes(ctx context.Context, b *bench) (missed figures.Limits, err error) {
	w, err := newWorld(ctx, b)
	if err != nil {
		return nil, err
	}
	defer errs(&err, w.stop)
	var rows []*sizeRow
	for _, pods := range sizes() {
		row, err := w.sizeUp(ctx, pods)
		if err != nil {
			return missed, fmt.Errorf("1x%d: %w", pods, err)
		}
		rows = append(rows, row)
	}
	first := rows[0]
	for _, row := range rows {
		missed.Require(row.peak < operatorMemory, "1x%d: the operator held %s, its limit is %s", row.pods, figures.Mebibytes(row.peak), figures.Mebibytes(operatorMemory))
		missed.Require(row.podSize() <= podGrowth*first.podSize(), "1x%d: a pod takes %.0f bytes, one of 1x%d %.0f: pods grow with their job",
			row.pods, row.podSize(), first.pods, first.podSize())
	}
	return missed, b.printSizes(rows)
}

func (r *sizeRow) podSize() float64 { return float64(r.holds.pods) / float64(r.pods) }

func (b *bench) printSizes(rows []*sizeRow) error {
	kibibytes := func(bytes int64) string { return fmt.Sprintf("%.1f KiB", float64(bytes)/1024) }
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs x pods\tDIJob\tpods\ta pod\tConfigMaps\tMemberships\tall\tinline\tall pods exist\trun\tpeak RSS\trequests\t")
	for _, row := range rows {
		holds := &row.holds
		fmt.Fprintf(table, "1x%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", row.pods, kibibytes(holds.job), kibibytes(holds.pods),
			kibibytes(int64(row.podSize())), kibibytes(holds.configMaps), kibibytes(holds.memberships), kibibytes(holds.total()),
			kibibytes(int64(row.pods)*holds.nodes), figures.Seconds(row.exist), figures.Seconds(row.running), figures.Mebibytes(row.peak), row.asked.All())
	}
	err := table.Flush()
	fmt.Fprintf(b.out, sizeNotes, installedMemoryLimit, figures.Mebibytes(operatorMemory))
	fmt.Fprintln(b.out, "\nAll requests of the operator until the job runs:")
	for _, row := range rows {
		fmt.Fprintf(b.out, "  1x%d: %s\n", row.pods, row.asked)
	}
	return err
}

// sizeUp measures one job until it runs.
func (w *world) sizeUp(ctx context.Context, pods int) (*sizeRow, error) {
	w.say("1x%d", pods)
	if err := errors.Join(w.startOperator(ctx), w.warmUp(ctx)); err != nil {
		return nil, err
	}
	mark, err := w.waitQuiet(ctx, time.Second)
	if err != nil {
		return nil, err
	}
	profiled := w.profile(ctx, fmt.Sprintf("size-%d", pods))
	job := newJob(oursNamespace, "size", pods)
	began := time.Now()
	if err := w.submit(ctx, job); err != nil {
		return nil, err
	}
	row := &sizeRow{pods: pods}
	last, err := w.waitPods(ctx, job.Namespace, pods)
	if err != nil {
		return nil, err
	}
	row.exist = last.Sub(began)
	if err := w.waitRunning(ctx, job.Namespace, 1, pods); err != nil {
		return nil, err
	}
	row.running = time.Since(began)
	if _, err := w.waitQuiet(ctx, time.Second); err != nil {
		return nil, err
	}
	counts, err := w.Since(mark)
	if err != nil {
		return nil, err
	}
	row.asked = counts[userOperator].Without("leases")
	if row.holds, err = w.footprintOf(ctx, job); err != nil {
		return nil, err
	}
	usage, err := w.operator.Usage()
	row.peak = usage.PeakBytes
	return row, errors.Join(err, profiled(), w.keepHeap(ctx, fmt.Sprintf("size-%d", pods)), w.clear(ctx), w.stopOperator())
}

// footprintOf reads what etcd holds of the only job of its namespace.
func (w *world) footprintOf(ctx context.Context, job *v2alpha1.DIJob) (footprint, error) {
	var f footprint
	stored, err := w.Etcd().Get(ctx, etcd.Job(job.Namespace, job.Name))
	if err != nil {
		return f, err
	}
	f.job = int64(len(stored))
	for prefix, sum := range map[string]*int64{
		"/registry/pods/":       &f.pods,
		"/registry/configmaps/": &f.configMaps,
		"/registry/" + v2alpha1.GroupName + "/memberships/": &f.memberships,
	} {
		err := w.Etcd().Each(ctx, prefix+job.Namespace+"/", func(value etcd.Value) error {
			*sum += int64(len(value.Value))
			return nil
		})
		if err != nil {
			return f, err
		}
	}
	var configMaps corev1.ConfigMapList
	if err := w.API.List(ctx, &configMaps, client.InNamespace(job.Namespace)); err != nil {
		return f, fmt.Errorf("reading the addresses of job %s: %w", job.Name, err)
	}
	for i := range configMaps.Items {
		f.nodes = max(f.nodes, int64(len(configMaps.Items[i].Data[names.EnvDINodes])))
	}
	return f, nil
}
