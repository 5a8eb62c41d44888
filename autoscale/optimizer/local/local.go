// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package local is the optimizer that decides by the usage of the job alone.
package local

import (
	"context"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
)

// Optimizer is the local optimizer.
type Optimizer struct {
	settings Settings
}

var _ optimizer.Optimizer = (*Optimizer)(nil)

// New returns an optimizer with these settings; see [Defaults].
func New(settings Settings) *Optimizer { return &Optimizer{settings: settings} }

// Generate implements [optimizer.Optimizer].
func (o *Optimizer) Generate(context.Context, optimizer.Stage, *optimizer.Job) (optimizer.Plan, error) {
	return optimizer.Plan{}, nil
}

// RecoverOOM implements [optimizer.Optimizer].
func (o *Optimizer) RecoverOOM(context.Context, []optimizer.Replica, *optimizer.Job) (optimizer.Plan, error) {
	return optimizer.Plan{}, nil
}
