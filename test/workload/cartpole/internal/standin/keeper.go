// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"context"
	"sync"
	"time"
)

// Pod is a process to be run.
type Pod struct {
	Name string
	// Role is the program's role, the first argument.
	Role string
	Env  map[string]string
	Host *Host
}

// RunFunc runs a pod until its work is done or ctx ends.
type RunFunc func(ctx context.Context, pod Pod) error

// Keeper starts pods and starts them again when they end.
type Keeper struct {
	ctx     context.Context //nolint:containedctx // the life of all pods
	run     RunFunc
	restart time.Duration
	wait    sync.WaitGroup

	mu   sync.Mutex // protects pods
	pods map[string]context.CancelFunc
}

// NewKeeper returns a keeper whose pods live no longer than ctx.
func NewKeeper(ctx context.Context, restart time.Duration, run RunFunc) *Keeper {
	return &Keeper{ctx: ctx, run: run, restart: restart, pods: map[string]context.CancelFunc{}}
}

// Start starts a pod.
func (k *Keeper) Start(pod Pod) {
	ctx, cancel := context.WithCancel(k.ctx)
	k.mu.Lock()
	k.pods[pod.Name] = cancel
	k.mu.Unlock()
	k.wait.Go(func() {
		defer cancel()
		k.keep(ctx, pod)
	})
}

// keep runs a pod again and again. That it failed is the pod's own to tell.
func (k *Keeper) keep(ctx context.Context, pod Pod) {
	for ctx.Err() == nil {
		_ = k.run(ctx, pod)
		timer := time.NewTimer(k.restart)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Stop stops a pod for good.
func (k *Keeper) Stop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if cancel, ok := k.pods[name]; ok {
		cancel()
		delete(k.pods, name)
	}
}

// Wait returns once all pods have ended.
func (k *Keeper) Wait() {
	k.wait.Wait()
}
