// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	// rateReplicas and the coordinator are the 33 pods of the job.
	rateReplicas    = 32
	rateConnections = 32
	rateTurn        = 3 * time.Second

	rateNotes = `
Each turn asks over %d connections that are kept, each for the next answer as soon as it has the last. CPU is that of the
server's process. v0.2.2 answered 460 GETs a second of such a job, p99 570 ms, on 2 processors.
`
)

// turn is what one server did in one turn.
type turn struct {
	rate      float64
	p50, p99  time.Duration
	processor time.Duration
}

// runRate measures how many GETs of one job of 33 pods di-server answers in a
// second, and how many a handler that does nothing.
func runRate(ctx context.Context, b *bench) (_ figures.Limits, err error) {
	p, err := startPlane(b.folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	callers, err := p.makeJobs(ctx, 1, rateReplicas, 0)
	if err != nil {
		return nil, err
	}
	ours, err := b.startServer(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.Stop()) }()
	callers = slices.Repeat(callers, rateConnections)
	_, size, err := takeTurn(ctx, ours, callers)
	if err != nil {
		return nil, err
	}
	bare, err := program.StartOwn(ctx, "-role", "bare", "-size", strconv.Itoa(size))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Stop()) }()
	fmt.Fprintf(b.out, "One job of %d pods, an answer of %d bytes.\n\n", 1+rateReplicas, size)
	return nil, b.compareRates(ctx, callers, ours, bare)
}

// compareRates gives both servers their turns, one after the other.
func (b *bench) compareRates(ctx context.Context, callers []coordinator.Caller, ours, bare *program.Process) error {
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "turn\tdi-server GETs/s\tp50\tp99\tCPU/GET\tbare gin GETs/s\tp50\tp99\tCPU/GET\trate ratio\tCPU ratio\t")
	var all [2][]turn
	for round := range b.rounds {
		for i, server := range []*program.Process{ours, bare} {
			one, _, err := takeTurn(ctx, server, callers)
			if err != nil {
				return errors.Join(err, table.Flush())
			}
			all[i] = append(all[i], one)
		}
		printRates(table, strconv.Itoa(round+1), all[0][round], all[1][round])
	}
	printRates(table, "median", medianTurn(all[0]), medianTurn(all[1]))
	err := table.Flush()
	fmt.Fprintf(b.out, rateNotes, len(callers))
	return err
}

// takeTurn measures one server for one turn.
func takeTurn(ctx context.Context, server *program.Process, callers []coordinator.Caller) (turn, int, error) {
	before, err := server.Usage()
	if err != nil {
		return turn{}, 0, err
	}
	result, err := measure(ctx, &load{Server: server.Address, Callers: callers, For: rateTurn, KeepAlive: true})
	if err != nil {
		return turn{}, 0, err
	}
	after, err := server.Usage()
	if err != nil {
		return turn{}, 0, err
	}
	if result.Errors > 0 || len(result.Gets) == 0 {
		return turn{}, 0, fmt.Errorf("%d of %d GETs failed, such as: %s", result.Errors, result.Errors+len(result.Gets), result.FirstError)
	}
	return turn{
		rate: float64(len(result.Gets)) / rateTurn.Seconds(),
		p50:  figures.Percentile(result.Gets, 50), p99: figures.Percentile(result.Gets, 99),
		processor: (after.Processor - before.Processor) / time.Duration(len(result.Gets)),
	}, result.Body, nil
}

// medianTurn returns the median of each figure.
func medianTurn(turns []turn) turn {
	median := func(figure func(turn) float64) float64 {
		figures := make([]float64, 0, len(turns))
		for _, one := range turns {
			figures = append(figures, figure(one))
		}
		slices.Sort(figures)
		return figures[len(figures)/2]
	}
	return turn{
		rate:      median(func(t turn) float64 { return t.rate }),
		p50:       time.Duration(median(func(t turn) float64 { return float64(t.p50) })),
		p99:       time.Duration(median(func(t turn) float64 { return float64(t.p99) })),
		processor: time.Duration(median(func(t turn) float64 { return float64(t.processor) })),
	}
}

func printRates(table *tabwriter.Writer, name string, ours, bare turn) {
	fmt.Fprintf(table, "%s\t", name)
	for _, one := range []turn{ours, bare} {
		fmt.Fprintf(table, "%.0f\t%s\t%s\t%.1f us\t", one.rate, figures.Millis(one.p50), figures.Millis(one.p99), float64(one.processor)/float64(time.Microsecond))
	}
	fmt.Fprintf(table, "%.2f\t%.2f\t\n", ours.rate/bare.rate, float64(ours.processor)/float64(bare.processor))
}
