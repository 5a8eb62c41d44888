// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	// reportEvery is the interval between two reports of a job.
	reportEvery = 10 * time.Second
	// firstReports is the least duration of the row in which jobs begin to report, and grow. It lasts until
	// for settledFor fewer than one job in settledShare was placed otherwise, at most mostReports.
	firstReports = time.Minute
	settledFor   = 30 * time.Second
	settledShare = 50
	mostReports  = 10 * time.Minute
	// reportP99 is the limit of the time to answer a report.
	reportP99 = 5 * time.Millisecond
	// writesLimit is the maximum number of status writes a minute for one job, by all programs. The
	// count of a row may include a write that an earlier one caused.
	writesLimit = 1.05
)

// rowFirst is the row in which jobs begin to report.
const rowFirst = "first reports"

// allocatorFlags are the flags of section allocator.
type allocatorFlags struct {
	jobs, nodes, replicas int
	duration              time.Duration
	policy, result        string
}

func (f *allocatorFlags) add(flags *flag.FlagSet) {
	flags.IntVar(&f.jobs, "jobs", 1000, "allocator: preemptible jobs")
	flags.IntVar(&f.nodes, "nodes", 512, "allocator: nodes, each with 8 GPUs")
	flags.IntVar(&f.replicas, "replicas", 4, "allocator: the most replicas of a job, each with a GPU")
	flags.DurationVar(&f.duration, "duration", 3*time.Minute, "allocator: length of each row of jobs that run")
	flags.StringVar(&f.policy, "policy", "", "allocator: the operator's --allocator-policy; its default when empty")
	flags.StringVar(&f.result, "json", "", "allocator: file for the rows as JSON; none when empty")
}

// allocatorRow is a row of the section. Times are in milliseconds, writes are for one job and minute.
type allocatorRow struct {
	Name         string             `json:"name"`
	Seconds      float64            `json:"seconds"`
	Reports      int                `json:"reports"`
	Failed       int                `json:"failedReports"`
	Restarting   int                `json:"reportsNotMadeByRestartingJobs"`
	ReportP50    float64            `json:"reportP50"`
	ReportP99    float64            `json:"reportP99"`
	ReportMax    float64            `json:"reportMax"`
	Writes       map[string]float64 `json:"statusWrites"`
	Rounds       int                `json:"rounds"`
	RoundMean    float64            `json:"roundMean"`
	RoundP50     float64            `json:"roundP50"`
	RoundP99     float64            `json:"roundP99"`
	OperatorCPU  float64            `json:"operatorCPUPercent"`
	ServerCPU    float64            `json:"serverCPUPercent"`
	OperatorPeak int64              `json:"operatorPeakBytes"`
	ServerPeak   int64              `json:"serverPeakBytes"`

	reports pace.Tally
}

const allocatorNotes = `
Times of reports are from before the connection is opened until the answer is read; the calls come from this process, on the
same processors. A job that restarts makes no report: its pod does not run. Status writes are patches of dijobs/status in the audit log, for one job and minute. Rounds are those of
the histogram in the operator's metrics: p50 and p99 are interpolated within its buckets. CPU is of one processor.
`

// allocating is a run of the section.
type allocating struct {
	*bench
	*world
	server *program.Process
	// reported is the number of reports.
	reported int
	rows     []*allocatorRow
	missed   figures.Limits
}

// runAllocator measures the allocator and di-server while many jobs run and report.
func (b *bench) runAllocator(ctx context.Context) (_ figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	run := &allocating{bench: b, world: w}
	began := time.Now()
	if err := run.start(ctx); err != nil {
		return nil, err
	}
	defer harness.Close(&err, run.server.Stop)
	f := &b.allocator
	fmt.Fprintf(b.Out, "%d preemptible jobs of up to %d replicas on %d nodes of 8 GPUs, policy %s; all run after %s.\nEach job reports every %s.\n\n",
		f.jobs, f.replicas, f.nodes, cmp.Or(f.policy, "of the default"), time.Since(began).Round(time.Second), reportEvery)
	for _, row := range []struct {
		name    string
		long    time.Duration
		reports bool
	}{{"no reports", f.duration, false}, {rowFirst, firstReports, true}, {"lasting reports", f.duration, true}} {
		b.Say("%s for %s", row.name, row.long)
		if err := run.measure(ctx, row.name, row.long, row.reports); err != nil {
			return run.missed, fmt.Errorf("%s: %w", row.name, err)
		}
	}
	run.judge()
	return run.missed, errors.Join(run.print(), run.save())
}

