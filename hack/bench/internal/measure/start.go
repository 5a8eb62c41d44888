// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/observe"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/figures"
)

const (
	// maxSlower is how many times as long as the plain client the operator may take for many jobs, and
	// maxSlowerJob for one large job.
	maxSlower    = 1.3
	maxSlowerJob = 1.5
	// maxRequests is the maximum number of requests per pod, of all programs.
	maxRequests = 7
)

// Start measures how fast the pods of jobs are created and running, and with what. The reference is a client that
// creates the same pods itself.
type Start struct{ load drive.Load }

// NewStart returns the measurement.
func NewStart() *Start {
	return &Start{drive.Load{
		Jobs: 100, Pods: 8, Nodes: 20, Rounds: 5, Operators: 1, Shards: 1, Scheduler: cluster.Real, Trace: filepath.Join("out", "start"),
	}}
}

// Name implements run.Measurement.
func (*Start) Name() string { return "start" }

// Flags implements run.Measurement.
func (t *Start) Flags(flags *flag.FlagSet) {
	t.load.Register(flags, "jobs", "pods", "nodes", "rounds", "scheduler", "gang", "operators", "shards", "operator-flags", "trace")
}

// starter is what creates pods: jobs for operators, or the pods themselves.
type starter interface {
	name() string
	// start creates all pods, or what they are created for.
	start(ctx context.Context, w *cluster.World, load drive.Load) error
}

type jobsClient struct{}

func (jobsClient) name() string { return "operator" }

func (jobsClient) start(ctx context.Context, w *cluster.World, load drive.Load) error {
	return cluster.Each(ctx, load.Jobs, func(ctx context.Context, index int) error {
		if load.Gang {
			return drive.Submit(ctx, w.Client, drive.Gang(drive.JobName(index), load.Pods))
		}
		return drive.Submit(ctx, w.Client, drive.WorkerLed(drive.JobName(index), load.Pods))
	})
}

type plainClient struct{ drive.Plain }

func (plainClient) name() string { return "plain client" }

func (p plainClient) start(ctx context.Context, w *cluster.World, load drive.Load) error {
	return cluster.Each(ctx, load.All(), func(ctx context.Context, index int) error { return p.Create(ctx, w.Client, index) })
}

// round is the result of one round.
type round struct {
	created, running time.Duration
	asked            map[string]controlplane.Requests
	// used is the processor time of each program.
	used  map[string]time.Duration
	began observe.Reading
}

func created(r *round) time.Duration { return r.created }
func running(r *round) time.Duration { return r.running }

// Run implements run.Measurement. It alternates between the clients, so that both meet the same machine.
func (t *Start) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	if err := t.load.Check("jobs", "pods", "nodes", "rounds", "operators", "shards"); err != nil {
		return nil, err
	}
	if t.load.Gang && t.load.Scheduler != cluster.Real {
		return nil, fmt.Errorf("-gang needs -scheduler=%s", cluster.Real)
	}
	w, err := cluster.Start(ctx, s, &cluster.Options{
		Nodes: t.load.Nodes, Room: drive.RoomFor(t.load.All()/t.load.Nodes + t.load.Pods + 1), Scheduler: t.load.Scheduler, Gangs: t.load.Gang,
	})
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, w.Stop)
	if err := startOperators(ctx, w, t.load); err != nil {
		return nil, err
	}
	learned, err := drive.Learn(ctx, w, t.load.Pods)
	if err != nil {
		return nil, err
	}
	var plain, ours []*round
	for range t.load.Rounds {
		reference, err := t.play(ctx, w, plainClient{learned})
		if err != nil {
			return nil, err
		}
		operator, err := t.play(ctx, w, jobsClient{})
		if err != nil {
			return nil, err
		}
		plain, ours = append(plain, reference), append(ours, operator)
	}
	s.Data = []results.Start{startOf("plain client", plain), startOf("operator", ours)}
	if err := t.print(s, plain, ours); err != nil {
		return nil, err
	}
	t.judge(&missed, plain, ours)
	if t.load.Trace == "" {
		return missed, nil
	}
	return missed, t.trace(ctx, w, filepath.Clean(t.load.Trace))
}

func (t *Start) judge(missed *figures.Limits, plain, ours []*round) {
	limit := maxSlower
	if t.load.Jobs == 1 {
		limit = maxSlowerJob
	}
	for what, of := range map[string]func(*round) time.Duration{"created": created, "running": running} {
		ratio := medianOf(ours, of) / medianOf(plain, of)
		missed.Require(ratio <= limit, "all pods %s after %.2f times as long as with a plain client, the limit is %.1f", what, ratio, limit)
	}
	each := requestsOf(ours) / float64(t.load.All())
	missed.Require(each <= maxRequests, "%.2f requests for a pod, the limit is %d", each, maxRequests)
}

// startOperators starts the operators of a load, and returns when each holds a shard.
func startOperators(ctx context.Context, w *cluster.World, load drive.Load) error {
	flags, configuration := load.Flags(), ""
	isElected := load.Operators > 1 || load.Shards > 1
	if isElected {
		flags, configuration = append(flags, "--leader-elect"), fmt.Sprintf("operator: {shards: %d}", load.Shards)
	}
	for range load.Operators {
		if _, err := w.Programs.StartOperator(ctx, load.Quota, configuration, flags...); err != nil {
			return err
		}
		if !isElected {
			continue
		}
		if err := awaitLeader(ctx, w); err != nil {
			return err
		}
	}
	return awaitSpread(ctx, w, load)
}

