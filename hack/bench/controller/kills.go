// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	// What the load may come to, and how long it rests between two moves at most.
	loadJobs  = 20
	loadPods  = 12
	loadPause = 100 * time.Millisecond
	// killWrites is after how many writes, at most, the operator is killed.
	killWrites = 40
	// restTime is how long all jobs may take to run once the load has ended.
	restTime = 3 * time.Minute
)

var errNoRest = errors.New("not all jobs run in time")

const killsNotes = `
The operator's process is killed (SIGKILL) right after the API server has done its write number n since it was ready, n being
random from 1 to %d, before it gets the answer; Events are not counted as writes. Meanwhile jobs are submitted, grow by
1 to 4 pods and lose pods, up to %d jobs of %d pods. Then the load ends, and what is there is looked at once all jobs run.
-seed %d kills after the same numbers of writes and makes the same load; what meets what differs.
`

// runKills kills the operator again and again under load, and looks at what is left.
func runKills(ctx context.Context, b *bench) (missed figures.Limits, err error) {
	w, err := newWorld(ctx, b)
	if err != nil {
		return nil, err
	}
	defer errs(&err, w.stop)
	way, err := w.newDeadly(ctx)
	if err != nil {
		return nil, err
	}
	defer errs(&err, way.stop)
	kubeconfig, err := way.kubeconfig(b.folder)
	if err != nil {
		return nil, err
	}
	if err := w.startOperatorBy(ctx, kubeconfig, ""); err != nil {
		return nil, err
	}
	began := time.Now()
	load := &load{world: w, random: rand.New(rand.NewPCG(b.seed, 1)), pods: map[string]int{}}
	loading, endLoad := context.WithCancel(ctx)
	defer endLoad()
	ended := make(chan error, 1)
	go func() { ended <- load.run(loading) }()
	after, err := w.killAgain(ctx, way, kubeconfig)
	endLoad()
	if err := errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	killing := time.Since(began)
	found, err := w.comeToRest(ctx, load)
	if err != nil {
		return nil, err
	}
	return load.report(killing, after, found), nil
}

// killAgain kills the operator and starts it again. It returns after which
// writes it died, and how often.
func (w *world) killAgain(ctx context.Context, way *deadly, kubeconfig string) (map[string]int, error) {
	random := rand.New(rand.NewPCG(w.seed, 2))
	after := map[string]int{}
	for i := range w.kills {
		writes := 1 + random.IntN(killWrites)
		way.arm(writes, w.operator.Kill)
		last, err := way.wait(ctx)
		if err != nil {
			return after, err
		}
		after[kindOf(last)]++
		w.say("killed %d of %d times, after write %d: %s", i+1, w.kills, writes, last)
		address := w.operator.Address
		w.operator = nil
		if err := w.startOperatorBy(ctx, kubeconfig, address); err != nil {
			return after, err
		}
	}
	return after, nil
}

// comeToRest waits until all jobs have what they are to have, though not for
// ever, and looks at them.
func (w *world) comeToRest(ctx context.Context, load *load) (*findings, error) {
	pods := 0
	for _, count := range load.pods {
		pods += count
	}
	waiting, cancel := context.WithTimeoutCause(ctx, restTime, errNoRest)
	defer cancel()
	if err := w.waitRunning(waiting, oursNamespace, len(load.pods), pods); err != nil && !errors.Is(err, errNoRest) {
		return nil, err
	}
	if _, err := w.waitQuiet(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	return w.inspect(ctx, load.pods)
}

// kindOf returns what a write was, without the name of what was written.
func kindOf(write string) string {
	method, path, _ := strings.Cut(write, " ")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if index := slices.Index(parts, "namespaces"); index >= 0 {
		parts = parts[min(index+2, len(parts)):]
	}
	// Of kind/name/subresource the name is left out.
	if len(parts) > 1 {
		parts = slices.Delete(parts, 1, 2)
	}
	return strings.Join(append([]string{method}, parts...), " ")
}

// load is what happens to jobs while the operator is killed.
type load struct {
	*world
	random *rand.Rand
	// pods is how many pods each job is to have.
	pods map[string]int
	// grown and failed count what was done, and refused the jobs that could not
	// be submitted while nobody served webhooks.
	grown, failed, refused int
}

// run makes one move after the other until the context ends.
func (l *load) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.move(ctx); err != nil {
			return err
		}
		// That the context ends in it is looked at next.
		_ = pace.Pause(ctx, time.Duration(l.random.Int64N(int64(loadPause))))
	}
	return nil
}

// move does one thing. Nothing is done by halves when the context ends.
func (l *load) move(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	switch what := l.random.IntN(10); {
	case what < 3 && len(l.pods) < loadJobs || len(l.pods) == 0:
		l.add(ctx)
		return nil
	case what < 6:
		return l.grow(ctx)
	default:
		return l.lose(ctx)
	}
}

func (l *load) add(ctx context.Context) {
	job := newJob(oursNamespace, fmt.Sprintf("load-%04d", len(l.pods)), 2+l.random.IntN(6))
	job.Spec.BackoffLimit = ptr.To[int32](-1)
	if err := l.submit(ctx, job); err != nil {
		l.refused++
		return
	}
	l.pods[job.Name] = int(*job.Spec.Tasks[0].Replicas)
}

// anyJob returns one of the jobs.
func (l *load) anyJob() *v2alpha1.DIJob {
	return newJob(oursNamespace, pick(l.random, slices.Sorted(maps.Keys(l.pods))), 0)
}

func (l *load) grow(ctx context.Context) error {
	job := l.anyJob()
	wanted := min(l.pods[job.Name]+1+l.random.IntN(4), loadPods)
	if wanted == l.pods[job.Name] {
		return nil
	}
	if err := l.resize(ctx, job, wanted); err != nil {
		return err
	}
	l.pods[job.Name] = wanted
	l.grown++
	return nil
}

func (l *load) lose(ctx context.Context) error {
	job := l.anyJob()
	key := types.NamespacedName{Namespace: job.Namespace, Name: names.WorkerPod(job.Name, taskName, l.random.Int32N(int32(l.pods[job.Name])))}
	did, err := l.kubelet.fail(ctx, key)
	if did {
		l.failed++
	}
	return err
}

// report prints the table.
func (l *load) report(killing time.Duration, after map[string]int, found *findings) figures.Limits {
	var missed figures.Limits
	table := tabwriter.NewWriter(l.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "killed\tin\tjobs\tpods\tgrown\tfailed pods\trestarts\tnot running\tduplicates\torphans\twrong ranks\tof an earlier attempt\t")
	restarts := 0
	for _, count := range found.restarts {
		restarts += int(count)
	}
	fmt.Fprintf(table, "%d times\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", l.kills, killing.Round(time.Second), found.jobs, found.pods,
		l.grown, l.failed, restarts, found.notRunning, found.duplicates, found.orphans, found.strangers, found.stale)
	// Writing to a table in memory does not fail; to the output nobody could be told.
	_ = table.Flush()
	fmt.Fprint(l.out, "\nKilled after:")
	for _, what := range slices.Sorted(maps.Keys(after)) {
		fmt.Fprintf(l.out, " %d times %s;", after[what], what)
	}
	fmt.Fprintf(l.out, " %d submissions were refused while nobody served webhooks.\n"+killsNotes, l.refused, killWrites, loadJobs, loadPods, l.seed)
	missed.Require(found.faults() == 0, "%d faults, such as: %s", found.faults(), found.first)
	missed.Require(restarts <= l.failed, "%d restarts for %d pods that failed", restarts, l.failed)
	return missed
}
