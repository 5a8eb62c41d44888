// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	pollingCollectors = 4
	pollingLearners   = 1
	pollingInterval   = time.Second
	// pollingP99 and pollingMemory are the limits of the measurements.
	pollingP99    = 20 * time.Millisecond
	pollingMemory = 300 << 20
)

// pollingRow is a way to poll.
type pollingRow struct {
	name   string
	polls  bool
	writes float64
	// bare selects the reference: an empty handler in place of di-server.
	bare bool
}

// polling is a run of the section.
type polling struct {
	*bench
	world   *harness.World
	server  *program.Process
	callers []coordinator.Caller
	table   *tabwriter.Writer
	missed  figures.Limits
	// size is the size of an answer.
	size  int
	notes []string
}

// runPolling measures di-server under coordinators that poll as deployed ones do.
func (b *bench) runPolling(ctx context.Context) (_ figures.Limits, err error) {
	// The latency of writes includes the disk.
	world, err := b.NewWorld(&controlplane.Options{Users: []string{harness.UserServer}, Etcd: map[string]string{}})
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, world.Stop)
	run := &polling{bench: b, world: world}
	began := time.Now()
	if run.callers, err = run.makeJobs(ctx, b.jobs, pollingCollectors, pollingLearners); err != nil {
		return nil, err
	}
	made := time.Since(began)
	began = time.Now()
	if run.server, err = world.StartServer(ctx); err != nil {
		return nil, err
	}
	defer harness.Close(&err, run.server.Stop)
	fmt.Fprintf(b.Out, "%d jobs of a coordinator, %d collectors and a learner (made in %s); di-server, mode enforce, %s, ready after %s.\n"+
		"Each coordinator polls every %s from its own address, by a new connection for each request; %s a row.\n\n",
		b.jobs, pollingCollectors, made.Round(time.Second), harness.ServerMemoryLimit, time.Since(began).Round(time.Millisecond), pollingInterval, b.duration)
	run.table = b.Table(0)
	fmt.Fprintln(run.table, "what\tGETs/s\terrors\tGET p50\tp99\tp99.9\twrites/s\twrite p50\tp99\tAPI requests\twatches begun\tCPU\tRSS\tpeak RSS")
	for _, row := range []pollingRow{
		{name: "di-server, idle"},
		{name: "di-server, GETs", polls: true},
		{name: "bare gin handler, GETs", polls: true, bare: true},
		{name: "di-server, GETs and writes", polls: true, writes: b.writes},
	} {
		if err := run.measure(ctx, row); err != nil {
			return nil, errors.Join(err, run.table.Flush())
		}
	}
	err = run.table.Flush()
	for _, note := range run.notes {
		fmt.Fprintln(b.Out, note)
	}
	fmt.Fprint(b.Out, pollingNotes)
	return run.missed, err
}

const pollingNotes = `
API requests are those of di-server's user in the audit log of the API server, watches apart; in rows without writes there
must be none. Times are from before the connection is opened until the answer is read. The calls come from this process, on
the same processors.
`

// measure measures one row.
func (r *polling) measure(ctx context.Context, row pollingRow) (err error) {
	target := r.server
	if row.bare {
		if target, err = program.StartOwn(ctx, nil, "server", "-role", roleBare, "-size", strconv.Itoa(r.size)); err != nil {
			return err
		}
		defer harness.Close(&err, target.Stop)
	}
	mark, err := r.world.Mark()
	if err != nil {
		return err
	}
	before, err := target.Usage()
	if err != nil {
		return err
	}
	calls := &load{server: target.Address, writes: row.writes}
	if row.polls {
		calls.callers = r.callers
	}
	result, err := calls.generate(ctx, r.duration)
	if err != nil {
		return err
	}
	after, err := target.Usage()
	if err != nil {
		return err
	}
	counts, err := r.world.Since(mark)
	if err != nil {
		return err
	}
	r.size = max(r.size, result.body)
	r.print(row, result, before, after, counts[harness.UserServer])
	return nil
}

func (r *polling) print(row pollingRow, result *measured, before, after program.Usage, asked controlplane.Requests) {
	seconds := r.duration.Seconds()
	gets, writes := &result.gets, &result.writes
	watches := asked.Total("watch")
	others := asked.All() - watches
	fmt.Fprintf(r.table, "%s\t%.0f\t%d\t%s\t%s\t%s\t%.0f\t%s\t%s\t%d\t%d\t%.0f%%\t%s\t%s\n", row.name,
		float64(len(gets.Times))/seconds, gets.Failed+writes.Failed,
		figures.Shown(gets.Times, 50), figures.Shown(gets.Times, 99), figures.Shown(gets.Times, 99.9),
		float64(len(writes.Times))/seconds, figures.Shown(writes.Times, 50), figures.Shown(writes.Times, 99), others, watches,
		(after.Processor-before.Processor).Seconds()/seconds*100, figures.Mebibytes(after.Resident), figures.Mebibytes(after.PeakBytes))
	if writes.Calls() > 0 {
		r.notes = append(r.notes, fmt.Sprintf("%s: requests to the API server: %s", row.name, asked))
	}
	if row.bare {
		return
	}
	failures := slices.Concat(gets.Failures, writes.Failures)
	r.missed.Require(len(failures) == 0, "%s: %d errors, such as: %s", row.name, gets.Failed+writes.Failed, strings.Join(failures, "; "))
	if row.polls {
		r.missed.Under(gets.P99(), pollingP99, row.name+": p99 of GETs")
	}
	if writes.Calls() == 0 {
		r.missed.Require(others == 0, "%s: requests to the API server: %s", row.name, asked)
	}
	r.missed.Require(after.PeakBytes < pollingMemory, "%s: peak RSS is %s, the limit %s", row.name, figures.Mebibytes(after.PeakBytes), figures.Mebibytes(pollingMemory))
}
