// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/etcd"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

const (
	// operatorMemory is the memory limit of the chart's default.
	operatorMemory = 768 << 20
	// defaultQPS is the operator's default request rate, which limits its speed.
	defaultQPS = 200
	// podGrowth is the maximum ratio of the sizes of a pod of the largest job and one of the
	// smallest.
	podGrowth = 1.1
)

// largestValue is the maximum size of a value in etcd.
const largestValue = 1536 << 10

// size is the number of pods of the single job, in addition to its coordinator if it has one.
type size struct {
	pods int
	led  bool
}

func (s size) String() string {
	if s.led {
		return fmt.Sprintf("coordinator and %d", s.pods)
	}
	return shape{1, s.pods}.String()
}

// sizes returns the sizes of worker-led jobs, and of coordinator-led ones up to the largest
// Membership.
func sizes() []size {
	return []size{{100, false}, {1000, false}, {5000, false}, {100, true}, {1000, true}, {limits.Members, true}}
}

// footprint is what etcd stores for one running job.
type footprint struct {
	job, pods, configMaps, memberships int64
	// nodes is the length of DI_NODES.
	nodes int64
}

func (f *footprint) total() int64 { return f.job + f.pods + f.configMaps + f.memberships }

// sizeRow is the cost of one job.
type sizeRow struct {
	size
	exist, running time.Duration
	peak           int64
	holds          footprint
	asked          controlplane.Requests
}

const sizeNotes = `
One job. Bytes are the values in etcd once the job runs, as they are stored: the DIJob, all its pods together, its ConfigMap of
addresses if it is worker-led, and its Membership if it is coordinator-led, by which a stand-in for di-server asks for all
replicas at once. Inline is what DI_NODES alone would take as a value in each pod: its length times the pods. Each row has an operator of its own, under %s; its peak is the most memory
that it held at any time (VmHWM), and must stay below the chart's memory limit of %s.
`

// runSizes measures the storage in etcd and the memory of the operator for jobs of growing size.
func (b *bench) runSizes(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	var rows []*sizeRow
	for _, size := range sizes() {
		row, err := w.sizeUp(ctx, size)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", size, err)
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		first := rows[slices.IndexFunc(rows, func(other *sizeRow) bool { return other.led == row.led })]
		missed.Require(row.peak < operatorMemory, "%s: the operator held %s, its limit is %s", row, figures.Mebibytes(row.peak), figures.Mebibytes(operatorMemory))
		missed.Require(row.podSize() <= podGrowth*first.podSize(), "%s: a pod takes %.0f bytes, one of %s %.0f: pods grow with their job",
			row, row.podSize(), first, first.podSize())
		missed.Require(row.asked.All() <= row.requestLimit(), "%s: the operator made %d requests, the limit is %d", row, row.asked.All(), row.requestLimit())
		missed.Under(row.exist, row.paceLimit(), row.String()+": until all pods exist")
		missed.Require(max(row.holds.memberships, row.holds.configMaps) < largestValue, "%s: etcd takes no object of more than %d bytes", row, largestValue)
	}
	return missed, b.printSizes(rows)
}

// requestLimit returns one request for each pod, two in a coordinator-led job, plus a tenth for
// Events and counts, plus some for the job.
func (r *sizeRow) requestLimit() int {
	perPod := 1
	if r.led {
		perPod = 2
	}
	return perPod*r.pods*11/10 + 20
}

// paceLimit returns twice the time that the requests take at the operator's rate, plus some for the
// job.
func (r *sizeRow) paceLimit() time.Duration {
	return 2*time.Duration(r.asked.All())*time.Second/defaultQPS + 5*time.Second
}

func (r *sizeRow) podSize() float64 { return float64(r.holds.pods) / float64(r.pods) }

func (b *bench) printSizes(rows []*sizeRow) error {
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "job\tDIJob\tpods\ta pod\tConfigMap\tMembership\tall\tinline\tall pods exist\trun\tpeak RSS\trequests\t")
	for _, row := range rows {
		holds := &row.holds
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", row, kibibytes(holds.job), kibibytes(holds.pods),
			kibibytes(int64(row.podSize())), kibibytes(holds.configMaps), kibibytes(holds.memberships), kibibytes(holds.total()),
			kibibytes(int64(row.pods)*holds.nodes), figures.Seconds(row.exist), figures.Seconds(row.running), figures.Mebibytes(row.peak), row.asked.All())
	}
	err := table.Flush()
	fmt.Fprintf(b.Out, sizeNotes, harness.OperatorMemoryLimit, figures.Mebibytes(operatorMemory))
	fmt.Fprintln(b.Out, "\nAll requests of the operator until the job runs:")
	for _, row := range rows {
		fmt.Fprintf(b.Out, "  %s: %s\n", row, row.asked)
	}
	return err
}

// sizeUp measures one job until it is running.
func (w *world) sizeUp(ctx context.Context, size size) (*sizeRow, error) {
	w.Say("%s", size)
	if err := errors.Join(w.startOperator(ctx), w.warmUp(ctx)); err != nil {
		return nil, err
	}
	mark, err := w.WaitQuiet(ctx, time.Second)
	if err != nil {
		return nil, err
	}
	job := harness.WorkerLedJob(oursNamespace, "size", size.pods)
	pods := size.pods
	if size.led {
		job, pods = harness.CoordinatorLedJob(oursNamespace, "size"), pods+1
	}
	began := time.Now()
	if err := w.submit(ctx, job); err != nil {
		return nil, err
	}
	if size.led {
		if err := w.ask(ctx, job, size.pods); err != nil {
			return nil, err
		}
	}
	row := &sizeRow{size: size}
	last, err := w.waitPods(ctx, job.Namespace, pods)
	if err != nil {
		return nil, err
	}
	row.exist = last.Sub(began)
	if err := w.waitRunning(ctx, job.Namespace, 1, pods); err != nil {
		return nil, err
	}
	row.running = time.Since(began)
	if _, err := w.WaitQuiet(ctx, time.Second); err != nil {
		return nil, err
	}
	counts, err := w.Since(mark)
	if err != nil {
		return nil, err
	}
	row.asked = counts[harness.UserOperator].Without("leases")
	if row.holds, err = w.footprintOf(ctx, job); err != nil {
		return nil, err
	}
	usage, err := w.operator.Usage()
	row.peak = usage.PeakBytes
	return row, errors.Join(err, w.clear(ctx), w.stopOperator())
}

// ask requests collectors once the coordinator is running, as di-server does.
func (w *world) ask(ctx context.Context, job *v2alpha1.DIJob, replicas int) error {
	if err := w.waitRunning(ctx, job.Namespace, 1, 1); err != nil {
		return err
	}
	list := &v2alpha1.Membership{}
	if err := w.API.Get(ctx, client.ObjectKeyFromObject(job), list); err != nil {
		return fmt.Errorf("reading the Membership of job %s: %w", job.Name, err)
	}
	demand := membership.Demand{Task: v2alpha1.TaskTypeCollector, Replicas: int32(replicas)}
	grow := membership.Grow{Job: job.Name, Demands: []membership.Demand{demand}, MaxMembers: membership.MaxMembers, Random: rand.String}
	if _, err := grow.Apply(&list.Spec, &list.Status); err != nil {
		return fmt.Errorf("adding members: %w", err)
	}
	if err := w.submitter.Update(ctx, list); err != nil {
		return fmt.Errorf("asking for replicas of job %s: %w", job.Name, err)
	}
	return nil
}

// footprintOf reads the footprint of the only job of its namespace from etcd.
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
