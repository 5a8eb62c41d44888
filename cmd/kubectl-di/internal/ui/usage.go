// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"net/http"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/usage"
)

const (
	// usageReads bounds the answers that Prometheus is asked for at once by all callers, and ownUsageReads those by one.
	usageReads    = 4
	ownUsageReads = 2
)

// Metering is how the callers of a server read what pods used. Prometheus does not know them, so that they first show
// the API server that they may list the pods.
type Metering struct {
	*usage.Meter
	turns chan struct{}
}

// NewMetering returns a Metering whose callers share the bound of reads.
func NewMetering(meter *usage.Meter) *Metering {
	return &Metering{meter, make(chan struct{}, usageReads)}
}

// getUsage returns what the pods of a job used.
func (s *Server) getUsage(r *http.Request) (any, error) {
	if s.Metering == nil {
		return nil, gate.Refuse(http.StatusNotFound, "UsageOff", "No Prometheus is known: --prometheus names its URL.")
	}
	ctx, stop := context.WithTimeout(r.Context(), patience)
	defer stop()
	found, job, err := s.readJob(r)
	if err != nil {
		return nil, err
	}
	if err := found.SeesPods(ctx, job); err != nil {
		return nil, err
	}
	leave, err := inTurn(ctx, "Prometheus is asked by many: try again", s.measures, s.Metering.turns)
	if err != nil {
		return nil, err
	}
	defer leave()
	curves, err := s.Metering.Curves(ctx, job, s.Clock.Now())
	if err != nil {
		return nil, err
	}
	return api.Usage{Curves: curves}, nil
}
