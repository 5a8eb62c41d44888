// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tails

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/history/observe"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
)

const (
	// inFlight bounds the logs that are read at a time.
	inFlight = 4
	// maxWaiting bounds those that wait, and maxRead those that wait for the database.
	maxWaiting = 10_000
	maxRead    = 256
	// attempts bounds the requests for one tail. The first delay doubles with each.
	attempts   = 4
	firstDelay = time.Second
	maxDelay   = 8 * time.Second
)

// Options are what a Reader needs.
type Options struct {
	Pods    corev1client.PodsGetter
	Redact  record.Redaction
	Metrics *Metrics
	Clock   clock.WithTicker
	Log     logr.Logger
}

// Reader reads tails.
type Reader struct {
	Options
	queue workqueue.TypedRateLimitingInterface[*wanted]
	read  chan store.Change

	mutex sync.Mutex
	jobs  map[string]*ofJob
	// asked counts the tails of each job that are not taken yet.
	asked map[string]int
}

// wanted is a tail to read.
type wanted struct {
	job, namespace string
	ending         observe.Ending
}

// ofJob is what was asked for of a job, by the UID of the pod, so that it is asked for once.
type ofJob struct {
	count int
	pods  map[types.UID]map[run]bool
}

// run is one run of a container.
type run struct {
	container string
	restarts  int32
}

// NewReader returns a Reader.
func NewReader(options Options) *Reader {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[*wanted](firstDelay, maxDelay)
	return &Reader{
		Options: options,
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(retries, workqueue.TypedRateLimitingQueueConfig[*wanted]{Clock: options.Clock}),
		read:    make(chan store.Change, maxRead),
		jobs:    map[string]*ofJob{},
		asked:   map[string]int{},
	}
}

// NeedLeaderElection restricts it to the leader.
func (*Reader) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It runs until the context ends.
func (r *Reader) Start(ctx context.Context) error {
	var group sync.WaitGroup
	for range inFlight {
		group.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	group.Wait()
	return nil
}

// Observe asks for the tails of a pod of a job. It never waits.
func (r *Reader) Observe(pod *corev1.Pod) {
	for _, job := range controllers.OwnerUID(pod) {
		for _, ending := range observe.Endings(pod) {
			if ending.IsBad(pod) && r.isNew(job, pod.UID, run{ending.Container, ending.Restarts}) {
				r.queue.Add(&wanted{job, pod.Namespace, ending})
			}
		}
	}
}

// isNew notes a run, and reports whether to read its tail.
func (r *Reader) isNew(job string, pod types.UID, ended run) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.jobs[job]
	if known == nil {
		known = &ofJob{pods: map[types.UID]map[run]bool{}}
		r.jobs[job] = known
	}
	if known.pods[pod][ended] || known.count >= record.MaxTails || r.queue.Len() >= maxWaiting {
		return false
	}
	if known.pods[pod] == nil {
		known.pods[pod] = map[run]bool{}
	}
	known.pods[pod][ended] = true
	known.count++
	r.asked[job]++
	return true
}

// Forget forgets a pod that is gone.
func (r *Reader) Forget(pod *corev1.Pod) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, job := range controllers.OwnerUID(pod) {
		if known := r.jobs[job]; known != nil {
			if delete(known.pods, pod.UID); len(known.pods) == 0 {
				delete(r.jobs, job)
			}
		}
	}
}

// Take returns tails that were read, and does not wait for others.
func (r *Reader) Take() []store.Change {
	var taken []store.Change
	for range maxRead {
		select {
		case change := <-r.read:
			taken = append(taken, change)
			r.took(change.UID)
		default:
			return taken
		}
	}
	return taken
}

func (r *Reader) took(job string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.asked[job]--; r.asked[job] <= 0 {
		delete(r.asked, job)
	}
}

// Reads reports whether tails of a job are not taken yet.
func (r *Reader) Reads(job types.UID) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.asked[string(job)] > 0
}

// next reads one tail. It reports false at the end.
func (r *Reader) next(ctx context.Context) bool {
	item, isOver := r.queue.Get()
	if isOver {
		return false
	}
	defer r.queue.Done(item)
	tail, err := r.tail(ctx, item)
	tries := r.queue.NumRequeues(item) + 1
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && tries < attempts && !isPermanent(err):
		r.queue.AddRateLimited(item)
		return true
	case err != nil:
		r.Log.Info("Cannot read the log of a container that ended badly", "namespace", item.namespace, "pod", tail.Pod, "container", tail.Container, "cause", err.Error())
		r.Metrics.tails.WithLabelValues(resultLost).Inc()
		tail.Text, tail.Truncated = note(err), true
	default:
		r.Metrics.tails.WithLabelValues(resultRead).Inc()
	}
	r.queue.Forget(item)
	select {
	case r.read <- store.Change{UID: item.job, Tails: []record.Tail{record.BoundTail(tail)}}:
		return true
	case <-ctx.Done():
		return false
	}
}