// start submits the jobs and returns once the first pods of all jobs run.
func (a *allocating) start(ctx context.Context) (err error) {
	f := &a.bench.allocator
	if err := a.SubmitAll(ctx, f.nodes, a.addNode); err != nil {
		return err
	}
	var flags []string
	if f.policy != "" {
		flags = append(flags, "--allocator-policy", f.policy)
	}
	if err := a.startOperator(ctx, flags...); err != nil {
		return err
	}
	if a.server, err = a.StartServer(ctx); err != nil {
		return err
	}
	err = a.SubmitAll(ctx, f.jobs, func(ctx context.Context, index int) error {
		return a.submit(ctx, allocatedJob(allocatedName(index), f.replicas))
	})
	if err == nil {
		err = a.waitFor(ctx, "jobs with a running pod", time.Second, f.jobs, a.running)
	}
	if err != nil {
		return errors.Join(err, a.server.Stop())
	}
	_, err = a.WaitQuiet(ctx, time.Second)
	return err
}

// running counts the jobs whose first pod runs.
func (a *allocating) running() (int, error) {
	count := 0
	for i := range a.bench.allocator.jobs {
		pod := a.kubelet.Pod(types.NamespacedName{Namespace: oursNamespace, Name: names.WorkerPod(allocatedName(i), workerTask, 0)})
		if pod != nil && pod.Status.PodIP != "" {
			count++
		}
	}
	return count, a.kubelet.Err()
}

// reading is what the programs have used at a time.
type reading struct {
	mark             controlplane.Mark
	operator, server program.Usage
	rounds           histogram
}

func (a *allocating) read(ctx context.Context) (r reading, err error) {
	if r.operator, err = a.operator.Usage(); err != nil {
		return r, err
	}
	if r.server, err = a.server.Usage(); err != nil {
		return r, err
	}
	if r.rounds, err = readHistogram(ctx, "http://"+a.metrics+"/metrics", "di_orchestrator_allocator_round_duration_seconds"); err != nil {
		return r, err
	}
	r.mark, err = a.Mark()
	return r, err
}

// measure measures one row.
func (a *allocating) measure(ctx context.Context, name string, long time.Duration, reports bool) error {
	before, err := a.read(ctx)
	if err != nil {
		return err
	}
	jobs := a.bench.allocator.jobs
	from := &reporters{kubelet: &a.kubelet.Kubelet, server: a.server.Address, jobs: jobs, first: a.reported}
	row := &allocatorRow{Name: name}
	began := time.Now()
	prober := &pace.Prober{Name: "report", Every: reportEvery / time.Duration(jobs), Call: from.report}
	if reports {
		prober.Start(ctx)
	}
	err = pace.Pause(ctx, long)
	if err == nil && name == rowFirst {
		err = a.settle(ctx, began.Add(mostReports))
	}
	prober.Stop()
	row.Seconds, row.reports = time.Since(began).Seconds(), prober.Take()
	a.reported += row.reports.Calls() + row.reports.NotMade
	if err != nil {
		return err
	}
	after, err := a.read(ctx)
	if err != nil {
		return err
	}
	row.fill(&before, &after)
	a.rows = append(a.rows, row)
	row.Writes, err = a.writes(before.mark, float64(jobs)*row.Seconds/60)
	return err
}

// settle returns once the jobs are settled, or at a time.
func (a *allocating) settle(ctx context.Context, latest time.Time) error {
	for time.Now().Before(latest) {
		if isSettled, err := a.isSettled(ctx); isSettled || err != nil {
			return err
		}
	}
	return nil
}

// isSettled reports whether hardly any job was placed otherwise for a while, so that none restarts.
func (a *allocating) isSettled(ctx context.Context) (bool, error) {
	mark, err := a.Mark()
	if err != nil {
		return false, err
	}
	if err := pace.Pause(ctx, settledFor); err != nil {
		return false, err
	}
	moved := 0
	err = a.Events(mark, func(event *controlplane.Event) error {
		if event.What() == "patch dijobs/status" && strings.Contains(string(event.RequestObject), `"allocation":`) {
			moved++
		}
		return nil
	})
	return moved < a.bench.allocator.jobs/settledShare, err
}

