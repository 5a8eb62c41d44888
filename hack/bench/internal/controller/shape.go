// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

// shapeRatio is the limit: how much longer than the plain client the operator takes.
const shapeRatio = 1.5

// shape is so many jobs of so many pods.
type shape struct{ jobs, pods int }

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.jobs, s.pods) }

// shapes are those of the design, divided by a factor: the jobs, where there are
// that many, else the pods.
func shapes(divided int) []shape {
	var all []shape
	for _, s := range []shape{{5000, 1}, {500, 10}, {100, 50}, {10, 500}, {1, 5000}} {
		if s.jobs > 1 {
			s.jobs = max(s.jobs/divided, 1)
		} else {
			s.pods = max(s.pods/divided, 1)
		}
		all = append(all, s)
	}
	return all
}

// rate is a limit on how fast a client may call the API server; none where qps
// is below 0.
type rate struct {
	name  string
	qps   float32
	burst int
}

// shapeRun is one shape at one rate.
type shapeRun struct {
	*world
	shape shape
	rate  rate
}

// made is what one run took.
type made struct {
	// exist is from the first submission until the last pod exists.
	exist time.Duration
	// submitted is from the first submission until the last is answered.
	submitted time.Duration
	asked     controlplane.Requests
}

const shapeNotes = `
From the first submission until a watch has seen the last pod; submission is counted in both. The plain client submits the
same jobs through the same webhooks and creates of each, as it exists, the same service and then the same pods: %d jobs at a
time as the operator's workers, of each %d pods at a time, with the operator's limit on its rate (for each kind of object
its own, as in the operator). Meanwhile a second operator stands by, which serves webhooks and fills its caches but does not
act. In both, a kubelet makes each pod run as soon as it exists. etcd writes without fsync for both. Submitted is until the
last job was answered: what the webhooks and the machine allow. Reads are the operator's GETs and LISTs until all pods exist.
`

// runShapes measures how long the pods of so many jobs take, and how long a
// plain client takes to create the same objects.
func (b *bench) runShapes(ctx context.Context) (figures.Limits, error) {
	var missed figures.Limits
	divided := max(b.scale, 1)
	if b.full {
		divided = 1
	}
	rates := []rate{{"default", defaultQPS, defaultBurst}}
	if b.unlimited || b.full {
		rates = append(rates, rate{"none", -1, 0})
	}
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs x pods\trate limit\toperator: submitted\tall pods exist\tpods/s\treads\tplain client: submitted\tall pods exist\tpods/s\tratio\t")
	for _, s := range shapes(divided) {
		if err := b.runShape(ctx, table, &missed, s, rates); err != nil {
			return missed, fmt.Errorf("%s: %w", s, err)
		}
	}
	err := table.Flush()
	fmt.Fprintf(b.Out, shapeNotes, defaultWorkers, plainParallelism)
	return missed, err
}

func (b *bench) runShape(ctx context.Context, table *tabwriter.Writer, missed *figures.Limits, s shape, rates []rate) (err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return err
	}
	defer harness.Close(&err, w.stop)
	for _, limit := range rates {
		run := &shapeRun{world: w, shape: s, rate: limit}
		ours, plain, err := run.compare(ctx)
		if err != nil {
			return fmt.Errorf("rate limit %s: %w", limit.name, err)
		}
		pods := float64(s.jobs * s.pods)
		ratio := ours.exist.Seconds() / plain.exist.Seconds()
		reads := ours.asked.Total("get", "list")
		row := fmt.Sprintf("%s\t%s\t%s\t%s\t%.0f\t%d\t%s\t%s\t%.0f\t%.2f\t", s, limit.name,
			figures.Seconds(ours.submitted), figures.Seconds(ours.exist), pods/ours.exist.Seconds(), reads,
			figures.Seconds(plain.submitted), figures.Seconds(plain.exist), pods/plain.exist.Seconds(), ratio)
		fmt.Fprintln(table, row)
		b.Say("%s", row)
		missed.Require(ratio <= shapeRatio, "%s, rate limit %s: %.2f times as long as the plain client, the limit %.1f", s, limit.name, ratio, shapeRatio)
		missed.Require(reads == 0, "%s, rate limit %s: the operator read: %s", s, limit.name, ours.asked)
	}
	return nil
}

// compare measures the operator, then the plain client.
func (r *shapeRun) compare(ctx context.Context) (ours, plain made, err error) {
	r.Say("%s, rate limit %s: the operator", r.shape, r.rate.name)
	flags := []string{"--kube-api-qps", strconv.FormatFloat(float64(r.rate.qps), 'f', -1, 32), "--kube-api-burst", strconv.Itoa(r.rate.burst)}
	if err := r.startOperator(ctx, flags...); err != nil {
		return ours, plain, err
	}
	if err := r.warmUp(ctx); err != nil {
		return ours, plain, err
	}
	twins, ours, err := r.byOperator(ctx)
	if err != nil {
		return ours, plain, err
	}
	if err := errors.Join(r.stopOperator(), r.clear(ctx)); err != nil {
		return ours, plain, err
	}
	r.Say("%s, rate limit %s: the plain client", r.shape, r.rate.name)
	if err := r.standBy(ctx); err != nil {
		return ours, plain, err
	}
	plain, err = r.byPlainClient(ctx, twins)
	if err != nil {
		return ours, plain, err
	}
	return ours, plain, errors.Join(r.stopOperator(), r.clear(ctx), r.endStandBy(ctx))
}

// byOperator submits the jobs and waits until all their pods run; what is
// measured ends when they exist.
func (r *shapeRun) byOperator(ctx context.Context) ([]*twin, made, error) {
	mark, err := r.WaitQuiet(ctx, time.Second)
	if err != nil {
		return nil, made{}, err
	}
	jobs := jobsOf(oursNamespace, "shape", r.shape.jobs, r.shape.pods)
	result, err := r.time(ctx, oursNamespace, func(ctx context.Context) error { return r.submitAll(ctx, jobs, nil) })
	if err != nil {
		return nil, made{}, err
	}
	counts, err := r.Since(mark)
	if err != nil {
		return nil, made{}, err
	}
	result.asked = counts[harness.UserOperator]
	if err := r.waitRunning(ctx, oursNamespace, r.shape.jobs, r.shape.jobs*r.shape.pods); err != nil {
		return nil, made{}, err
	}
	twins, err := r.twinsOf(ctx, jobs)
	return twins, result, err
}

func (r *shapeRun) byPlainClient(ctx context.Context, twins []*twin) (made, error) {
	plain, err := r.newPlainClient(r.rate.qps, r.rate.burst)
	if err != nil {
		return made{}, err
	}
	if _, err := r.WaitQuiet(ctx, time.Second); err != nil {
		return made{}, err
	}
	result, err := r.time(ctx, plainNamespace, func(ctx context.Context) error { return plain.createAll(ctx, r.world, twins) })
	if err != nil {
		return made{}, err
	}
	return result, r.waitReady(ctx, plainNamespace, r.shape.jobs*r.shape.pods)
}

// time begins something that makes the shape's pods, and returns when all exist.
func (r *shapeRun) time(ctx context.Context, namespace string, begin func(context.Context) error) (made, error) {
	began := time.Now()
	begun := make(chan error, 1)
	var result made
	go func() {
		err := begin(ctx)
		result.submitted = time.Since(began)
		begun <- err
	}()
	last, err := r.waitPods(ctx, namespace, r.shape.jobs*r.shape.pods)
	if err := errors.Join(err, <-begun); err != nil {
		return made{}, err
	}
	result.exist = last.Sub(began)
	return result, nil
}
