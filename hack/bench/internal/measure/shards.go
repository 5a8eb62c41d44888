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

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/observe"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/figures"
)

const (
	// minRatio is how many times the load of one shard two must carry.
	minRatio = 1.7
	// maxOthers is how many processors other programs may use. With more, a round says little about the operators.
	maxOthers = 0.1
)

// Shards measures how many pods operators start that divide the jobs, each under a processor quota, beside one.
type Shards struct{ load drive.Load }

// NewShards returns the measurement.
func NewShards() *Shards {
	return &Shards{drive.Load{Jobs: 300, Pods: 5, Rounds: 5, Shards: 2, Quota: 0.05}}
}

// Name implements run.Measurement.
func (*Shards) Name() string { return "shards" }

// Flags implements run.Measurement.
func (h *Shards) Flags(flags *flag.FlagSet) {
	h.load.Register(flags, "jobs", "pods", "rounds", "shards", "quota", "operator-flags")
}

// outcome is what a round measured.
type outcome struct {
	Seconds       float64 `json:"seconds"`
	PodsPerSecond float64 `json:"podsPerSecond"`
	// Operators are the processors that each operator used, the leader first. APIServer are those of the API server, and
	// Others those of programs that are not part of the benchmark. Machine is the share of all processors that were busy.
	Operators []float64 `json:"operators"`
	APIServer float64   `json:"apiServer"`
	Others    float64   `json:"others"`
	Machine   float64   `json:"machine"`
}

// shardsRow are the rounds of a number of shards.
type shardsRow struct {
	Shards int       `json:"shards"`
	Quota  float64   `json:"quota"`
	Rounds []outcome `json:"rounds"`
}

func (r *shardsRow) median(of func(*outcome) float64) float64 {
	all := make([]float64, 0, len(r.Rounds))
	for i := range r.Rounds {
		all = append(all, of(&r.Rounds[i]))
	}
	return median(all)
}

func rate(o *outcome) float64   { return o.PodsPerSecond }
func others(o *outcome) float64 { return o.Others }

// Run implements run.Measurement. It alternates between the rows, so that all meet the same machine. The operator without a
// quota shows what the API server and this program can do.
func (h *Shards) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	if err := h.load.Check("jobs", "pods", "rounds", "shards"); err != nil {
		return nil, err
	}
	if h.load.Quota <= 0 || h.load.Quota > 1 {
		return nil, errors.New("-quota has to be more than 0, and at most 1")
	}
	w, err := cluster.Start(ctx, s, &cluster.Options{})
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, w.Stop)
	one, many, free := &shardsRow{Shards: 1, Quota: h.load.Quota}, &shardsRow{Shards: h.load.Shards, Quota: h.load.Quota}, &shardsRow{Shards: 1}
	// The first round fills the caches of the API server and the webhooks.
	if _, err := h.play(ctx, w, free); err != nil {
		return nil, err
	}
	for range h.load.Rounds {
		for _, row := range []*shardsRow{one, many, free} {
			done, err := h.play(ctx, w, row)
			if err != nil {
				return nil, err
			}
			row.Rounds = append(row.Rounds, *done)
		}
	}
	s.Data = []*shardsRow{one, many, free}
	if err := h.print(s, one, many, free); err != nil {
		return nil, err
	}
	ratio := many.median(rate) / one.median(rate)
	missed.Require(ratio >= minRatio, "%d shards carry %.2f times the load of one, the limit is %.1f", many.Shards, ratio, minRatio)
	for _, row := range []*shardsRow{one, many} {
		missed.Require(row.median(others) <= maxOthers, "with %d shards, other programs used %.2f processors, the limit is %.1f", row.Shards, row.median(others), maxOthers)
	}
	return missed, nil
}

// play submits jobs to fresh operators, waits until all pods run, and deletes the jobs.
func (h *Shards) play(ctx context.Context, w *cluster.World, row *shardsRow) (*outcome, error) {
	load := h.load
	load.Operators, load.Shards, load.Quota = row.Shards, row.Shards, row.Quota
	if err := startOperators(ctx, w, load); err != nil {
		return nil, err
	}
	if _, err := w.WaitQuiet(ctx, quiet); err != nil {
		return nil, err
	}
	if row.Quota > 0 {
		if err := w.Programs.Limit(row.Quota); err != nil {
			return nil, err
		}
	}
	before, err := observe.Read(w.Plane, w.Programs.All())
	if err != nil {
		return nil, err
	}
	if err := (jobsClient{}).start(ctx, w, load); err != nil {
		return nil, err
	}
	if err := w.WaitRunning(ctx, cluster.Namespace, load.All()); err != nil {
		return nil, err
	}
	after, err := observe.Read(w.Plane, w.Programs.All())
	if err != nil {
		return nil, err
	}
	done := &outcome{Seconds: w.Pods.Of(cluster.Namespace).Ran.Sub(before.At).Seconds(), APIServer: after.Used(&before)[observe.APIServer].Seconds() / after.Seconds(&before)}
	done.PodsPerSecond = float64(load.All()) / done.Seconds
	done.Machine, done.Others = after.Machine(&before)
	for i := range after.Operators {
		done.Operators = append(done.Operators, (after.Operators[i].Processor-before.Operators[i].Processor).Seconds()/after.Seconds(&before))
	}
	w.Say("%d shards, quota %.2f: %.1f pods a second, others used %.2f processors", row.Shards, row.Quota, done.PodsPerSecond, done.Others)
	return done, clearRound(ctx, w)
}

