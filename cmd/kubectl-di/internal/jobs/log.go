// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/logs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

const (
	// drain is how long the log of a job that has finished is read on. Most are at their end by then.
	drain = 10 * time.Second
	// mostFirst bounds the containers of the first replica that are read at once: one, and those that are being deleted.
	mostFirst = 16
	// firstTail is how many lines of a container are read that it had printed before it was seen.
	firstTail = 10_000
)

// firstLog prints the log of the first replica of a job beside its progress: that of rank 0, or the coordinator.
type firstLog struct {
	cluster *cluster.Cluster
	say     func(text string)
	// title names the job in messages, and prefix is before the replica in front of each line.
	title, prefix string

	begun   sync.Once
	stop    context.CancelFunc
	working sync.WaitGroup
}

// begin begins to print once the job was read, whichever version its manifest has.
func (l *firstLog) begin(ctx context.Context, job *v2alpha1.DIJob) {
	l.begun.Do(func() {
		ctx, stop := context.WithCancel(ctx)
		l.stop = stop
		l.working.Go(func() { l.read(ctx, job) })
	})
}

func (l *firstLog) read(ctx context.Context, job *v2alpha1.DIJob) {
	isOver := replicas.IsFinished(job)
	err := logs.Read(ctx, l.cluster.In(job.Namespace), job, &logs.Request{IsFirst: true, Follow: !isOver, Tail: firstTail, Most: mostFirst}, clock.RealClock{}, logs.Sink{
		Line: func(line logs.Line) error {
			l.say("[" + l.prefix + line.Replica + "] " + line.Text)
			return nil
		},
		// They say what a replica waits for, as the progress does.
		Notice: func(string) {},
	})
	// A job that was over from the beginning may have no pods any longer.
	if err != nil && ctx.Err() == nil && !isOver {
		l.say(l.title + ": its log cannot be shown: " + err.Error())
	}
}

// end ends the log. That of a job that has finished is read to its end.
func (l *firstLog) end(ctx context.Context, hasFinished bool) {
	if l.stop == nil {
		return
	}
	defer l.working.Wait()
	defer l.stop()
	if !hasFinished {
		return
	}
	read := make(chan struct{})
	go func() {
		l.working.Wait()
		close(read)
	}()
	late := time.NewTimer(drain)
	defer late.Stop()
	select {
	case <-read:
	case <-late.C:
	case <-ctx.Done():
	}
}
