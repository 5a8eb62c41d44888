// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// held is a reconciler that begins when it may act: until then another operator may.
type held struct {
	reconcile.Reconciler
	mayAct <-chan struct{}
}

// heldBack returns a reconciler that begins when a channel is closed, at once
// where there is none.
func heldBack(reconciler reconcile.Reconciler, mayAct <-chan struct{}) reconcile.Reconciler {
	if mayAct == nil {
		return reconciler
	}
	return &held{Reconciler: reconciler, mayAct: mayAct}
}

// Reconcile waits with the worker that it was given, as there is nothing else for
// it to do. What it works on is read when it begins.
func (h *held) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	select {
	case <-h.mayAct:
		return h.Reconciler.Reconcile(ctx, request)
	case <-ctx.Done():
		return ctrl.Result{}, nil
	}
}
