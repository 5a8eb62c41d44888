// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// hanging is where a log comes from that never ends, and says nothing.
type hanging struct{ pod *corev1.Pod }

// Logs implements source.
func (h *hanging) Logs(ctx context.Context, _ string, _ *corev1.PodLogOptions) (io.ReadCloser, error) {
	from, to := io.Pipe()
	context.AfterFunc(ctx, func() { to.CloseWithError(context.Cause(ctx)) })
	return from, nil
}

// Pod implements source.
func (h *hanging) Pod(context.Context, string) (*corev1.Pod, error) { return h.pod, nil }

func TestALogThatHangsIsLeftAWhileAfterItsPodIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pong-learner-0", UID: "1"}}
		running := state{instance: "run://1", isRunning: true}
		one := &follower{
			source: &hanging{pod}, clock: clock.RealClock{}, print: func(line) error { return nil }, tell: func(string, ...any) {},
			slots: make(chan struct{}, 1), pod: pod, container: "di-container", replica: "learner-0", now: running,
			changed: make(chan struct{}, 1), gone: make(chan struct{}),
		}
		begun, ended := time.Now(), make(chan error, 1)
		go func() { ended <- one.run(t.Context()) }()
		<-time.After(time.Hour) // by the bubble's clock
		select {
		case err := <-ended:
			t.Fatalf("it is left though its pod is there: %v", err)
		default:
		}
		running.isGone = true
		one.update(running)
		if err := <-ended; err != nil || time.Since(begun) != time.Hour+rest {
			t.Errorf("%v, after %s", err, time.Since(begun))
		}
	})
}

// TestLogsOfAFinishedJobAreLeftWhosePodsStay follows a job of which one pod
// never ends, whatever becomes of the job.
func TestLogsOfAFinishedJobAreLeftWhosePodsStay(t *testing.T) {
	t.Parallel()
	for policy, takes := range map[v2alpha1.CleanPodPolicy]time.Duration{
		v2alpha1.CleanPodPolicyNone: linger,
		// The operator deletes the pod then, which the test does after an hour.
		v2alpha1.CleanPodPolicyRunning: time.Hour,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "pong", UID: "1"}}
				job.Spec.CleanPodPolicy, job.Status.Phase = policy, v2alpha1.JobSucceeded
				var out, told bytes.Buffer
				r := &run{clock: clock.RealClock{}, job: job, printer: newPrinter(&out, true, false, 0), notices: &notices{out: &told, told: map[string]bool{}}}
				f := &following{run: r, events: make(chan event), slots: make(chan struct{}, 1), live: 1, hasPods: true}
				begun := time.Now()
				var working sync.WaitGroup
				working.Go(func() {
					f.send(t.Context(), event{job: true, change: cluster.Change{Object: job}})
					<-time.After(time.Hour) // by the bubble's clock
					ctx, stop := context.WithTimeout(t.Context(), time.Second)
					defer stop()
					f.send(ctx, event{ended: &follower{}})
				})
				if err := f.loop(t.Context(), &working); err != nil || time.Since(begun) != takes {
					t.Errorf("%v, after %s", err, time.Since(begun))
				}
				isTold := strings.Contains(told.String(), "job rl/pong has finished, and its spec.cleanPodPolicy None keeps pods: 1 container is followed no more\n")
				if isTold != (policy == v2alpha1.CleanPodPolicyNone) {
					t.Errorf("told %s", &told)
				}
				working.Wait()
			})
		})
	}
}