// fill sets the figures of a row.
func (r *allocatorRow) fill(before, after *reading) {
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.Reports, r.Failed, r.Restarting = r.reports.Calls(), r.reports.Failed, r.reports.NotMade
	r.ReportP50, r.ReportP99 = millis(figures.Percentile(r.reports.Times, 50)), millis(r.reports.P99())
	r.ReportMax = millis(r.reports.Slowest)
	rounds := after.rounds.since(before.rounds)
	r.Rounds, r.RoundMean = int(rounds.count), rounds.mean()*1000
	r.RoundP50, r.RoundP99 = rounds.quantile(0.5)*1000, rounds.quantile(0.99)*1000
	r.OperatorCPU = (after.operator.Processor - before.operator.Processor).Seconds() / r.Seconds * 100
	r.ServerCPU = (after.server.Processor - before.server.Processor).Seconds() / r.Seconds * 100
	r.OperatorPeak, r.ServerPeak = after.operator.PeakBytes, after.server.PeakBytes
}

// The writers of a job's status.
const (
	writerAllocator = "allocator"
	writerServer    = "di-server"
	writerOperator  = "operator"
)

// writes returns the status writes of each writer since a mark, divided by a number.
func (a *allocating) writes(since controlplane.Mark, by float64) (map[string]float64, error) {
	counts := map[string]float64{writerAllocator: 0, writerServer: 0, writerOperator: 0}
	err := a.Events(since, func(event *controlplane.Event) error {
		if event.What() != "patch dijobs/status" {
			return nil
		}
		writer := writerServer
		if event.User.Username == harness.UserOperator {
			writer = writerOf(event.RequestObject)
		}
		counts[writer] += 1 / by
		return nil
	})
	return counts, err
}

// writerOf returns who of the operator's process writes a patch. The allocator writes its own fields, and the
// condition Allocated alone.
func writerOf(patch []byte) string {
	var content struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if json.Unmarshal(patch, &content) != nil {
		return writerOperator
	}
	for field := range content.Status {
		if field != "conditions" && !strings.HasPrefix(field, "alloc") {
			return writerOperator
		}
	}
	return writerAllocator
}

// judge records the limits that rows miss.
func (a *allocating) judge() {
	for _, row := range a.rows {
		a.missed.Require(row.Failed == 0, "%s: %d reports failed, such as: %s", row.Name, row.Failed, strings.Join(row.reports.Failures, "; "))
		writes := row.Writes[writerAllocator] + row.Writes[writerServer] + row.Writes[writerOperator]
		a.missed.Require(row.Name == rowFirst || writes <= writesLimit, "%s: the status of a job is written %.2f times a minute", row.Name, writes)
	}
	lasting := a.rows[len(a.rows)-1]
	a.missed.Under(lasting.reports.P99(), reportP99, lasting.Name+": p99 of reports")
}

func (a *allocating) print() error {
	table := a.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "row\treports\tfailed\tnot made\tp50\tp99\tmax\twrites: allocator\tdi-server\toperator\trounds\tmean\tp50\tp99\toperator: CPU\tpeak\tdi-server: CPU\tpeak\t")
	for _, row := range a.rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.2f ms\t%.2f ms\t%.0f ms\t%.2f\t%.2f\t%.2f\t%d\t%.0f ms\t%.0f ms\t%.0f ms\t%.0f%%\t%s\t%.0f%%\t%s\t\n",
			row.Name, row.Reports, row.Failed, row.Restarting, row.ReportP50, row.ReportP99, row.ReportMax,
			row.Writes[writerAllocator], row.Writes[writerServer], row.Writes[writerOperator], row.Rounds, row.RoundMean, row.RoundP50, row.RoundP99,
			row.OperatorCPU, figures.Mebibytes(row.OperatorPeak), row.ServerCPU, figures.Mebibytes(row.ServerPeak))
	}
	err := table.Flush()
	fmt.Fprint(a.Out, allocatorNotes)
	return err
}

// save writes the rows as JSON.
func (a *allocating) save() error {
	file := a.bench.allocator.result
	if file == "" {
		return nil
	}
	content, err := json.MarshalIndent(a.rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the rows: %w", err)
	}
	if err := os.WriteFile(file, append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the rows: %w", err)
	}
	return nil
}
