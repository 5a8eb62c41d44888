// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// The minimum and maximum delay before a follower reconnects to a log that ended while its
// container runs.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// rest is how long the log of a deleted pod may continue. If its node is lost too, the
	// connection may hang.
	rest = 10 * time.Second
)

// source is where logs come from.
type source interface {
	Logs(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)
	Get(ctx context.Context, namespace, name string, object client.Object) error
}

// follower follows the log of one container of one pod through its restarts.
type follower struct {
	source  source
	clock   clock.Clock
	print   func(line) error
	notice  func(format string, args ...any)
	slots   chan struct{}
	options corev1.PodLogOptions

	pod       *corev1.Pod
	container string
	replica   string
	at        position

	// isLate reports whether the pod appeared while the job was followed.
	isLate bool

	mutex   sync.Mutex
	now     state
	gone    chan struct{}
	changed chan struct{}
	// first is the instance that was read first. done is the last one that was read completely.
	// caught is the last one whose end was read after its successor had started.
	first, done, caught string
	pause               time.Duration
	// opened is the position of the last read, and begun the time of its first line.
	opened position
	begun  time.Time
}

// update sets the state of the follower's container.
func (f *follower) update(now state) {
	f.mutex.Lock()
	if now.isGone && !f.now.isGone {
		close(f.gone)
	}
	f.now = now
	f.mutex.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *follower) state() state {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.now
}

// run follows the log until the container has finished. It returns only errors that affect all
// containers.
func (f *follower) run(ctx context.Context) error {
	f.pause = firstPause
	if !f.isLate {
		// Earlier instances are printed by --previous only.
		f.caught = f.state().previous
	}
	for ctx.Err() == nil {
		now := f.state()
		switch {
		case now.isGone, now.isOver && now.instance == f.done:
			return nil
		case now.instance == "" && now.isOver:
			f.notice("%s: ended before it ran", f.replica)
			return nil
		case now.instance == "" || now.instance == f.done && !now.isRunning:
			f.notice("%s: %s", f.replica, now.waiting)
			f.wait(ctx, nil)
			continue
		}
		if err := f.follow(ctx, now); err != nil {
			return err
		}
	}
	return nil
}

// follow continues from the position: first the rest of the previous instance, then the current
// one.
func (f *follower) follow(ctx context.Context, now state) error {
	if now.previous != "" && now.previous != f.caught {
		if err := f.catchUp(ctx, now.previous); err != nil {
			return err
		}
		f.caught = now.previous
	}
	if f.first == "" {
		f.first = now.instance
	}
	before := f.at
	f.opened, f.begun = before, time.Time{}
	f.opened.resume()
	err := f.read(ctx, request{instance: now.instance, follows: now.isRunning, isOver: !now.isRunning, since: &f.at}, func(rest *copying) {
		rest.isKnown = func(at time.Time) bool {
			known := f.at.isRead(at)
			if !known && f.begun.IsZero() {
				f.begun = at
			}
			return known
		}
	})
	switch {
	case isFatal(err):
		return err
	case err == nil && !now.isRunning:
		f.done, f.at.part = now.instance, 0
		return nil
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the user has ended the command
	case err != nil:
		f.notice("%s: %v", f.replica, err)
	}
	if f.at != before {
		f.pause = firstPause
	}
	return f.pauseAndLook(ctx, now)
}

// catchUp reads the rest of the previous instance, which may be unavailable.
//
// The kubelet restarts a container before the pod's status reports that. The last lines may
// therefore be the current instance's. In that case all unread lines of the previous instance are
// older.
func (f *follower) catchUp(ctx context.Context, previous string) error {
	missed, begun := f.opened, f.begun
	err := f.read(ctx, request{instance: previous, previous: true, since: &missed, isOver: true}, func(rest *copying) {
		rest.isKnown = func(at time.Time) bool {
			if !begun.IsZero() && at.Before(begun) {
				return missed.isRead(at)
			}
			return f.at.isRead(at)
		}
	})
	f.at.part = 0
	if isFatal(err) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		f.notice("%s: the end of the run before was not read: %v", f.replica, err)
	}
	return nil
}

// isFatal reports whether an error affects all containers.
func isFatal(err error) bool {
	return cluster.IsDenied(err) || errors.As(err, new(printError))
}

// request describes one read of a log.
type request struct {
	instance                  string
	follows, previous, isOver bool
	since                     *position
}

// read reads the log from a position on.
func (f *follower) read(ctx context.Context, asked request, prepare func(*copying)) error {
	select {
	case f.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
		f.notice("more containers than --max-log-requests %d would be followed: some wait until others have ended", cap(f.slots))
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-f.slots }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go f.stopWhenGone(ctx, stop)
	options := f.ask(asked)
	stream, err := f.source.Logs(ctx, f.pod.Name, &options)
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // it was read
	// Logs are requested by the pod's name. If the pod of this name has our UID now, it also had it
	// when the log was opened.
	if isOurs, err := f.look(ctx); err != nil || !isOurs {
		return err
	}
	rest := newCopying(stream, &f.at, asked.isOver, f.emit)
	prepare(rest)
	return rest.run()
}

// ask returns the options of an API request.
func (f *follower) ask(asked request) corev1.PodLogOptions {
	options := f.options
	options.Container, options.Follow, options.Previous, options.Timestamps = f.container, asked.follows, asked.previous, true
	second, resumed := asked.since.second()
	switch {
	case resumed:
		options.SinceTime, options.SinceSeconds, options.TailLines = &metav1.Time{Time: second}, nil, nil
	case f.first != "" && f.first != asked.instance:
		// All lines of an instance that has started since then are new.
		options.SinceTime, options.SinceSeconds, options.TailLines = nil, nil, nil
	}
	return options
}

// look reads the pod, and reports whether its UID is the follower's.
func (f *follower) look(ctx context.Context) (bool, error) {
	pod := &corev1.Pod{}
	err := f.source.Get(ctx, f.pod.Namespace, f.pod.Name, pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != f.pod.UID {
		f.update(state{isGone: true})
		return false, nil
	}
	return err == nil, err
}

// stopWhenGone stops reading some time after the pod was deleted.
func (f *follower) stopWhenGone(ctx context.Context, stop func()) {
	select {
	case <-ctx.Done():
		return
	case <-f.gone:
	}
	timer := f.clock.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
		stop()
	}
}

// emit prints a line. A line without a time is a message of the kubelet and becomes a notice.
func (f *follower) emit(one line) error {
	if one.replica = f.replica; one.at.IsZero() {
		f.notice("%s: %s", f.replica, one.text)
		return nil
	}
	return f.print(one)
}

// pauseAndLook waits until the pod's state changes or the backoff has passed, and then reads the
// pod, because another pod may have its name.
func (f *follower) pauseAndLook(ctx context.Context, before state) error {
	timer := f.clock.NewTimer(f.pause)
	defer timer.Stop()
	f.pause = min(2*f.pause, longestPause)
	for f.state() == before && ctx.Err() == nil {
		if !f.wait(ctx, timer.C()) {
			break
		}
	}
	if ctx.Err() != nil || f.state() != before {
		return nil
	}
	isOurs, err := f.look(ctx)
	switch {
	case ctx.Err() != nil || isOurs:
	case isFatal(err):
		return err
	case err != nil:
		f.notice("%s: %v", f.replica, err)
	}
	return nil
}

// wait waits until the state may have changed; it returns false if the time has passed.
func (f *follower) wait(ctx context.Context, passed <-chan time.Time) bool {
	select {
	case <-ctx.Done():
	case <-f.changed:
	case <-passed:
		return false
	}
	return true
}