// clearRound stops the operators and deletes the jobs of a round. An operator that runs could create a pod of a job before
// it sees that the job is deleted, and nothing here would collect it.
func clearRound(ctx context.Context, w *cluster.World) error {
	if err := w.Programs.StopOperators(); err != nil {
		return err
	}
	return w.Clear(ctx, cluster.Namespace)
}

const shardsNotes = `
Jobs are worker-led. A stand-in for the kubelets runs each pod at once. The rate is from the first submission until all pods run. Each operator is
a process under a processor quota, as a container with a limit is. Uses are in processors; the machine's is the busy share
of all processors. The operator without a quota shows that the API server and the rest carry more.
`

func (h *Shards) print(s *run.Session, rows ...*shardsRow) error {
	split := make([]int, h.load.Shards)
	for index := range h.load.Jobs {
		split[shardOf(index, len(split))]++
	}
	fmt.Fprintf(s.Out, "%d jobs of %d pods, medians of %d rounds. The shards have %v jobs, so that an equal share would carry %.2f times the load.\n\n",
		h.load.Jobs, h.load.Pods, h.load.Rounds, split, float64(h.load.Jobs)/float64(slices.Max(split)))
	table := s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "operators\tquota of each\tpods/s\tall rounds\tratio\toperators use\tAPI server uses\tothers use\tmachine\t")
	for _, row := range rows {
		quota := "none"
		if row.Quota > 0 {
			quota = fmt.Sprintf("%.2f", row.Quota)
		}
		rates, uses := make([]string, 0, len(row.Rounds)), make([]string, 0, row.Shards)
		for _, done := range row.Rounds {
			rates = append(rates, fmt.Sprintf("%.1f", done.PodsPerSecond))
		}
		for i := range row.Shards {
			uses = append(uses, fmt.Sprintf("%.3f", row.median(func(o *outcome) float64 { return o.Operators[i] })))
		}
		fmt.Fprintf(table, "%d\t%s\t%.1f\t%s\t%.2f\t%s\t%.2f\t%.2f\t%.0f%%\t\n", row.Shards, quota, row.median(rate), strings.Join(rates, " "),
			row.median(rate)/rows[0].median(rate), strings.Join(uses, " "), row.median(func(o *outcome) float64 { return o.APIServer }), row.median(others),
			100*row.median(func(o *outcome) float64 { return o.Machine }))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	fmt.Fprint(s.Out, shardsNotes)
	return nil
}

// pollEvery is the interval at which Leases are checked.
const pollEvery = 20 * time.Millisecond

// awaitLeader returns when an operator is the leader.
func awaitLeader(ctx context.Context, w *cluster.World) error {
	return w.Poll(ctx, "an operator is elected", pollEvery, func(ctx context.Context) (bool, error) {
		leader, err := holder(ctx, w, controlplane.OperatorLease)
		return leader != "", err
	})
}

// awaitSpread returns when all shards are held, by as many operators as there are.
func awaitSpread(ctx context.Context, w *cluster.World, load drive.Load) error {
	if load.Shards == 1 {
		return nil
	}
	return w.Poll(ctx, "each operator holds a shard", pollEvery, func(ctx context.Context) (bool, error) {
		held, err := holders(ctx, w, load.Shards)
		slices.Sort(held)
		return err == nil && held[0] != "" && len(slices.Compact(held)) == min(load.Shards, load.Operators), err
	})
}

// holders returns who holds each shard; empty for free ones.
func holders(ctx context.Context, w *cluster.World, count int) ([]string, error) {
	held := make([]string, count)
	for shard := range held {
		var err error
		if held[shard], err = holder(ctx, w, shards.LeaseName(controlplane.OperatorLease, shard, count)); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// holder returns who holds a Lease; empty if there is none.
func holder(ctx context.Context, w *cluster.World, name string) (string, error) {
	var lease coordinationv1.Lease
	if err := w.API.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: name}, &lease); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Lease %s: %w", name, err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// shardOf returns the shard of a job.
func shardOf(index, count int) int {
	return shards.Of(types.NamespacedName{Namespace: cluster.Namespace, Name: drive.JobName(index)}, count)
}
