// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/observe"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/etcd"
	"opendilab.org/di-orchestrator/test/testkit/figures"
)

const (
	// operatorMemory is the memory limit of the chart's default.
	operatorMemory = 768 << 20
	// heapLimit is the maximum heap of the operator per pod, as documented in docs/operations.md.
	heapLimit = 50 << 10
	// defaultQPS is the operator's default request rate, which limits its speed.
	defaultQPS = 200
	// podGrowth is the maximum ratio of the sizes of a pod of the largest job and one of the smallest.
	podGrowth = 1.1
	// largestValue is the maximum size of a value in etcd.
	largestValue = 1536 << 10
)

// Size measures what etcd and the operator hold for jobs of different shapes.
type Size struct{ load drive.Load }

// NewSize returns the measurement.
func NewSize() *Size {
	return &Size{drive.Load{Shapes: "1x100,1x1000,1x5000,100x5,500x1,led100,led1000,led2000"}}
}

// Name implements run.Measurement.
func (*Size) Name() string { return "size" }

// Flags implements run.Measurement.
func (z *Size) Flags(flags *flag.FlagSet) { z.load.Register(flags, "shapes", "operator-flags") }

// shape is a number of worker-led jobs of so many pods, or one coordinator-led job with so many replicas beside its
// coordinator.
type shape struct {
	jobs, replicas int
	led            bool
}

// parseShape parses 100x5 or led100.
func parseShape(text string) (s shape, err error) {
	if _, err = fmt.Sscanf(text, "led%d", &s.replicas); err == nil {
		s.jobs, s.led = 1, true
	} else if _, err = fmt.Sscanf(text, "%dx%d", &s.jobs, &s.replicas); err != nil {
		return s, fmt.Errorf("shape %q: must be such as 100x5 or led100", text)
	}
	if s.jobs < 1 || s.replicas < 1 {
		return s, fmt.Errorf("shape %q: numbers must be at least 1", text)
	}
	return s, nil
}

func (s shape) String() string {
	if s.led {
		return fmt.Sprintf("coordinator and %d", s.replicas)
	}
	return fmt.Sprintf("%dx%d", s.jobs, s.replicas)
}

// pods returns the number of pods.
func (s shape) pods() int {
	if s.led {
		return s.replicas + 1
	}
	return s.jobs * s.replicas
}

// footprint is what etcd stores, in bytes.
type footprint struct {
	jobs, pods, configMaps, memberships int64
	// nodes is the length of DI_NODES.
	nodes int64
}

// sizeRow is the cost of a shape.
type sizeRow struct {
	shape
	exist, running time.Duration
	peak, resident int64
	// heap and processor are per pod.
	heap      int64
	processor time.Duration
	holds     footprint
	asked     controlplane.Requests
}

const sizeNotes = `
Bytes are the values in etcd once all jobs run, as they are stored: DIJobs, pods, the ConfigMap of addresses of a worker-led job, and the Membership
of a coordinator-led one, by which a stand-in for di-server asks for all replicas at once. Inline is what DI_NODES alone would take as a value in each
pod: its length times the pods. The live heap, after a garbage collection, and processor time are of the operator for a pod, from before the
jobs are submitted until they run. Each row has an operator of its own, under %s; its peak is the most memory that it held at any
time (VmHWM), and must stay below the chart's memory limit of %s.
`

// Run implements run.Measurement.
func (z *Size) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	var shapes []shape
	for text := range strings.SplitSeq(z.load.Shapes, ",") {
		parsed, err := parseShape(text)
		if err != nil {
			return nil, err
		}
		shapes = append(shapes, parsed)
	}
	w, err := cluster.Start(ctx, s, &cluster.Options{})
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, w.Stop)
	var rows []*sizeRow
	for _, shape := range shapes {
		row, err := z.measure(ctx, w, shape)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", shape, err)
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		row.judge(&missed, rows[slices.IndexFunc(rows, func(other *sizeRow) bool { return other.led == row.led })])
	}
	return missed, z.print(s, rows)
}

