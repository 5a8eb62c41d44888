// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// These are the users, besides the operator, whose requests are counted.
const (
	userSubmitter = "bench-submitter"
	userKubelet   = "bench-kubelet"
)

// oursNamespace is the namespace of all jobs.
const oursNamespace = "bench-ours"

// world is an API server with an operator and a kubelet that runs each pod immediately.
type world struct {
	*harness.World
	kubelet *kubelet
	// submitter writes jobs without a rate limit.
	submitter client.Client
	webhooks  *program.Process
	operator  *program.Process
	// pprof and metrics are the addresses of the operator's profiles and metrics.
	pprof, metrics string
}

// newWorld starts a world without an operator. The caller stops it.
func (b *bench) newWorld(ctx context.Context) (_ *world, err error) {
	plane, err := b.NewWorld(&controlplane.Options{Users: []string{harness.UserOperator, harness.UserWebhooks, harness.UserServer, userSubmitter, userKubelet}})
	if err != nil {
		return nil, err
	}
	w := &world{World: plane}
	defer func() {
		if err != nil {
			harness.Close(&err, w.stop)
		}
	}()
	if err := w.InstallWebhooks(ctx); err != nil {
		return nil, err
	}
	if w.webhooks, err = w.StartWebhooks(ctx, ""); err != nil {
		return nil, err
	}
	if err := w.CreateNamespaces(ctx, oursNamespace); err != nil {
		return nil, err
	}
	if w.submitter, err = w.ClientOf(userSubmitter, -1, 0); err != nil {
		return nil, err
	}
	w.kubelet, err = startKubelet(ctx, w)
	return w, err
}

// stop stops everything.
func (w *world) stop() (err error) {
	defer harness.Close(&err, w.Stop)
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	err = w.stopOperator()
	if w.webhooks != nil {
		err = errors.Join(err, w.webhooks.Stop())
	}
	return err
}

// startOperator starts the operator as deployed, but without leader election. It returns when the
// operator's caches are synced.
func (w *world) startOperator(ctx context.Context, flags ...string) (err error) {
	if w.pprof, w.metrics, err = program.FreeAddresses(ctx); err != nil {
		return err
	}
	w.operator, err = w.StartOperator(ctx, append(flags, "--pprof-address", w.pprof, "--metrics-address", w.metrics)...)
	return err
}

// stopOperator stops the operator, if it is running.
func (w *world) stopOperator() error {
	if w.operator == nil {
		return nil
	}
	operator := w.operator
	w.operator = nil
	return operator.Stop()
}

// warmUp returns when a first job has run and has been deleted.
func (w *world) warmUp(ctx context.Context) error {
	job := harness.WorkerLedJob(oursNamespace, "warm-up", 1)
	if err := w.submit(ctx, job); err != nil {
		return err
	}
	if err := w.waitRunning(ctx, job.Namespace, 1, 1); err != nil {
		return err
	}
	return w.clear(ctx)
}

// clear deletes all jobs and returns when the operator is idle.
func (w *world) clear(ctx context.Context) error {
	if err := w.Clear(ctx, oursNamespace, &w.kubelet.Kubelet); err != nil {
		return err
	}
	_, err := w.WaitQuiet(ctx, 500*time.Millisecond)
	return err
}
