// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	// submitEvery is the interval between jobs. endedAfter is when the operator is killed or stopped, and submittedFor how
	// long jobs are submitted: past the takeover.
	submitEvery  = 250 * time.Millisecond
	endedAfter   = 5 * time.Second
	submittedFor = 35 * time.Second
	// lostAfter is how long after the last submission a pod counts as lost.
	lostAfter = time.Minute
)

// victim is the operator that is killed or stopped.
type victim struct {
	name string
	// index is that among the operators. The first is the leader.
	index int
	// end ends the operator.
	end func(*program.Process) error

	// own are the waits of jobs of that operator's shard, others those of the other shard.
	own, others []time.Duration
	// created are all pods, and twice those that were created more than once. deleted pods existed, and lost ones never did.
	created, twice, deleted, lost int
}

const killNotes = `
One of two operators is killed by SIGKILL, or stopped by SIGTERM, without a quota, while a job is submitted every 250 ms. Measured is the time from
the submission until all pods of the job exist, for jobs that are submitted after the signal; for jobs before it whose pods did not all exist,
from the signal. Creations are those of the API server's audit log; a deleted pod would be one that existed and does not any more.
`

// runKill kills and stops operators while jobs are submitted.
func (b *bench) runKill(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if w != nil {
		defer harness.Close(&err, w.stop)
	}
	if err != nil {
		return nil, err
	}
	victims := []*victim{
		{name: "killed, not the leader", index: 1, end: (*program.Process).Kill},
		{name: "killed, the leader", index: 0, end: (*program.Process).Kill},
		{name: "stopped, not the leader", index: 1, end: (*program.Process).Stop},
		{name: "stopped, the leader", index: 0, end: (*program.Process).Stop},
	}
	for range b.kills {
		for _, each := range victims {
			if err := b.end(ctx, w, each); err != nil {
				return nil, fmt.Errorf("%s: %w", each.name, err)
			}
		}
	}
	table := b.Table(0)
	fmt.Fprintln(table, "the operator\ttimes\tjobs of its shard wait: p50\tlongest\tjobs of the other shard: p50\tlongest\tpods created\ttwice\tdeleted\tlost")
	for _, each := range victims {
		of := func(waits []time.Duration, percent float64) string {
			return figures.Seconds(figures.Percentile(waits, percent))
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", each.name, b.kills, of(each.own, 50), of(each.own, 100), of(each.others, 50), of(each.others, 100),
			each.created, each.twice, each.deleted, each.lost)
		longest := figures.Percentile(slices.Concat(each.own, each.others), 100)
		missed.Require(longest <= maxTakeover, "%s: a job waits %s, the limit is %s", each.name, figures.Seconds(longest), maxTakeover)
		missed.Require(each.twice+each.deleted+each.lost == 0, "%s: %d pods created twice, %d deleted, %d lost", each.name, each.twice, each.deleted, each.lost)
	}
	if err := table.Flush(); err != nil {
		return nil, fmt.Errorf("printing: %w", err)
	}
	fmt.Fprint(b.Out, killNotes)
	return missed, nil
}

// end ends an operator while jobs are submitted, and counts what happens to the jobs.
func (b *bench) end(ctx context.Context, w *world, of *victim) error {
	if err := w.startOperators(ctx, 2); err != nil {
		return err
	}
	mark, err := w.WaitQuiet(ctx, restTime)
	if err != nil {
		return err
	}
	shard, err := w.shardOfOperator(ctx, of.index)
	if err != nil {
		return err
	}
	w.Say("%s: jobs are submitted", of.name)
	var submitted submissions
	submitting, end := make(chan error, 1), time.Now().Add(submittedFor)
	go func() { submitting <- submitted.submitUntil(ctx, w, b.pods, end) }()
	if err := pace.Pause(ctx, endedAfter); err != nil {
		return errors.Join(err, <-submitting)
	}
	ended := time.Now()
	if err := errors.Join(of.end(w.operators[of.index].Process), <-submitting); err != nil {
		return err
	}
	if err := w.waitRunning(ctx, len(submitted.at)*b.pods); err != nil {
		return err
	}
	for index, at := range submitted.at {
		has := w.ledger.of(jobName(index))
		of.lost += max(b.pods-has.pods, 0)
		if has.last.Before(ended) {
			continue
		}
		wait := has.last.Sub(at)
		if at.Before(ended) {
			wait = has.last.Sub(ended)
		}
		if shardOf(index, 2) == shard {
			of.own = append(of.own, wait)
		} else {
			of.others = append(of.others, wait)
		}
	}
	of.deleted += w.ledger.gone()
	if err := w.countCreated(mark, of); err != nil {
		return err
	}
	w.Say("%s: its jobs waited %s at most", of.name, figures.Seconds(figures.Percentile(of.own, 100)))
	return w.clear(ctx)
}

// shardOfOperator returns the shard that the leader holds, or the other one's.
func (w *world) shardOfOperator(ctx context.Context, index int) (int, error) {
	leader, err := w.holder(ctx, controlplane.OperatorLease)
	if err != nil {
		return 0, err
	}
	holders, err := w.holders(ctx, 2)
	if err != nil {
		return 0, err
	}
	shard := slices.Index(holders, leader)
	if shard < 0 {
		return 0, fmt.Errorf("the leader holds no shard, but %v do", holders)
	}
	return (shard + index) % 2, nil
}

// submissions are when the jobs were submitted, by index.
type submissions struct{ at []time.Time }

// submitUntil submits jobs at a fixed rate.
func (s *submissions) submitUntil(ctx context.Context, w *world, pods int, end time.Time) error {
	var failed error
	for next := time.Now(); next.Before(end); next = next.Add(submitEvery) {
		if err := pace.Pause(ctx, time.Until(next)); err != nil {
			return errors.Join(failed, err)
		}
		s.at = append(s.at, time.Now())
		failed = errors.Join(failed, w.submit(ctx, len(s.at)-1, pods))
	}
	return failed
}

// waitRunning returns when so many pods have run, or after lostAfter.
func (w *world) waitRunning(ctx context.Context, pods int) error {
	for deadline := time.Now().Add(lostAfter); time.Now().Before(deadline); {
		if running, _ := w.ledger.runs(); running >= pods {
			return w.kubelet.Err()
		}
		if err := pace.Pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	return w.kubelet.Err()
}

// countCreated counts the pods that were created since a mark, and those that were created more than once.
func (w *world) countCreated(since controlplane.Mark, of *victim) error {
	times := map[string]int{}
	err := w.Events(since, func(event *controlplane.Event) error {
		if event.What() == "create pods" && event.ResponseStatus.Code == http.StatusCreated {
			times[event.ObjectRef.Name]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if times[""] > 0 {
		return errors.New("the audit log lacks names of created pods")
	}
	for _, count := range times {
		of.created += count
		if count > 1 {
			of.twice++
		}
	}
	return nil
}
