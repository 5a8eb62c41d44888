// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/shards"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	namespace     = "bench-shards"
	userSubmitter = "bench-submitter"
	userKubelet   = "bench-kubelet"
	// pollEvery is the interval at which the benchmark checks what it waits for.
	pollEvery = 20 * time.Millisecond
	// restTime is the time without requests after which the programs are idle.
	restTime = time.Second
)

// world is an API server with a kubelet that runs each pod at once.
type world struct {
	*harness.World
	kubelet   *harness.Kubelet
	ledger    ledger
	submitter client.Client
	webhooks  *program.Process
	operators []*operator
}

// operator is an operator under a quota.
type operator struct {
	*program.Process
	quota *quota
}

// newWorld starts a world without operators. The caller stops it, also after an error.
func (b *bench) newWorld(ctx context.Context) (_ *world, err error) {
	plane, err := b.NewWorld(&controlplane.Options{Users: []string{harness.UserOperator, harness.UserWebhooks}})
	if err != nil {
		return nil, err
	}
	w := &world{World: plane}
	if err := errors.Join(w.InstallWebhooks(ctx), w.CreateNamespaces(ctx, namespace)); err != nil {
		return w, err
	}
	if w.webhooks, err = w.StartWebhooks(ctx, ""); err != nil {
		return w, err
	}
	if w.submitter, err = w.ClientOf(userSubmitter, -1, 0); err != nil {
		return w, err
	}
	user, err := w.User(userKubelet)
	if err != nil {
		return w, err
	}
	kubelet := &harness.Kubelet{Config: user.Config(), Seen: w.ledger.see}
	if err := kubelet.Start(ctx); err != nil {
		return w, err
	}
	w.kubelet = kubelet
	return w, nil
}

// stop stops everything.
func (w *world) stop() error {
	err := w.stopOperators()
	if w.webhooks != nil {
		err = errors.Join(err, w.webhooks.Kill())
	}
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	return errors.Join(err, w.Stop())
}

// startOperators starts as many operators as there are shards, and returns when each holds one. The first is the
// leader.
func (w *world) startOperators(ctx context.Context, count int) error {
	for i := range count {
		quota, err := newQuota(fmt.Sprintf("operator-%d", i))
		if err != nil {
			return err
		}
		started := &operator{quota: quota}
		w.operators = append(w.operators, started)
		if started.Process, err = w.StartOperator(ctx, "--leader-elect", fmt.Sprintf("--shards=%d", count)); err != nil {
			return err
		}
		if err := quota.add(started.Process); err != nil {
			return err
		}
		if _, err := w.await(ctx, controlplane.OperatorLease); err != nil {
			return err
		}
	}
	return w.awaitSpread(ctx, count)
}

// awaitSpread returns when each operator holds a shard.
func (w *world) awaitSpread(ctx context.Context, count int) error {
	if count == 1 {
		return nil
	}
	return w.poll(ctx, "each operator holds a shard", func(ctx context.Context) (bool, error) {
		holders, err := w.holders(ctx, count)
		slices.Sort(holders)
		return err == nil && holders[0] != "" && len(slices.Compact(holders)) == count, err
	})
}

// holders returns who holds each shard; empty for free ones.
func (w *world) holders(ctx context.Context, count int) ([]string, error) {
	holders := make([]string, count)
	for shard := range holders {
		var err error
		if holders[shard], err = w.holder(ctx, shards.LeaseName(controlplane.OperatorLease, shard, count)); err != nil {
			return nil, err
		}
	}
	return holders, nil
}

// holder returns who holds a Lease; empty if there is none.
func (w *world) holder(ctx context.Context, name string) (string, error) {
	var lease coordinationv1.Lease
	if err := w.API.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: name}, &lease); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Lease %s: %w", name, err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// await waits until a Lease has a holder, and returns it.
func (w *world) await(ctx context.Context, lease string) (holder string, err error) {
	err = w.poll(ctx, "Lease "+lease+" is held", func(ctx context.Context) (_ bool, err error) {
		holder, err = w.holder(ctx, lease)
		return holder != "", err
	})
	return holder, err
}

// poll returns when a condition holds.
func (w *world) poll(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, pollEvery, harness.Patience, true, func(ctx context.Context) (bool, error) {
		done, err := holds(ctx)
		return done, errors.Join(err, w.kubelet.Err())
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

// limit limits each operator to a share of a processor.
func (w *world) limit(share float64) error {
	for _, each := range w.operators {
		if err := each.quota.limit(share); err != nil {
			return err
		}
	}
	return nil
}

// stopOperators stops the operators that run, without limits.
func (w *world) stopOperators() error {
	var err error
	for _, each := range w.operators {
		err = errors.Join(err, each.quota.lift())
		if each.Process != nil && !each.HasEnded() {
			err = errors.Join(err, each.Stop())
		}
		err = errors.Join(err, each.quota.remove())
	}
	w.operators = nil
	return err
}

// clear stops the operators and deletes the jobs of a round. An operator that runs could create a pod of a job before
// it sees that the job is deleted, and nothing here would collect it.
func (w *world) clear(ctx context.Context) error {
	if err := w.stopOperators(); err != nil {
		return err
	}
	if err := w.Clear(ctx, namespace, w.kubelet); err != nil {
		return err
	}
	w.ledger.reset()
	return nil
}

func jobName(index int) string { return fmt.Sprintf("job-%04d", index) }

// submit submits a job.
func (w *world) submit(ctx context.Context, index, pods int) error {
	if err := w.submitter.Create(ctx, harness.WorkerLedJob(namespace, jobName(index), pods)); err != nil {
		return fmt.Errorf("submitting job %s: %w", jobName(index), err)
	}
	return nil
}

// shardOf returns the shard of a job.
func shardOf(index, count int) int {
	return shards.Of(types.NamespacedName{Namespace: namespace, Name: jobName(index)}, count)
}
