// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/hack/bench/internal/drive"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/figures"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

const (
	// submitEvery is the interval between jobs. endedAfter is when the operator is killed or stopped.
	submitEvery = 250 * time.Millisecond
	endedAfter  = 5 * time.Second
	// maxTakeover is the maximum time until the pods exist of a job that is submitted after the end of an operator.
	maxTakeover = 20 * time.Second
)

// Kill measures how long jobs wait when one of two operators is killed or stopped. They divide the jobs. With one shard, the
// other is a standby.
type Kill struct{ load drive.Load }

// NewKill returns the measurement. Jobs are submitted until after the takeover.
func NewKill() *Kill {
	return &Kill{drive.Load{Pods: 5, Rounds: 3, Shards: 2, Operators: 2, Duration: 35 * time.Second}}
}

// Name implements run.Measurement.
func (*Kill) Name() string { return "kill" }

// Flags implements run.Measurement.
func (k *Kill) Flags(flags *flag.FlagSet) {
	k.load.Register(flags, "pods", "rounds", "shards", "duration", "operator-flags")
}

// signal is a way to end an operator.
type signal string

const (
	killed  signal = "killed"
	stopped signal = "stopped"
)

func (s signal) send(to *program.Process) error {
	if s == killed {
		return to.Kill()
	}
	return to.Stop()
}

// victim is the operator that is ended.
type victim struct {
	by signal
	// index is that among the operators. The first is the leader.
	index int

	// own are the waits of jobs of that operator's shard, others those of the other shard.
	own, others []time.Duration
}

func (v *victim) String() string {
	if v.index == 0 {
		return string(v.by) + ", the leader"
	}
	return string(v.by) + ", not the leader"
}

const killNotes = `
One of two operators is killed by SIGKILL, or stopped by SIGTERM, without a quota, while a job is submitted every 250 ms. Measured is the time from
the submission until all pods of the job exist, for jobs that are submitted after the signal; for jobs before it whose pods did not all exist,
from the signal.
`

// Run implements run.Measurement.
func (k *Kill) Run(ctx context.Context, s *run.Session) (missed figures.Limits, err error) {
	if err := k.load.Check("pods", "rounds", "shards"); err != nil {
		return nil, err
	}
	if k.load.Shards > 2 {
		return nil, errors.New("-shards has to be 1 or 2: there are two operators")
	}
	w, err := cluster.Start(ctx, s, &cluster.Options{})
	if err != nil {
		return nil, err
	}
	defer run.Close(&err, w.Stop)
	victims := []*victim{{by: killed, index: 1}, {by: killed}, {by: stopped, index: 1}, {by: stopped}}
	for range k.load.Rounds {
		for _, each := range victims {
			if err := k.end(ctx, w, each); err != nil {
				return nil, fmt.Errorf("%s: %w", each, err)
			}
		}
	}
	table := s.Table(0)
	fmt.Fprintln(table, "the operator\ttimes\tjobs of its shard wait: p50\tlongest\tjobs of the other shard: p50\tlongest")
	for _, each := range victims {
		of := func(waits []time.Duration, percent float64) string {
			return figures.Seconds(figures.Percentile(waits, percent))
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", each, k.load.Rounds, of(each.own, 50), of(each.own, 100), of(each.others, 50), of(each.others, 100))
		longest := figures.Percentile(slices.Concat(each.own, each.others), 100)
		missed.Require(longest <= maxTakeover, "%s: a job waits %s, the limit is %s", each, figures.Seconds(longest), maxTakeover)
	}
	if err := table.Flush(); err != nil {
		return nil, fmt.Errorf("printing: %w", err)
	}
	fmt.Fprint(s.Out, killNotes)
	return missed, nil
}

// end ends an operator while jobs are submitted, and counts what happens to the jobs.
func (k *Kill) end(ctx context.Context, w *cluster.World, of *victim) error {
	if err := startOperators(ctx, w, k.load); err != nil {
		return err
	}
	if _, err := w.WaitQuiet(ctx, quiet); err != nil {
		return err
	}
	shard, err := k.shardOfOperator(ctx, w, of.index)
	if err != nil {
		return err
	}
	w.Say("%s: jobs are submitted", of)
	submitted := make(chan submissions, 1)
	go func() { submitted <- k.submit(ctx, w, time.Now().Add(k.load.Duration)) }()
	if err := pace.Pause(ctx, endedAfter); err != nil {
		return errors.Join(err, (<-submitted).failed)
	}
	ended := time.Now()
	err = of.by.send(w.Programs.Operators[of.index].Process)
	jobs := <-submitted
	if err := errors.Join(err, jobs.failed); err != nil {
		return err
	}
	if err := w.WaitRunning(ctx, cluster.Namespace, len(jobs.at)*k.load.Pods); err != nil {
		return err
	}
	for index, at := range jobs.at {
		created := w.Pods.Created(types.NamespacedName{Namespace: cluster.Namespace, Name: drive.JobName(index)})
		last := created[len(created)-1]
		if last.Before(ended) {
			continue
		}
		if at.Before(ended) {
			at = ended
		}
		wait := last.Sub(at)
		if shardOf(index, k.load.Shards) == shard {
			of.own = append(of.own, wait)
		} else {
			of.others = append(of.others, wait)
		}
	}
	w.Say("%s: its jobs waited %s at most", of, figures.Seconds(figures.Percentile(of.own, 100)))
	return clearRound(ctx, w)
}

// shardOfOperator returns the shard that the leader holds, or the other one's. With one shard there is only that.
func (k *Kill) shardOfOperator(ctx context.Context, w *cluster.World, index int) (int, error) {
	if k.load.Shards == 1 {
		return 0, nil
	}
	leader, err := holder(ctx, w, controlplane.OperatorLease)
	if err != nil {
		return 0, err
	}
	held, err := holders(ctx, w, k.load.Shards)
	if err != nil {
		return 0, err
	}
	shard := slices.Index(held, leader)
	if shard < 0 {
		return 0, fmt.Errorf("the leader holds no shard, but %v do", held)
	}
	return (shard + index) % k.load.Shards, nil
}

// submissions are when the jobs were submitted, by index, and what failed.
type submissions struct {
	at     []time.Time
	failed error
}

// submit submits jobs at a fixed rate.
func (k *Kill) submit(ctx context.Context, w *cluster.World, end time.Time) (s submissions) {
	for next := time.Now(); next.Before(end); next = next.Add(submitEvery) {
		if err := pace.Pause(ctx, time.Until(next)); err != nil {
			s.failed = errors.Join(s.failed, err)
			return s
		}
		s.at = append(s.at, time.Now())
		s.failed = errors.Join(s.failed, drive.Submit(ctx, w.Client, drive.WorkerLed(drive.JobName(len(s.at)-1), k.load.Pods)))
	}
	return s
}
