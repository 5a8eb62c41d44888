// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs prints the logs of all replicas of a job together. It must not change anything.
package logs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// run prints logs of a job.
type run struct {
	cluster *cluster.Cluster
	clock   clock.Clock
	job     *v2alpha1.DIJob
	wanted  selection
	log     corev1.PodLogOptions
	most    int
	printer output
	notices *notices
}

// once prints the existing logs, one container after the other.
func (r *run) once(ctx context.Context) error {
	pods, err := r.pods(ctx)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return r.whyNone()
	}
	var failures []error
	for _, pod := range pods {
		for _, container := range r.wanted.containers(pod) {
			if err := r.copy(ctx, pod, container); err != nil {
				failures = append(failures, err)
			}
			if ctx.Err() != nil || len(failures) > 0 && isFatal(failures[len(failures)-1]) {
				return errors.Join(append(failures, r.printer.flush())...)
			}
		}
	}
	return errors.Join(append(failures, r.printer.flush())...)
}

// pods returns the selected pods.
func (r *run) pods(ctx context.Context) ([]*corev1.Pod, error) {
	all, err := r.cluster.Pods(ctx, r.job)
	if err != nil {
		return nil, err
	}
	own := replicas.Of(r.job, all)
	if err := r.wanted.checkPods(r.job, own); err != nil {
		return nil, err
	}
	taken := make([]*corev1.Pod, 0, len(own))
	for _, pod := range own {
		if r.wanted.takes(r.job, pod) {
			taken = append(taken, pod)
		}
	}
	return taken, r.wanted.checkContainer(taken)
}

// whyNone returns why there are no pods to print the logs of.
func (r *run) whyNone() error {
	text := fmt.Sprintf("job %s/%s is in phase %s and has no pods to print the logs of", r.job.Namespace, r.job.Name, phase(r.job))
	switch {
	case !replicas.IsFinished(r.job):
		return fmt.Errorf("%s yet: -f waits for them", text)
	case r.job.Spec.CleanPodPolicy == v2alpha1.CleanPodPolicyAll:
		return fmt.Errorf("%s: its spec.cleanPodPolicy All deleted them with their logs; Running keeps those that have ended, None keeps all", text)
	}
	return fmt.Errorf("%s: they were deleted with their logs; a collector of logs keeps them for longer", text)
}

// copy prints the existing log of a container.
func (r *run) copy(ctx context.Context, pod *corev1.Pod, container string) error {
	name := r.replica(pod, container)
	now := stateOf(pod, container)
	switch {
	case now.instance == "":
		r.notices.print("%s: %s", name, reason(now))
		return nil
	case r.log.Previous && now.previous == "":
		r.notices.print("%s: %s", name, r.whyNoPrevious(pod, container))
		return nil
	}
	options := r.log
	options.Container, options.Timestamps = container, true
	stream, err := r.cluster.Logs(ctx, pod.Name, &options)
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // it was read
	return newCopying(stream, &position{}, true, func(one line) error {
		if one.replica = name; one.at.IsZero() {
			r.notices.print("%s: %s", name, one.text)
			return nil
		}
		return r.printer.print(one)
	}).run()
}

// whyNoPrevious returns where the log of the earlier run of a container is.
func (r *run) whyNoPrevious(pod *corev1.Pod, container string) string {
	if r.job.Status.Restarts == 0 && r.job.Status.Reschedules == 0 && r.job.Status.ReplicaRestarts[pod.Name] == 0 {
		return fmt.Sprintf("container %s has not run before", container)
	}
	text := "this pod was recreated, and the log of the earlier one was deleted with it; a collector of logs keeps it"
	switch failure := r.job.Status.LastFailure; {
	case failure == nil || failure.Message == "":
	case failure.Pod == pod.Name:
		text += "; it ended with: " + failure.Message
	default:
		text += fmt.Sprintf("; the last failure was of pod %s: %s", failure.Pod, failure.Message)
	}
	return text
}

func reason(now state) string {
	if now.isOver {
		return "ended before it ran"
	}
	return now.waiting
}

// replica returns the prefix of a container's lines.
func (r *run) replica(pod *corev1.Pod, container string) string {
	name := replicas.Name(r.job.Name, pod.Name)
	if r.wanted.allContainers {
		name += "/" + container
	}
	return name
}

// event is a change that the loop handles.
type event struct {
	job, pods bool
	change    cluster.Change
	// ended is a follower that has ended, and failed its error.
	ended  *follower
	failed error
}

// retention is how long the logs of retained pods are followed after their job has finished.
const retention = 10 * time.Second

// following is the state of following a job.
type following struct {
	*run
	events    chan event
	slots     chan struct{}
	followers map[types.UID][]*follower
	live      int
	// isFinished reports whether the job creates no further pods.
	isFinished bool
	hasPods    bool
	// retained fires at the end of the retention.
	retained <-chan time.Time
}

