// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package growth measures what the programs, the API server and etcd need for growing numbers of jobs
// of both lifecycles on one control plane, and what finished jobs cost.
package growth

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

const (
	// podsOfJob are the pods of each job. In a coordinator-led one the first is the coordinator.
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

// bench is the scenario with its flags.
type bench struct {
	*harness.Bench

	most, fresh, finished int
	rest                  time.Duration
	profiles              string
}

// New returns the scenario.
func New() *harness.Scenario {
	b := &bench{Bench: &harness.Bench{}}
	return &harness.Scenario{
		Name: "growth", Bench: b.Bench, Flags: b.flags, Prepare: b.Build,
		Sections: []harness.Section{{Name: "ladder", Run: b.runLadder}, {Name: "finished", Run: b.runFinished}},
	}
}

func (b *bench) flags(flags *flag.FlagSet) {
	flags.IntVar(&b.most, "growth-most", 10_000, "ladder: the most jobs; the rungs are 100, 1000 and so on, a fifth of this number, and this number")
	flags.IntVar(&b.fresh, "growth-new", 20, "new jobs whose first pods and resizes are timed at each rung")
	flags.DurationVar(&b.rest, "growth-rest", 20*time.Second, "how long the programs are measured at rest at each rung")
	flags.IntVar(&b.finished, "growth-finished", 10_000, "finished: jobs that have ended")
	flags.StringVar(&b.profiles, "growth-profiles", "", "folder for profiles of the operator at each rung, for go tool pprof; none when empty")
}

// rungs returns the numbers of jobs, beginning with none.
func (b *bench) rungs() []int {
	rungs := []int{0, b.most}
	for jobs := 100; jobs < b.most; jobs *= 10 {
		rungs = append(rungs, jobs)
	}
	if fifth := b.most / 5; fifth > 100 {
		rungs = append(rungs, fifth)
	}
	slices.Sort(rungs)
	return slices.Compact(rungs)
}

const ladderNotes = `
One control plane; half of the jobs are worker-led, half coordinator-led and written in v1alpha1, each with 5 pods. Coordinators ask
di-server for their 4 replicas. A stand-in for scheduler and kubelets binds each pod and runs it at once.
For a pod: of the jobs added since the row above, until all run and requests cease. At rest: no job changes; 100 GETs a second reach di-server.
Memory is resident after that; the heap is what is live after a garbage collection. New jobs come one after the other, of both lifecycles in
turn; times are from before the call until the pod is in a watch. p99 of so few is the slowest.
`

// runLadder measures each rung.
func (b *bench) runLadder(ctx context.Context) (missed figures.Limits, err error) {
	if b.most < 100 || b.fresh < 2 {
		return nil, fmt.Errorf("-growth-most is %d and -growth-new %d: want at least 100 and 2", b.most, b.fresh)
	}
	w, err := b.newWorld(ctx, (b.most+b.fresh)*podsOfJob*12/10/podsOfNode+1)
	if w != nil {
		defer harness.Close(&err, w.stop)
	}
	if err != nil {
		return nil, err
	}
	var rows []*results.Rung
	for _, jobs := range b.rungs() {
		row, err := w.climb(ctx, jobs)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%d jobs: %w", jobs, err), b.print(rows))
		}
		rows = append(rows, row)
		b.Data = rows
	}
	judge(&missed, rows)
	err = b.print(rows)
	fmt.Fprint(b.Out, ladderNotes)
	return missed, err
}

// judge records the limits that rows miss. The first row is without jobs, the second the reference.
func judge(missed *figures.Limits, rows []*results.Rung) {
	alone, fewest, most := rows[0], rows[1], rows[len(rows)-1]
	for _, row := range rows {
		missed.Require(row.Operator.Resident < memoryLimit(row.Pods), "%d pods: the operator holds %s, the limit is %s",
			row.Pods, figures.Mebibytes(row.Operator.Resident), figures.Mebibytes(memoryLimit(row.Pods)))
		missed.Require(row.FirstPod.P99 < alone.FirstPod.P99+slowerBy.Seconds(), "%d jobs: the first pod of a new job after %.2f s, alone %.2f s",
			row.Jobs, row.FirstPod.P99, alone.FirstPod.P99)
		missed.Require(row.FailedCalls == 0, "%d jobs: %d calls of di-server failed, such as: %s", row.Jobs, row.FailedCalls, row.Failure)
	}
	missed.Require(most.Operator.PodMillis <= flatFactor*fewest.Operator.PodMillis, "a pod takes %.2f ms of the operator at %d jobs, %.2f at %d",
		most.Operator.PodMillis, most.Jobs, fewest.Operator.PodMillis, fewest.Jobs)
	missed.Require(most.PodRequests <= flatFactor*fewest.PodRequests, "a pod takes %.2f requests at %d jobs, %.2f at %d",
		most.PodRequests, most.Jobs, fewest.PodRequests, fewest.Jobs)
}

func (b *bench) print(rows []*results.Rung) error {
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs\tpods\tafter\trequests/pod\toperator: CPU/pod\trest\tmemory\theap\tdi-server: CPU/pod\tmemory\tAPI server: CPU/pod\tmemory\tetcd: CPU/pod\tmemory\tstored\t")
	for _, row := range rows {
		fmt.Fprintf(table, "%d\t%d\t%.0f s\t%.2f\t%.2f ms\t%.1f%%\t%s\t%s\t%.2f ms\t%s\t%.2f ms\t%s\t%.2f ms\t%s\t%s\t\n",
			row.Jobs, row.Pods, row.Seconds, row.PodRequests, row.Operator.PodMillis, row.Operator.RestPercent,
			figures.Mebibytes(row.Operator.Resident), figures.Mebibytes(row.Heap), row.Server.PodMillis, figures.Mebibytes(row.Server.Resident),
			row.APIServer.PodMillis, figures.Mebibytes(row.APIServer.Resident), row.Etcd.PodMillis, figures.Mebibytes(row.Etcd.Resident), figures.Mebibytes(row.Stored))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(b.Out)
	table = b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs\tfirst pod: p50\tp99\tresize: p50\tp99\tGET: p50\tp99\tPOST: p50\tp99\trequests a minute at rest\t")
	for _, row := range rows {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%.0f\t\n", row.Jobs, row.FirstPod, row.Resize, row.Get, row.Post, row.RestRequests)
	}
	return table.Flush()
}