// judge records the limits that a row misses, given the first of its lifecycle.
func (r *sizeRow) judge(missed *figures.Limits, first *sizeRow) {
	missed.Require(r.peak < operatorMemory, "%s: the operator held %s, its limit is %s", r, figures.Mebibytes(r.peak), figures.Mebibytes(operatorMemory))
	missed.Require(r.heap <= heapLimit, "%s: the operator holds %s for each pod, the limit is %s", r, kibibytes(r.heap), kibibytes(heapLimit))
	missed.Require(r.podSize() <= podGrowth*first.podSize(), "%s: a pod takes %.0f bytes, one of %s %.0f: pods grow with their job",
		r, r.podSize(), first, first.podSize())
	missed.Require(r.asked.All() <= r.requestLimit(), "%s: the operator made %d requests, the limit is %d", r, r.asked.All(), r.requestLimit())
	// Twice the time that the requests take at the operator's rate, plus some for the jobs.
	missed.Under(r.exist, 2*time.Duration(r.asked.All())*time.Second/defaultQPS+5*time.Second, r.String()+": until all pods exist")
	missed.Require(max(r.holds.memberships, r.holds.configMaps/int64(r.jobs)) < largestValue, "%s: etcd takes no object of more than %d bytes", r, largestValue)
}

// requestLimit returns one request for each pod, two in a coordinator-led job, plus a tenth for Events and counts, plus
// some for each job.
func (r *sizeRow) requestLimit() int {
	perPod := 1
	if r.led {
		perPod = 2
	}
	return perPod*r.pods()*11/10 + 20*r.jobs
}

func (r *sizeRow) podSize() float64 { return float64(r.holds.pods) / float64(r.pods()) }

func kibibytes(bytes int64) string { return fmt.Sprintf("%.1f KiB", float64(bytes)/1024) }

func (z *Size) print(s *run.Session, rows []*sizeRow) error {
	table := s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs x pods\tDIJobs\tpods\ta pod\tConfigMaps\tMembership\tinline\tall pods exist\trun\theap/pod\tCPU/pod\tRSS\tpeak RSS\trequests\t")
	for _, row := range rows {
		holds := &row.holds
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", row, kibibytes(holds.jobs), kibibytes(holds.pods),
			kibibytes(int64(row.podSize())), kibibytes(holds.configMaps), kibibytes(holds.memberships), kibibytes(int64(row.pods())*holds.nodes),
			figures.Seconds(row.exist), figures.Seconds(row.running), kibibytes(row.heap), figures.Millis(row.processor),
			figures.Mebibytes(row.resident), figures.Mebibytes(row.peak), row.asked.All())
	}
	err := table.Flush()
	fmt.Fprintf(s.Out, sizeNotes, cluster.OperatorMemoryLimit, figures.Mebibytes(operatorMemory))
	fmt.Fprintln(s.Out, "\nAll requests of the operator until the jobs run:")
	for _, row := range rows {
		fmt.Fprintf(s.Out, "  %s: %s\n", row, row.asked)
	}
	return err
}

