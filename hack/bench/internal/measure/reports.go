// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/observe"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

const (
	// reportEvery is the interval between two reports of a job.
	reportEvery = 10 * time.Second
	// reportP99 is the limit of the time to answer a report.
	reportP99 = 5 * time.Millisecond
	// writesLimit is the maximum number of status writes a minute for one job, by all programs. The
	// count of a row may include a write that an earlier one caused.
	writesLimit = 1.05
	// rounds is the metric of the operator's allocation rounds.
	rounds = "di_orchestrator_allocator_round_duration_seconds"
	// rowFirst is the row in which jobs begin to report.
	rowFirst = "first reports"
)

// Reports measures allocation rounds and di-server while many preemptible jobs run and report.
type Reports struct{ load drive.Load }

// NewReports returns the measurement.
func NewReports() *Reports {
	return &Reports{drive.Load{Jobs: 1000, Pods: 4, Nodes: 512, Duration: 3 * time.Minute}}
}

// Name implements run.Measurement.
func (*Reports) Name() string { return "reports" }

// Flags implements run.Measurement.
func (t *Reports) Flags(flags *flag.FlagSet) {
	t.load.Register(flags, "jobs", "pods", "nodes", "duration", "operator-flags")
}

// reportsRow is a row of the table. RoundMean is in milliseconds, writes are for one job and minute.
type reportsRow struct {
	Name         string             `json:"name"`
	Seconds      float64            `json:"seconds"`
	Reports      int                `json:"reports"`
	Failed       int                `json:"failedReports"`
	Restarting   int                `json:"reportsNotMadeByRestartingJobs"`
	Report       results.Times      `json:"report"`
	Writes       map[string]float64 `json:"statusWrites"`
	Rounds       float64            `json:"rounds"`
	RoundMean    float64            `json:"roundMean"`
	OperatorCPU  float64            `json:"operatorCPUPercent"`
	ServerCPU    float64            `json:"serverCPUPercent"`
	OperatorPeak int64              `json:"operatorPeakBytes"`
	ServerPeak   int64              `json:"serverPeakBytes"`

	reports pace.Tally
}

const reportsNotes = `
Times of reports are from before the connection is opened until the answer is read; the calls come from this process, on the
same processors. With its first reports a job grows, so it restarts; the jobs have settled when hardly a report is not made. A job that restarts makes no report: its pod does not run. Status writes are patches of dijobs/status in the audit log, for one
job and minute. Rounds are those of the histogram in the operator's metrics. CPU is of one processor.
`

// reporting is a world with preemptible jobs that report.
type reporting struct {
	*cluster.World
	load drive.Load
	// reported is the number of reports.
	reported int
}

// Run implements run.Measurement.
func (t *Reports) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	if err := t.load.Check("jobs", "pods", "nodes"); err != nil {
		return nil, err
	}
	w, err := cluster.Start(ctx, s, &cluster.Options{Nodes: t.load.Nodes, Server: true, Room: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("768Gi"),
		corev1.ResourcePods: resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse("8"),
	}})
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, w.Stop)
	r := &reporting{World: w, load: t.load}
	began := time.Now()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(s.Out, "%d preemptible jobs of up to %d replicas on %d nodes of 8 GPUs, flags %s; all run after %s.\nEach job reports every %s.\n\n",
		t.load.Jobs, t.load.Pods, t.load.Nodes, cmp.Or(t.load.OperatorFlags, "of the default"), time.Since(began).Round(time.Second), reportEvery)
	rows := []*reportsRow{{Name: "no reports"}, {Name: rowFirst}, {Name: "lasting reports"}}
	for i, row := range rows {
		if err := r.measure(ctx, row, i > 0); err != nil {
			return nil, fmt.Errorf("%s: %w", row.Name, err)
		}
	}
	s.Data = rows
	for _, row := range rows {
		row.judge(&missed)
	}
	missed.Under(rows[2].reports.P99(), reportP99, rows[2].Name+": p99 of reports")
	return missed, t.print(s, rows)
}

