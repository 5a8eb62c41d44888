// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package measure has the measurements. Each is a type with the load that it measures by default.
package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/test/testkit/figures"
)

const (
	// podsOfJob are the pods of each job of both lifecycles. In a coordinator-led one the first is the coordinator.
	podsOfJob = 5
	// podsOfNode are the pods of each node.
	podsOfNode = 100
	// flatFactor is how many times as much a pod may cost with the most jobs as with the fewest.
	flatFactor = 1.2
	// slowerBy is how much later the first pod of a new job may be created beside the other jobs.
	slowerBy = time.Second
)

// memoryLimit returns the limit of the operator's memory for a number of pods.
func memoryLimit(pods int) int64 {
	if pods <= 10_000 {
		return 256 << 20
	}
	return 512 << 20
}

// Growth measures what the programs, the API server and etcd need for growing numbers of jobs of both lifecycles, and then
// what the most cost beside jobs that have ended.
type Growth struct{ load drive.Load }

// NewGrowth returns the measurement.
func NewGrowth() *Growth {
	return &Growth{drive.Load{Jobs: 10_000, New: 20, Rest: 20 * time.Second, Rate: 100}}
}

// Name implements run.Measurement.
func (*Growth) Name() string { return "growth" }

// Flags implements run.Measurement.
func (g *Growth) Flags(flags *flag.FlagSet) {
	g.load.Register(flags, "jobs", "finished", "new", "rest", "rate", "trace", "operator-flags")
}

// rungs returns the numbers of jobs, beginning with none: 100, 1000 and so on, a fifth of the most, and the most.
func (g *Growth) rungs() []int {
	rungs := []int{0, g.load.Jobs}
	for jobs := 100; jobs < g.load.Jobs; jobs *= 10 {
		rungs = append(rungs, jobs)
	}
	if fifth := g.load.Jobs / 5; fifth > 100 {
		rungs = append(rungs, fifth)
	}
	slices.Sort(rungs)
	return slices.Compact(rungs)
}

const growthNotes = `
One control plane; half of the jobs are worker-led, half coordinator-led and written in v1alpha1, each with 5 pods. Coordinators ask
di-server for their 4 replicas. A stand-in for scheduler and kubelets binds each pod and runs it at once.
For a pod: of the jobs added since the row above, until all run and requests cease. At rest: no job changes; %d GETs a second reach di-server.
Memory is resident after that; the heap is what is live after a garbage collection. New jobs come one after the other, of both lifecycles in
turn; times are from before the call until the pod is in a watch. p99 of so few is the slowest. Finished jobs have no pods; the running ones
beside them have an operator of their own.
`

// Run implements run.Measurement.
func (g *Growth) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	if err := g.load.Check("jobs", "new", "rate"); err != nil {
		return nil, err
	}
	l, err := g.start(ctx, s)
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, l.stop)
	var rows []*results.Rung
	for _, jobs := range g.rungs() {
		row, err := l.climb(ctx, jobs)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%d jobs: %w", jobs, err), printRungs(s, rows))
		}
		rows = append(rows, row)
	}
	if g.load.Finished > 0 {
		row, err := l.besideFinished(ctx)
		if err != nil {
			return nil, fmt.Errorf("beside finished jobs: %w", err)
		}
		rows = append(rows, row)
	}
	s.Data = rows
	judgeRungs(&missed, rows)
	err = printRungs(s, rows)
	fmt.Fprintf(s.Out, growthNotes, g.load.Rate)
	return missed, err
}

// start starts a world with room for all jobs, all programs and one operator. The caller stops it.
func (g *Growth) start(ctx context.Context, s *run.Session) (*ladder, error) {
	coordinators := drive.NewCoordinators()
	w, err := cluster.Start(ctx, s, &cluster.Options{
		Nodes: (g.load.Jobs+g.load.New)*podsOfJob*12/10/podsOfNode + 1, Server: true, Coordinator: coordinators.Add,
		Room: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("256"), corev1.ResourceMemory: resource.MustParse("2Ti"),
			corev1.ResourcePods: *resource.NewQuantity(2*podsOfNode, resource.DecimalSI),
		},
	})
	if err != nil {
		return nil, err
	}
	coordinators.Start(ctx, w.Programs.Server.Address)
	l := &ladder{World: w, load: g.load, coordinators: coordinators}
	if err := l.startOperator(ctx); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

// judgeRungs records the limits that rows miss. The first row is without jobs. The second is the reference of the most, and
// the most are that of the same jobs beside finished ones.
func judgeRungs(missed *figures.Limits, rows []*results.Rung) {
	alone, reference := rows[0], rows[1]
	for i, row := range rows {
		missed.Require(row.Finished > 0 || row.Operator.Resident < memoryLimit(row.Pods), "%d pods: the operator holds %s, the limit is %s",
			row.Pods, figures.Mebibytes(row.Operator.Resident), figures.Mebibytes(memoryLimit(row.Pods)))
		missed.Require(row.FailedCalls == 0, "%d jobs: %d calls of di-server failed, such as: %s", row.Jobs, row.FailedCalls, row.Failure)
		missed.Require(row.FirstPod.P99 < alone.FirstPod.P99+slowerBy.Seconds(), "%d jobs: the first pod of a new job after %.2f s, alone %.2f s",
			row.Jobs+row.Finished, row.FirstPod.P99, alone.FirstPod.P99)
		if row.Finished > 0 {
			reference = rows[i-1]
		}
	}
	most := rows[len(rows)-1]
	missed.Require(most.Operator.PodMillis <= flatFactor*reference.Operator.PodMillis, "a pod takes %.2f ms of the operator at %d jobs, %.2f at %d",
		most.Operator.PodMillis, most.Jobs+most.Finished, reference.Operator.PodMillis, reference.Jobs)
	missed.Require(most.PodRequests <= flatFactor*reference.PodRequests, "a pod takes %.2f requests at %d jobs, %.2f at %d",
		most.PodRequests, most.Jobs+most.Finished, reference.PodRequests, reference.Jobs)
}

func printRungs(s *run.Session, rows []*results.Rung) error {
	table := s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs\tfinished\tpods\tafter\trequests/pod\toperator: CPU/pod\trest\tmemory\theap\tdi-server: CPU/pod\trest\tmemory\tAPI server: CPU/pod\tmemory\tetcd: CPU/pod\tmemory\tstored\t")
	for _, row := range rows {
		fmt.Fprintf(table, "%d\t%d\t%d\t%.0f s\t%.2f\t%.2f ms\t%.1f%%\t%s\t%s\t%.2f ms\t%.1f%%\t%s\t%.2f ms\t%s\t%.2f ms\t%s\t%s\t\n",
			row.Jobs, row.Finished, row.Pods, row.Seconds, row.PodRequests, row.Operator.PodMillis, row.Operator.RestPercent,
			figures.Mebibytes(row.Operator.Resident), figures.Mebibytes(row.Heap), row.Server.PodMillis, row.Server.RestPercent, figures.Mebibytes(row.Server.Resident),
			row.APIServer.PodMillis, figures.Mebibytes(row.APIServer.Resident), row.Etcd.PodMillis, figures.Mebibytes(row.Etcd.Resident), figures.Mebibytes(row.Stored))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(s.Out)
	table = s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs\tfinished\tfirst pod: p50\tp99\tresize: p50\tp99\tGET: p50\tp99\tPOST: p50\tp99\trequests a minute at rest\t")
	for _, row := range rows {
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%s\t%.0f\t\n", row.Jobs, row.Finished, row.FirstPod, row.Resize, row.Get, row.Post, row.RestRequests)
	}
	return table.Flush()
}