// measure measures a shape until all its jobs are running.
func (z *Size) measure(ctx context.Context, w *cluster.World, of shape) (*sizeRow, error) {
	w.Say("%s", of)
	operator, err := w.Programs.StartOperator(ctx, 0, "", z.load.Flags()...)
	if err != nil {
		return nil, err
	}
	// The first job fills caches of types and connections.
	if _, err := drive.Learn(ctx, w, 1); err != nil {
		return nil, err
	}
	if _, err := w.WaitQuiet(ctx, quiet); err != nil {
		return nil, err
	}
	row := &sizeRow{shape: of}
	before, err := observe.Read(w.Plane, w.Programs.All())
	if err != nil {
		return nil, err
	}
	heap, err := observe.LiveHeap(ctx, operator.Pprof)
	if err != nil {
		return nil, err
	}
	if err := submitShape(ctx, w, of); err != nil {
		return nil, err
	}
	if err := w.WaitRunning(ctx, cluster.Namespace, of.pods()); err != nil {
		return nil, err
	}
	if err := awaitJobs(ctx, w, of.jobs); err != nil {
		return nil, err
	}
	row.exist, row.running = w.Pods.Of(cluster.Namespace).Created.Sub(before.At), time.Since(before.At)
	if _, err := w.WaitQuiet(ctx, quiet); err != nil {
		return nil, err
	}
	// The processor time is read before the heap, so that it excludes the cost of the measurement.
	after, err := observe.Read(w.Plane, w.Programs.All())
	if err != nil {
		return nil, err
	}
	pods := of.pods()
	row.processor = after.Used(&before)[observe.Operator] / time.Duration(pods)
	row.resident, row.peak = after.Operators[0].Resident, after.Operators[0].PeakBytes
	if row.heap, err = observe.LiveHeap(ctx, operator.Pprof); err != nil {
		return nil, err
	}
	row.heap = (row.heap - heap) / int64(pods)
	counts, err := w.Since(before.Mark)
	if err != nil {
		return nil, err
	}
	row.asked = counts[cluster.UserOperator].Without("leases")
	if row.holds, err = footprintOf(ctx, w); err != nil {
		return nil, err
	}
	return row, clearRound(ctx, w)
}

func submitShape(ctx context.Context, w *cluster.World, of shape) error {
	if !of.led {
		return jobsClient{}.start(ctx, w, drive.Load{Jobs: of.jobs, Pods: of.replicas})
	}
	job := drive.CoordinatorLed(drive.JobName(0))
	if err := drive.Submit(ctx, w.Client, job); err != nil {
		return err
	}
	return ask(ctx, w, job, of.replicas)
}

// awaitJobs returns when so many jobs are running. The caller waits for their pods first because the lists are costly.
func awaitJobs(ctx context.Context, w *cluster.World, jobs int) error {
	return w.Poll(ctx, fmt.Sprintf("%d jobs run", jobs), 500*time.Millisecond, func(ctx context.Context) (bool, error) {
		var list v2alpha1.DIJobList
		if err := w.API.List(ctx, &list, client.InNamespace(cluster.Namespace)); err != nil {
			return false, fmt.Errorf("reading jobs: %w", err)
		}
		have := 0
		for i := range list.Items {
			if status := &list.Items[i].Status; status.Phase == v2alpha1.JobRunning && status.ReadyReplicas == status.Replicas {
				have++
			}
		}
		return have == jobs, nil
	})
}

// ask requests collectors once the coordinator is running, as di-server does.
func ask(ctx context.Context, w *cluster.World, job *v2alpha1.DIJob, replicas int) error {
	if err := errors.Join(w.WaitRunning(ctx, cluster.Namespace, 1), awaitJobs(ctx, w, 1)); err != nil {
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
	if err := w.Client.Update(ctx, list); err != nil {
		return fmt.Errorf("asking for replicas of job %s: %w", job.Name, err)
	}
	return nil
}

// footprintOf reads what etcd stores for the jobs.
func footprintOf(ctx context.Context, w *cluster.World) (f footprint, err error) {
	for prefix, sum := range map[string]*int64{
		etcd.Job(cluster.Namespace, ""):                                               &f.jobs,
		"/registry/pods/" + cluster.Namespace + "/":                                   &f.pods,
		"/registry/configmaps/" + cluster.Namespace + "/job-":                         &f.configMaps,
		"/registry/" + v2alpha1.GroupName + "/memberships/" + cluster.Namespace + "/": &f.memberships,
	} {
		err := w.Etcd().Each(ctx, prefix, func(value etcd.Value) error {
			*sum += int64(len(value.Value))
			return nil
		})
		if err != nil {
			return f, err
		}
	}
	var configMaps corev1.ConfigMapList
	if err := w.API.List(ctx, &configMaps, client.InNamespace(cluster.Namespace)); err != nil {
		return f, fmt.Errorf("reading the addresses of jobs: %w", err)
	}
	for i := range configMaps.Items {
		f.nodes = max(f.nodes, int64(len(configMaps.Items[i].Data[names.EnvDINodes])))
	}
	return f, nil
}
