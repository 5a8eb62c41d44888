// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// watched counts the pods of a round as the kubelets' watch has them.
type watched struct {
	mutex sync.Mutex
	// The mutex guards all fields below: the phases by the UID of each pod, and when the last pod was
	// created and the last became running.
	phases            map[types.UID]corev1.PodPhase
	running           int
	created, runSince time.Time
}

// see records an event of a pod.
func (s *watched) see(pod *corev1.Pod, gone bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if gone {
		return
	}
	before, known := s.phases[pod.UID]
	if s.phases == nil {
		s.phases = map[types.UID]corev1.PodPhase{}
	}
	s.phases[pod.UID] = pod.Status.Phase
	if !known {
		s.created = time.Now()
	}
	if pod.Status.Phase == corev1.PodRunning && before != corev1.PodRunning {
		s.running++
		s.runSince = time.Now()
	}
}

// reset forgets the pods.
func (s *watched) reset() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.phases, s.running = nil, 0
}

// get returns how many pods run, and when the last was created and became running.
func (s *watched) get() (running int, created, runSince time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.running, s.created, s.runSince
}

// round is the result of one round.
type round struct {
	created, running time.Duration
	asked            map[string]controlplane.Requests
	// processor is the processor time of each program.
	processor map[string]time.Duration
	began     time.Time
	mark      controlplane.Mark
}

// play starts the pods of a round, waits until all run and the programs are idle, and deletes them.
func (w *world) play(ctx context.Context, name string, start func(context.Context) error) (*round, error) {
	mark, err := w.WaitQuiet(ctx, restTime)
	if err != nil {
		return nil, err
	}
	before, err := program.Tree()
	if err != nil {
		return nil, err
	}
	w.Say("%s: starting %d pods", name, w.jobs*w.pods)
	done := &round{began: time.Now(), mark: mark, processor: map[string]time.Duration{}}
	if err := start(ctx); err != nil {
		return nil, err
	}
	if err := w.waitRunning(ctx, w.jobs*w.pods); err != nil {
		return nil, err
	}
	_, created, running := w.watched.get()
	done.created, done.running = created.Sub(done.began), running.Sub(done.began)
	after, err := program.Tree()
	if err != nil {
		return nil, err
	}
	for name, usage := range after {
		done.processor[name] = usage.Processor - before[name].Processor
	}
	w.Say("%s: created after %.1f s, running after %.1f s", name, done.created.Seconds(), done.running.Seconds())
	if _, err := w.WaitQuiet(ctx, restTime); err != nil {
		return nil, err
	}
	if done.asked, err = w.Since(mark); err != nil {
		return nil, err
	}
	return done, w.clear(ctx)
}

// waitRunning returns when so many pods run.
func (w *world) waitRunning(ctx context.Context, pods int) error {
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) {
		running, _, _ := w.watched.get()
		return running >= pods, w.kubelet.Err()
	})
	if err != nil {
		return fmt.Errorf("waiting until %d pods run: %w", pods, err)
	}
	return nil
}

// submitJobs submits the jobs.
func (w *world) submitJobs(ctx context.Context) error {
	return w.SubmitAll(ctx, w.jobs, func(ctx context.Context, index int) error {
		job := harness.WorkerLedJob(namespace, fmt.Sprintf("job-%04d", index), w.pods)
		if err := w.client.Create(ctx, job); err != nil {
			return fmt.Errorf("submitting job %s: %w", job.Name, err)
		}
		return nil
	})
}

// createPods creates the pods of the jobs without jobs.
func (w *world) createPods(ctx context.Context) error {
	return w.SubmitAll(ctx, w.jobs*w.pods, func(ctx context.Context, index int) error {
		pod := w.template[index%w.pods].DeepCopy()
		pod.Name = strings.Replace(pod.Name, "warm-up", fmt.Sprintf("plain-%04d", index/w.pods), 1)
		if err := w.client.Create(ctx, pod); err != nil {
			return fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
		return nil
	})
}
