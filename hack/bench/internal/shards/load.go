// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// apiServer is the name of the API server's process.
const apiServer = "kube-apiserver"

// operatorName is the name of the operators' processes.
const operatorName = "operator"

// maxOthers is how many processors other programs may use. With more, a round says little about the operators.
const maxOthers = 0.1

// unlimited is the quota of an operator that may use all processors.
const unlimited = 0

// load is how a round starts its jobs.
type load struct {
	Shards int     `json:"shards"`
	Quota  float64 `json:"quota"`
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

// row are the rounds of a load.
type row struct {
	load
	Rounds []outcome `json:"rounds"`
}

func (r *row) median(of func(outcome) float64) float64 {
	all := make([]float64, 0, len(r.Rounds))
	for _, each := range r.Rounds {
		all = append(all, of(each))
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

func rate(o outcome) float64 { return o.PodsPerSecond }

// runLoad alternates between one shard and two, so that both meet the same machine. The operator without a quota shows what
// the API server and this program can do.
func (b *bench) runLoad(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if w != nil {
		defer harness.Close(&err, w.stop)
	}
	if err != nil {
		return nil, err
	}
	one, two, free := &row{load: load{Shards: 1, Quota: b.quota}}, &row{load: load{Shards: 2, Quota: b.quota}}, &row{load: load{Shards: 1, Quota: unlimited}}
	// The first round fills the caches of the API server and the webhooks.
	if _, err := b.play(ctx, w, free.load); err != nil {
		return nil, err
	}
	for range b.rounds {
		for _, each := range []*row{one, two, free} {
			done, err := b.play(ctx, w, each.load)
			if err != nil {
				return nil, err
			}
			each.Rounds = append(each.Rounds, *done)
		}
	}
	b.Data = []*row{one, two, free}
	if err := b.printLoad(one, two, free); err != nil {
		return nil, err
	}
	ratio := two.median(rate) / one.median(rate)
	missed.Require(ratio >= minRatio, "two shards carry %.2f times the load of one, the limit is %.1f", ratio, minRatio)
	for _, each := range []*row{one, two} {
		others := each.median(func(o outcome) float64 { return o.Others })
		missed.Require(others <= maxOthers, "with %d shards, other programs used %.2f processors, the limit is %.1f", each.Shards, others, maxOthers)
	}
	return missed, nil
}

// play submits jobs to fresh operators, waits until all pods run, and deletes the jobs.
func (b *bench) play(ctx context.Context, w *world, of load) (*outcome, error) {
	if err := w.startOperators(ctx, of.Shards); err != nil {
		return nil, err
	}
	if _, err := w.WaitQuiet(ctx, restTime); err != nil {
		return nil, err
	}
	if of.Quota != unlimited {
		if err := w.limit(of.Quota); err != nil {
			return nil, err
		}
	}
	before, err := w.read()
	if err != nil {
		return nil, err
	}
	err = w.SubmitAll(ctx, b.jobs, func(ctx context.Context, index int) error { return w.submit(ctx, index, b.pods) })
	if err != nil {
		return nil, err
	}
	pods := b.jobs * b.pods
	err = w.poll(ctx, fmt.Sprintf("%d pods run", pods), func(context.Context) (bool, error) {
		running, _ := w.ledger.runs()
		return running >= pods, nil
	})
	if err != nil {
		return nil, err
	}
	after, err := w.read()
	if err != nil {
		return nil, err
	}
	_, last := w.ledger.runs()
	done := before.until(after)
	done.Seconds = last.Sub(before.at).Seconds()
	done.PodsPerSecond = float64(pods) / done.Seconds
	w.Say("%d shards, quota %.2f: %.1f pods a second, others used %.2f processors", of.Shards, of.Quota, done.PodsPerSecond, done.Others)
	return done, w.clear(ctx)
}

// reading is what was used until a time.
type reading struct {
	at        time.Time
	operators []time.Duration
	apiServer time.Duration
	// own is the time of all programs of the benchmark.
	own     time.Duration
	machine program.Processors
}

func (w *world) read() (r reading, err error) {
	for _, each := range w.operators {
		usage, err := each.Usage()
		if err != nil {
			return r, err
		}
		r.operators = append(r.operators, usage.Processor)
	}
	all, err := program.Tree()
	if err != nil {
		return r, err
	}
	r.apiServer = all[apiServer].Processor
	// The operators have one name, so the tree has only one of them.
	for name, usage := range all {
		if name != operatorName {
			r.own += usage.Processor
		}
	}
	for _, each := range r.operators {
		r.own += each
	}
	r.machine, err = program.ReadProcessors()
	r.at = time.Now()
	return r, err
}

// until returns what was used between two readings.
func (r *reading) until(after reading) *outcome {
	passed := after.at.Sub(r.at).Seconds()
	done := &outcome{APIServer: (after.apiServer - r.apiServer).Seconds() / passed, Machine: after.machine.BusySince(r.machine)}
	done.Others = done.Machine*float64(runtime.NumCPU()) - (after.own-r.own).Seconds()/passed
	for i := range r.operators {
		done.Operators = append(done.Operators, (after.operators[i]-r.operators[i]).Seconds()/passed)
	}
	return done
}

const loadNotes = `
Jobs are worker-led. A stand-in for the kubelets runs each pod at once. The rate is from the first submission until all pods run. Each operator is
a process under a processor quota, as a container with a limit is. Uses are in processors; the machine's is the busy share
of all processors. The operator without a quota shows that the API server and the rest carry more.
`

func (b *bench) printLoad(rows ...*row) error {
	split := make([]int, 2)
	for index := range b.jobs {
		split[shardOf(index, len(split))]++
	}
	fmt.Fprintf(b.Out, "%d jobs of %d pods, medians of %d rounds. Of two shards, one has %d jobs and the other %d, so twice the load would be %.2f times.\n\n",
		b.jobs, b.pods, b.rounds, split[0], split[1], float64(b.jobs)/float64(slices.Max(split)))
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "operators\tquota of each\tpods/s\tall rounds\tratio\toperators use\tAPI server uses\tothers use\tmachine\t")
	for _, each := range rows {
		quota := "none"
		if each.Quota != unlimited {
			quota = fmt.Sprintf("%.2f", each.Quota)
		}
		rates, uses := make([]string, 0, len(each.Rounds)), make([]string, 0, each.Shards)
		for _, done := range each.Rounds {
			rates = append(rates, fmt.Sprintf("%.1f", done.PodsPerSecond))
		}
		for i := range each.Shards {
			uses = append(uses, fmt.Sprintf("%.3f", each.median(func(o outcome) float64 { return o.Operators[i] })))
		}
		fmt.Fprintf(table, "%d\t%s\t%.1f\t%s\t%.2f\t%s\t%.2f\t%.2f\t%.0f%%\t\n", each.Shards, quota, each.median(rate), strings.Join(rates, " "),
			each.median(rate)/rows[0].median(rate), strings.Join(uses, " "), each.median(func(o outcome) float64 { return o.APIServer }), each.median(func(o outcome) float64 { return o.Others }),
			100*each.median(func(o outcome) float64 { return o.Machine }))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	fmt.Fprint(b.Out, loadNotes)
	return nil
}