// play starts the pods of a round, waits until all run and the programs are idle, and deletes them.
func (t *Start) play(ctx context.Context, w *cluster.World, by starter) (*round, error) {
	if _, err := w.WaitQuiet(ctx, quiet); err != nil {
		return nil, err
	}
	before, err := observe.Read(w.Plane, w.Programs.All())
	if err != nil {
		return nil, err
	}
	w.Say("%s: starting %d pods", by.name(), t.load.All())
	done := &round{began: before}
	if err := by.start(ctx, w, t.load); err != nil {
		return nil, err
	}
	if err := w.WaitRunning(ctx, cluster.Namespace, t.load.All()); err != nil {
		return nil, err
	}
	count := w.Pods.Of(cluster.Namespace)
	done.created, done.running = count.Created.Sub(before.At), count.Ran.Sub(before.At)
	after, err := observe.Read(w.Plane, w.Programs.All())
	if err != nil {
		return nil, err
	}
	done.used = after.Used(&before)
	w.Say("%s: created after %.1f s, running after %.1f s", by.name(), done.created.Seconds(), done.running.Seconds())
	if _, err := w.WaitQuiet(ctx, quiet); err != nil {
		return nil, err
	}
	if done.asked, err = w.Since(before.Mark); err != nil {
		return nil, err
	}
	return done, w.Clear(ctx, cluster.Namespace)
}

// startOf returns the medians of a client's rounds.
func startOf(name string, rounds []*round) results.Start {
	return results.Start{Client: name, Created: medianOf(rounds, created), Running: medianOf(rounds, running)}
}

// medianOf returns the median of a time in seconds.
func medianOf(rounds []*round, of func(*round) time.Duration) float64 {
	all := make([]float64, 0, len(rounds))
	for _, each := range rounds {
		all = append(all, of(each).Seconds())
	}
	return median(all)
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// requestsOf returns the median number of requests of all users, except for Leases.
func requestsOf(rounds []*round) float64 {
	all := make([]float64, 0, len(rounds))
	for _, each := range rounds {
		count := 0
		for _, requests := range each.asked {
			count += requests.Without("leases").All()
		}
		all = append(all, float64(count))
	}
	return median(all)
}

func (t *Start) print(s *run.Session, plain, ours []*round) error {
	each := float64(t.load.All())
	fmt.Fprintf(s.Out, "Jobs: %d of %d pods on %d nodes, bound by the %s scheduler, medians of %d rounds.\n\n",
		t.load.Jobs, t.load.Pods, t.load.Nodes, t.load.Scheduler, t.load.Rounds)
	table := s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "\tplain client\toperator\tratio\t")
	row := func(name string, reference, operator float64) {
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\t\n", name, reference, operator, operator/reference)
	}
	row("all pods created after, s", medianOf(plain, created), medianOf(ours, created))
	row("all pods running after, s", medianOf(plain, running), medianOf(ours, running))
	row("requests for a pod", requestsOf(plain)/each, requestsOf(ours)/each)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(s.Out, "\nProcessor time for a pod until all run, in milliseconds:")
	table = s.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "program\tplain client\toperator\tmore\t")
	var sums [2]float64
	for _, name := range slices.Sorted(maps.Keys(ours[0].used)) {
		of := func(r *round) time.Duration { return r.used[name] }
		reference, operator := medianOf(plain, of)*1000/each, medianOf(ours, of)*1000/each
		sums[0], sums[1] = sums[0]+reference, sums[1]+operator
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%+.2f\t\n", name, reference, operator, operator-reference)
	}
	fmt.Fprintf(table, "all\t%.2f\t%.2f\t%+.2f\t\n", sums[0], sums[1], sums[1]-sums[0])
	if err := table.Flush(); err != nil {
		return err
	}
	return t.printRequests(s, plain[len(plain)-1].asked, ours[len(ours)-1].asked)
}

// shown is the least number of requests for a pod that has a line of its own.
const shown = 0.001

func (t *Start) printRequests(s *run.Session, plain, ours map[string]controlplane.Requests) error {
	each := float64(t.load.All())
	fmt.Fprintf(s.Out, "\nRequests for a pod in the last round, Leases apart, from %.3f on:\n", shown)
	table := s.Table(0)
	fmt.Fprintln(table, "who\trequest\tplain client\toperator\tmore")
	for _, user := range slices.Sorted(maps.Keys(ours)) {
		both := maps.Clone(ours[user].Without("leases"))
		maps.Copy(both, plain[user].Without("leases"))
		for _, what := range slices.Sorted(maps.Keys(both)) {
			reference, operator := float64(plain[user][what])/each, float64(ours[user][what])/each
			if max(reference, operator) >= shown {
				fmt.Fprintf(table, "%s\t%s\t%.3f\t%.3f\t%+.3f\n", user, what, reference, operator, operator-reference)
			}
		}
	}
	return table.Flush()
}
