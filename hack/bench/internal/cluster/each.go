// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// concurrent is the number of concurrent submissions.
const concurrent = 16

// Each calls do with each number below count, several at a time.
func Each(ctx context.Context, count int, do func(ctx context.Context, index int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrent)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// Scheduler is what binds pods to nodes.
type Scheduler string

const (
	// Real is kube-scheduler, beside the controllers of Kubernetes.
	Real Scheduler = "real"
	// StandIn binds each pod at once, to the nodes in turn.
	StandIn Scheduler = "stand-in"
)

// String implements flag.Value.
func (s *Scheduler) String() string { return string(*s) }

// Set implements flag.Value.
func (s *Scheduler) Set(text string) error {
	switch value := Scheduler(text); value {
	case Real, StandIn:
		*s = value
		return nil
	default:
		return fmt.Errorf("must be %s or %s", Real, StandIn)
	}
}
