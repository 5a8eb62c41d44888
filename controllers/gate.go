// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// gated is a reconciler that starts when its gate opens. Until then another operator may act.
type gated struct {
	reconcile.Reconciler
	open <-chan struct{}
}

// GateUntil returns a reconciler that starts when a channel is closed. A nil channel is an open gate.
func GateUntil(open <-chan struct{}, reconciler reconcile.Reconciler) reconcile.Reconciler {
	if open == nil {
		return reconciler
	}
	return &gated{Reconciler: reconciler, open: open}
}

// Reconcile blocks its worker until the gate opens, because the worker has nothing else to do. The
// reconciler reads its object only after that.
func (g *gated) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	select {
	case <-g.open:
		return g.Reconciler.Reconcile(ctx, request)
	case <-ctx.Done():
		return ctrl.Result{}, nil
	}
}
