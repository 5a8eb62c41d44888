// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
)

const (
	// debounce is how long changes are gathered into one batch.
	debounce = 100 * time.Millisecond
	// mostReports is the maximum number of stored values of a number.
	mostReports = 512
)

// watches is the source of a job's changes.
type watches interface {
	Observe(ctx context.Context, watched cluster.Watched, handle cluster.Handle) error
}

// batch is what changed since the last one.
type batch []func(*world)

// watchOfMembers is the index of the watch of the Membership.
const watchOfMembers = 3

// watched returns the watches of a job. The first two are required for the view.
func watched(job *v2alpha1.DIJob) []cluster.Watched {
	all := []cluster.Watched{cluster.WatchJob(job.Namespace, job.Name), cluster.WatchPods(job), cluster.WatchEvents(job.Namespace)}
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		all = append(all, cluster.WatchMembership(job))
	}
	return all
}

// feed sends the changes of a job until the context ends or handle returns false.
func feed(ctx context.Context, from watches, clk clock.Clock, job *v2alpha1.DIJob, handle func(batch) bool) {
	ctx, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	updates := make(chan func(*world))
	send := func(update func(*world)) {
		select {
		case updates <- update:
		case <-ctx.Done():
		}
	}
	for at, one := range watched(job) {
		working.Go(func() {
			err := from.Observe(ctx, one, func(change cluster.Change) { send(func(w *world) { w.change(at, change) }) })
			if err != nil {
				send(func(w *world) { w.stopped(at, err) })
			}
		})
	}
	for {
		var gathered batch
		var passed <-chan time.Time
		for isOpen := true; isOpen; {
			select {
			case <-ctx.Done():
				return
			case update := <-updates:
				if gathered = append(gathered, update); passed == nil {
					passed = clk.After(debounce)
				}
			case <-passed:
				isOpen = false
			}
		}
		if !handle(gathered) {
			return
		}
	}
}

// world is the observed state of a job and its dependents.
type world struct {
	job        *v2alpha1.DIJob
	isGone     bool
	membership *v2alpha1.Membership
	// lacksMembers is set if the Membership cannot be read.
	lacksMembers bool
	pods         map[types.UID]*corev1.Pod
	events       map[types.UID]*corev1.Event
	// lacks are the watches that were denied, failed is the error that ends the view.
	lacks  []string
	failed error
	// broken are the watches whose connection is broken.
	broken map[int]error
	// missing counts the watches whose first list is not complete.
	missing  int
	complete map[int]bool
	// report is the job's last profiling report, series contains its numbers over time.
	report []byte
	series map[string][]float64
}

func newWorld(job *v2alpha1.DIJob) *world {
	w := &world{
		job: job, pods: map[types.UID]*corev1.Pod{}, events: map[types.UID]*corev1.Event{}, broken: map[int]error{},
		missing: len(watched(job)), complete: map[int]bool{}, series: map[string][]float64{},
	}
	w.record(job.Status.Profilings)
	return w
}

// observed returns what is known of the job. Its Membership is read once the watch of it has begun.
func (w *world) observed() *jobview.Observed {
	return &jobview.Observed{
		Job: w.job, Members: jobview.Members{List: w.membership, IsRead: w.complete[watchOfMembers] && !w.lacksMembers},
		Pods: slices.Collect(maps.Values(w.pods)), Events: slices.Collect(maps.Values(w.events)),
	}
}

func (w *world) apply(updates batch) {
	for _, update := range updates {
		update(w)
	}
}

// change applies a change of a watch. A recreated job with the same name is another job.
func (w *world) change(watch int, change cluster.Change) {
	switch object := change.Object.(type) {
	case *v2alpha1.DIJob:
		w.isGone = change.Gone || object.UID != w.job.UID
		if !w.isGone {
			w.job = object
			w.record(object.Status.Profilings)
		}
	case *v2alpha1.Membership:
		if w.membership = object; change.Gone {
			w.membership = nil
		}
	case *corev1.Pod:
		keep(w.pods, object.UID, object, change.Gone)
	case *corev1.Event:
		keep(w.events, object.UID, object, change.Gone)
	}
	switch {
	case change.Broken != nil:
		w.broken[watch] = change.Broken
	case change.Restored:
		delete(w.broken, watch)
	case change.Complete:
		w.completed(watch)
	}
}

func keep[T any](all map[types.UID]T, uid types.UID, object T, gone bool) {
	if all[uid] = object; gone {
		delete(all, uid)
	}
}

func (w *world) completed(watch int) {
	if !w.complete[watch] {
		w.complete[watch] = true
		w.missing--
	}
}

// stopped records that a watch is denied.
func (w *world) stopped(watch int, err error) {
	delete(w.broken, watch)
	if watch < 2 {
		w.failed = err
		return
	}
	w.completed(watch)
	w.lacksMembers = w.lacksMembers || watch == watchOfMembers
	if !slices.Contains(w.lacks, err.Error()) {
		w.lacks = append(w.lacks, err.Error())
	}
}

// whyBroken returns why the view may be outdated; nil if it is not.
func (w *world) whyBroken() error {
	for _, watch := range slices.Sorted(maps.Keys(w.broken)) {
		return w.broken[watch]
	}
	return nil
}

// record stores a report of the job, unless it equals the last one.
func (w *world) record(report *v2alpha1.RawObject) {
	if report == nil || bytes.Equal(report.Raw, w.report) {
		return
	}
	w.report = report.Raw
	var value any
	if json.Unmarshal(report.Raw, &value) == nil {
		w.collect("", value)
	}
}

// collect appends all numbers of a value.
func (w *world) collect(path string, value any) {
	join := func(key string) string {
		if path == "" {
			return key
		}
		return path + "." + key
	}
	switch value := value.(type) {
	case float64:
		w.series[path] = append(w.series[path], value)
		w.series[path] = w.series[path][max(0, len(w.series[path])-mostReports):]
	case map[string]any:
		for key, inner := range value {
			w.collect(join(key), inner)
		}
	case []any:
		for i, inner := range value {
			w.collect(join(strconv.Itoa(i)), inner)
		}
	}
}

// numbers returns the names of the reported numbers, the most important first.
func (w *world) numbers() []string {
	first := []string{"throughput", "return", "reward"}
	return slices.SortedFunc(maps.Keys(w.series), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Index(first, b), slices.Index(first, a)), cmp.Compare(a, b))
	})
}

func last(series []float64) float64 { return series[len(series)-1] }
