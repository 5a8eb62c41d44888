// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// The users whose requests are counted, next to the operator.
const (
	userPlain     = "bench-plain"
	userSubmitter = "bench-submitter"
	userKubelet   = "bench-kubelet"
	userWatcher   = "bench-watcher"
)

const (
	// The operator's defaults, which the plain client has as well.
	defaultQPS     = 200
	defaultBurst   = 400
	defaultWorkers = 8
	// The namespaces of the operator's jobs and of the plain client's. Names of equal
	// length make their objects equally large.
	oursNamespace  = "bench-ours"
	plainNamespace = "bench-bare"
)

// world is an API server with a kubelet that runs each pod at once, and an operator.
type world struct {
	*harness.World
	bench   *bench
	kubelet *kubelet
	// submitter writes jobs without a rate limit.
	submitter client.Client
	operator  *program.Process
	// pprof is the address of the operator's profiles.
	pprof string
}

// newWorld starts a world without an operator. The caller stops it.
func (b *bench) newWorld(ctx context.Context) (_ *world, err error) {
	plane, err := b.NewWorld(&controlplane.Options{Users: []string{harness.UserOperator, userPlain, userSubmitter, userKubelet, userWatcher}})
	if err != nil {
		return nil, err
	}
	w := &world{World: plane, bench: b}
	defer func() {
		if err != nil {
			harness.Close(&err, w.stop)
		}
	}()
	if err := w.InstallWebhooks(ctx); err != nil {
		return nil, err
	}
	if err := w.CreateNamespaces(ctx, oursNamespace, plainNamespace); err != nil {
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
	return w.stopOperator()
}

// startOperator starts the operator as it is deployed, but without leader election,
// and returns when its caches are full.
func (w *world) startOperator(ctx context.Context, flags ...string) (err error) {
	if w.pprof, _, err = program.FreeAddresses(ctx); err != nil {
		return err
	}
	w.operator, err = w.StartOperator(ctx, harness.OwnAddress, append(flags, "--pprof-address", w.pprof)...)
	return err
}

// stopOperator stops the operator, if one runs.
func (w *world) stopOperator() error {
	if w.operator == nil {
		return nil
	}
	operator := w.operator
	w.operator = nil
	return operator.Stop()
}

// standBy starts an operator that serves webhooks and fills its caches but does not
// lead, because another holder has its Lease: it accompanies the plain client.
func (w *world) standBy(ctx context.Context) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: controlplane.OperatorLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("bench"), LeaseDurationSeconds: ptr.To[int32](24 * 3600),
			AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	if err := w.API.Create(ctx, lease); err != nil {
		return fmt.Errorf("creating the operator's Lease: %w", err)
	}
	return w.startOperator(ctx, "--leader-elect", "--namespace", names.SystemNamespace)
}

// endStandBy releases the Lease.
func (w *world) endStandBy(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: controlplane.OperatorLease}}
	if err := w.API.Delete(ctx, lease); err != nil {
		return fmt.Errorf("deleting the operator's Lease: %w", err)
	}
	return nil
}

// warmUp returns when a first job has run and is gone again.
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

// clear deletes all jobs with their objects, and returns when the operator is idle.
func (w *world) clear(ctx context.Context) error {
	w.Say("deleting everything")
	for _, namespace := range []string{oursNamespace, plainNamespace} {
		for _, object := range []client.Object{&v2alpha1.DIJob{}, &corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}, &v2alpha1.Membership{}} {
			if err := w.API.DeleteAllOf(ctx, object, client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("deleting %T of %s: %w", object, namespace, err)
			}
		}
	}
	before := w.kubelet.Pods()
	err := w.waitFor(ctx, "pods deleted", pollEvery, before, func() (int, error) { return before - w.kubelet.Pods(), w.kubelet.Err() })
	if err != nil {
		return err
	}
	_, err = w.WaitQuiet(ctx, 500*time.Millisecond)
	return err
}