// follow prints logs until the job has finished and its pods have ended.
func (r *run) follow(ctx context.Context) error {
	pods, err := r.pods(ctx)
	switch {
	case err != nil:
		return err
	case len(pods) == 0 && replicas.IsFinished(r.job):
		return r.whyNone()
	case len(pods) == 0:
		r.notices.print("job %s/%s is in phase %s and has no pods yet: waiting for them", r.job.Namespace, r.job.Name, phase(r.job))
	}
	ctx, stop := context.WithCancel(ctx)
	f := &following{run: r, events: make(chan event), slots: make(chan struct{}, r.most), followers: map[types.UID][]*follower{}}
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	working.Go(func() { f.watch(ctx, cluster.WatchJob(r.job.Namespace, r.job.Name), event{job: true}) })
	working.Go(func() { f.watch(ctx, cluster.WatchPods(r.job), event{pods: true}) })
	return f.loop(ctx, &working)
}

// loop handles events until there is nothing left to follow.
func (f *following) loop(ctx context.Context, working *sync.WaitGroup) error {
	for {
		select {
		case <-ctx.Done():
			return f.printer.flush()
		case <-f.retained:
			f.notices.print("job %s/%s has finished, and its spec.cleanPodPolicy None keeps pods: %s no longer followed", f.job.Namespace,
				f.job.Name, containersAre(f.live))
			return f.printer.flush()
		case next := <-f.events:
			if next.failed != nil {
				return errors.Join(next.failed, f.printer.flush())
			}
			if err := f.handle(ctx, working, next); err != nil {
				return err
			}
		}
		if f.isFinished && f.hasPods && f.live == 0 {
			return f.printer.flush()
		}
	}
}

func containersAre(count int) string {
	return english.Plural(count, "container is", "containers are")
}

// watch sends the changes of a watch as events.
func (f *following) watch(ctx context.Context, watched cluster.Watched, of event) {
	err := f.cluster.Observe(ctx, watched, func(change cluster.Change) {
		of.change = change
		f.send(ctx, of)
	})
	if err != nil {
		f.send(ctx, event{failed: err})
	}
}

func (f *following) send(ctx context.Context, one event) {
	select {
	case f.events <- one:
	case <-ctx.Done():
	}
}

// handle handles one event.
func (f *following) handle(ctx context.Context, working *sync.WaitGroup, next event) error {
	switch object := next.change.Object.(type) {
	case *v2alpha1.DIJob:
		f.isFinished = next.change.Gone || object.UID != f.job.UID || replicas.IsFinished(object)
		if f.isFinished && !next.change.Gone && f.retained == nil && object.Spec.CleanPodPolicy == v2alpha1.CleanPodPolicyNone {
			f.retained = f.clock.After(retention)
		}
	case *corev1.Pod:
		f.pod(ctx, working, object, next.change.Gone)
	default:
		if next.ended != nil {
			f.live--
		}
		if next.pods && next.change.Complete {
			f.hasPods = true
			return f.checkMost()
		}
		if broken := next.change.Broken; broken != nil {
			f.notices.print("the job's changes cannot be seen for now: %v; trying again", broken)
		}
	}
	return nil
}

// checkMost returns an error if more containers are selected than allowed.
func (f *following) checkMost() error {
	open := 0
	for _, followers := range f.followers {
		for _, one := range followers {
			if now := one.state(); !now.isOver && !now.isGone {
				open++
			}
		}
	}
	if open <= f.most {
		return nil
	}
	return &TooManyError{Most: f.most, Open: open}
}

// pod starts followers of a pod's containers, or updates their state.
func (f *following) pod(ctx context.Context, working *sync.WaitGroup, pod *corev1.Pod, gone bool) {
	if len(replicas.Of(f.job, []*corev1.Pod{pod})) == 0 || !f.wanted.takes(f.job, pod) {
		return
	}
	for _, name := range f.wanted.containers(pod) {
		now := stateOf(pod, name)
		now.isGone = gone
		if known := f.known(pod.UID, name); known != nil {
			known.update(now)
		} else if !gone {
			f.start(ctx, working, pod, name, now)
		}
	}
}

func (f *following) known(pod types.UID, container string) *follower {
	for _, one := range f.followers[pod] {
		if one.container == container {
			return one
		}
	}
	return nil
}

func (f *following) start(ctx context.Context, working *sync.WaitGroup, pod *corev1.Pod, container string, now state) {
	one := &follower{
		source: f.cluster, clock: f.clock, print: f.printer.print, notice: f.notices.print, slots: f.slots, options: f.log,
		pod: pod, container: container, replica: f.replica(pod, container), now: now, isLate: f.hasPods,
		changed: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	f.printer.introduce(one.replica)
	f.followers[pod.UID] = append(f.followers[pod.UID], one)
	f.live++
	working.Go(func() { f.send(ctx, event{ended: one, failed: one.run(ctx)}) })
}

func phase(job *v2alpha1.DIJob) v2alpha1.Phase {
	if job.Status.Phase == "" {
		return v2alpha1.JobPending
	}
	return job.Status.Phase
}
