// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	// The jobs that are waited for, and over what time they are submitted.
	lineJobs   = 100
	linePods   = 4
	lineSpread = 2 * time.Second
	// The job that grows beside them.
	growFrom = 10
	growTo   = 500
	// lineRatio is the limit: how much longer the others may take while it grows.
	lineRatio = 2
	// limitPause is how long the operator's limit on its rate recovers before each run.
	limitPause = 2500 * time.Millisecond
)

const lineNotes = `
Times are of the small jobs, from the submission of each until a watch has seen all its %d pods. They are submitted evenly over
%s, in the second row from the moment on in which the large job is told to grow from %d to %d pods; while growing are those
that were submitted before its last pod existed. The runs take turns, on the same operator.
`

// lineRun is what one run measured.
type lineRun struct {
	times []time.Duration
	// grown is how long the large job took; growing counts the jobs submitted meanwhile.
	grown   time.Duration
	growing int
}

// runHeadOfLine measures how long small jobs wait while a large one grows.
func runHeadOfLine(ctx context.Context, b *bench) (missed figures.Limits, err error) {
	w, err := newWorld(ctx, b)
	if err != nil {
		return nil, err
	}
	defer errs(&err, w.stop)
	if err := w.startOperator(ctx); err != nil {
		return nil, err
	}
	if err := w.warmUp(ctx); err != nil {
		return nil, err
	}
	var alone, beside lineRun
	for round := range b.rounds {
		for _, into := range []*lineRun{&alone, &beside} {
			w.say("round %d of %d, %s", round+1, b.rounds, map[bool]string{true: "beside a job that grows", false: "alone"}[into == &beside])
			one, err := w.line(ctx, into == &beside)
			if err != nil {
				return nil, err
			}
			into.times = append(into.times, one.times...)
			into.grown = max(into.grown, one.grown)
			into.growing += one.growing
		}
	}
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%d jobs of %d pods\tjobs\twhile growing\tp50\tp90\tp99\tmost\tlarge job has grown after\t\n", lineJobs, linePods)
	for _, row := range []struct {
		name string
		run  *lineRun
	}{{"alone", &alone}, {fmt.Sprintf("beside one that grows %d to %d", growFrom, growTo), &beside}} {
		grown := "-"
		if row.run.grown > 0 {
			grown = figures.Seconds(row.run.grown)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n", row.name, len(row.run.times), row.run.growing,
			figures.Shown(row.run.times, 50), figures.Shown(row.run.times, 90), figures.Shown(row.run.times, 99), figures.Shown(row.run.times, 100), grown)
	}
	err = table.Flush()
	ratio := float64(figures.Percentile(beside.times, 99)) / float64(figures.Percentile(alone.times, 99))
	fmt.Fprintf(b.out, "\np99 is %.2f times that without the growing job.\n"+lineNotes, ratio, linePods, lineSpread, growFrom, growTo)
	missed.Require(ratio <= lineRatio, "p99 of small jobs is %.2f times that without the growing job, the limit %d", ratio, lineRatio)
	return missed, err
}

// line measures one run, and deletes all after it.
func (w *world) line(ctx context.Context, grows bool) (lineRun, error) {
	large := newJob(oursNamespace, "large-0000", growFrom)
	if grows {
		if err := w.submit(ctx, large); err != nil {
			return lineRun{}, err
		}
		if err := w.waitRunning(ctx, oursNamespace, 1, growFrom); err != nil {
			return lineRun{}, err
		}
	}
	if err := pace.Pause(ctx, limitPause); err != nil {
		return lineRun{}, err
	}
	began := time.Now()
	var submitted [lineJobs]time.Time
	jobs := jobsOf(oursNamespace, "small", lineJobs, linePods)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return w.submitSpread(running, jobs, submitted[:]) })
	if grows {
		group.Go(func() error { return w.resize(running, large, growTo) })
	}
	all := lineJobs * linePods
	if grows {
		all += growTo
	}
	group.Go(func() error {
		_, err := w.waitPods(running, oursNamespace, all)
		return err
	})
	if err := group.Wait(); err != nil {
		return lineRun{}, err
	}
	return w.readLine(began, jobs, submitted[:], grows), w.clear(ctx)
}

// submitSpread submits jobs evenly over a time, each on its own.
func (w *world) submitSpread(ctx context.Context, jobs []*v2alpha1.DIJob, submitted []time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	pace := time.NewTicker(lineSpread / time.Duration(len(jobs)))
	defer pace.Stop()
	for i, job := range jobs {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-pace.C:
		}
		group.Go(func() error {
			submitted[i] = time.Now()
			return w.submit(ctx, job)
		})
	}
	return group.Wait()
}

// readLine reads what the kubelet saw of each job.
func (w *world) readLine(began time.Time, jobs []*v2alpha1.DIJob, submitted []time.Time, grows bool) lineRun {
	var result lineRun
	// Whether the kubelet has failed is looked at by those who wait for it.
	_ = w.kubelet.read(func(of tallies) {
		last := began
		if grows {
			last = of[jobKey{oursNamespace, "large-0000"}].created
			result.grown = last.Sub(began)
		}
		for i, job := range jobs {
			result.times = append(result.times, of[jobKey{job.Namespace, job.Name}].created.Sub(submitted[i]))
			if submitted[i].Before(last) {
				result.growing++
			}
		}
	})
	return result
}