// start submits the jobs and returns once the first pods of all jobs run.
func (r *reporting) start(ctx context.Context) error {
	if _, err := r.Programs.StartOperator(ctx, 0, "", r.load.Flags()...); err != nil {
		return err
	}
	err := cluster.Each(ctx, r.load.Jobs, func(ctx context.Context, index int) error {
		return drive.Submit(ctx, r.Client, drive.Preemptible(drive.JobName(index), r.load.Pods))
	})
	if err != nil {
		return err
	}
	err = r.Poll(ctx, "each job has a running pod", time.Second, func(context.Context) (bool, error) {
		for i := range r.load.Jobs {
			pod := r.Kubelet.Pod(types.NamespacedName{Namespace: cluster.Namespace, Name: names.WorkerPod(drive.JobName(i), drive.WorkerTask, 0)})
			if pod == nil || pod.Status.PodIP == "" {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	_, err = r.WaitQuiet(ctx, quiet)
	return err
}

// sums returns the number and the total seconds of allocation rounds.
func (r *reporting) sums(ctx context.Context) (count, seconds float64, err error) {
	url := "http://" + r.Programs.Operators[0].Metrics + "/metrics"
	count, err = observe.Sample(ctx, url, rounds+"_count")
	if err != nil {
		return 0, 0, err
	}
	seconds, err = observe.Sample(ctx, url, rounds+"_sum")
	return count, seconds, err
}

// measure measures one row.
func (r *reporting) measure(ctx context.Context, row *reportsRow, reports bool) error {
	before, err := observe.Read(r.Plane, r.Programs.All())
	if err != nil {
		return err
	}
	count, seconds, err := r.sums(ctx)
	if err != nil {
		return err
	}
	r.Say("%s", row.Name)
	if row.reports, err = r.report(ctx, reports); err != nil {
		return err
	}
	after, err := observe.Read(r.Plane, r.Programs.All())
	if err != nil {
		return err
	}
	row.fill(&before, &after)
	counted, summed, err := r.sums(ctx)
	if err != nil {
		return err
	}
	row.Rounds, row.RoundMean = counted-count, (summed-seconds)/max(counted-count, 1)*1000
	row.Writes, err = r.writes(before.Mark, float64(r.load.Jobs)*row.Seconds/60)
	return err
}

// report lets the jobs report, if they do, for as long as a row lasts.
func (r *reporting) report(ctx context.Context, reports bool) (pace.Tally, error) {
	from := &drive.Reporters{Kubelet: r.Kubelet, Server: r.Programs.Server.Address, Jobs: r.load.Jobs, First: r.reported}
	prober := &pace.Prober{Name: "report", Every: reportEvery / time.Duration(r.load.Jobs), Call: from.Report}
	if reports {
		prober.Start(ctx)
	}
	err := pace.Pause(ctx, r.load.Duration)
	prober.Stop()
	taken := prober.Take()
	r.reported += taken.Calls() + taken.NotMade
	return taken, err
}

// fill sets the figures of a row.
func (r *reportsRow) fill(before, after *observe.Reading) {
	r.Seconds = after.Seconds(before)
	r.Reports, r.Failed, r.Restarting = r.reports.Calls(), r.reports.Failed, r.reports.NotMade
	r.Report = timesOf(r.reports.Times)
	used := after.Used(before)
	r.OperatorCPU, r.ServerCPU = used[observe.Operator].Seconds()/r.Seconds*100, used[observe.Server].Seconds()/r.Seconds*100
	r.OperatorPeak, r.ServerPeak = after.Usage[observe.Operator].PeakBytes, after.Usage[observe.Server].PeakBytes
}

// The writers of a job's status.
const (
	writerAllocator = "allocator"
	writerServer    = "di-server"
	writerOperator  = "operator"
)

// writes returns the status writes of each writer since a mark, divided by a number.
func (r *reporting) writes(since controlplane.Mark, by float64) (map[string]float64, error) {
	counts := map[string]float64{writerAllocator: 0, writerServer: 0, writerOperator: 0}
	err := r.Events(since, func(event *controlplane.Event) error {
		if event.What() != "patch dijobs/status" {
			return nil
		}
		writer := writerServer
		if event.User.Username == cluster.UserOperator {
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

// judge records the limits that a row misses.
func (r *reportsRow) judge(missed *figures.Limits) {
	missed.Require(r.Failed == 0, "%s: %d reports failed, such as: %s", r.Name, r.Failed, strings.Join(r.reports.Failures, "; "))
	writes := r.Writes[writerAllocator] + r.Writes[writerServer] + r.Writes[writerOperator]
	missed.Require(r.Name == rowFirst || writes <= writesLimit, "%s: the status of a job is written %.2f times a minute", r.Name, writes)
}

func (t *Reports) print(s *run.Session, rows []*reportsRow) error {
	table := s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "row\treports\tfailed\tnot made\tp50\tp99\twrites: allocator\tdi-server\toperator\trounds\tmean\toperator: CPU\tpeak\tdi-server: CPU\tpeak\t")
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f ms\t%.0f%%\t%s\t%.0f%%\t%s\t\n",
			row.Name, row.Reports, row.Failed, row.Restarting, row.Report,
			row.Writes[writerAllocator], row.Writes[writerServer], row.Writes[writerOperator], row.Rounds, row.RoundMean,
			row.OperatorCPU, figures.Mebibytes(row.OperatorPeak), row.ServerCPU, figures.Mebibytes(row.ServerPeak))
	}
	err := table.Flush()
	fmt.Fprint(s.Out, reportsNotes)
	return err
}
