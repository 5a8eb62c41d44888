// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/cache"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

// calls counts and logs who calls.
type calls struct {
	telemetry.Set
	total *prometheus.CounterVec
	log   logr.Logger
	// missing are the permissions of which it was told that they are missing.
	missing *cache.LRUExpireCache
}

// newCalls returns an observer whose metrics the registerer, if there is one, has.
func newCalls(registerer prometheus.Registerer, log logr.Logger) (*calls, error) {
	c := &calls{log: log, missing: cache.NewLRUExpireCache(maxMissing)}
	c.total = c.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_server_calls_total", Unit: "calls",
		Help: "Calls about jobs, by how their sender was authenticated (token, address, node, none) and whether they were allowed.",
		Labels: []telemetry.Label{
			{Name: "identity", Values: []string{string(byToken), string(byAddress), string(byNode), string(byNothing)}},
			{Name: "decision", Values: []string{decisionAllowed, decisionRefused}},
		},
	})
	if registerer == nil {
		return c, nil
	}
	if err := registerer.Register(c); err != nil {
		return nil, fmt.Errorf("registering the metrics of calls: %w", err)
	}
	return c, nil
}

// What is decided of a call.
const (
	decisionAllowed = "allowed"
	decisionRefused = "refused"
)

func (c *calls) called(by evidence, allowed bool) {
	decision := decisionRefused
	if allowed {
		decision = decisionAllowed
	}
	c.total.WithLabelValues(string(by), decision).Inc()
}

func (c *calls) unidentified(from string, job *v2alpha1.DIJob) {
	c.log.WithValues(names.LogWhole(job)...).Info(
		"Admitted an unauthenticated caller (mode legacy); mode enforce would reject it", "address", from)
}

// forbiddenInterval is how often it is told of the same permission that is missing.
const forbiddenInterval = time.Minute

// maxMissing bounds how many of them are remembered.
const maxMissing = 64

func (c *calls) forbidden(err error) {
	if _, told := c.missing.Get(err.Error()); told {
		return
	}
	c.missing.Add(err.Error(), true, forbiddenInterval)
	c.log.Error(err, "di-server lacks a permission; requests that need it wait")
}

// audit logs a write that was done to the job of a request, and on whose behalf.
func (s *Server) audit(ctx context.Context, what string, details ...any) {
	sender := senderOf(ctx)
	s.options.Log.WithValues(logJob(ctx)...).WithValues("caller", loggable(sender.String()), "identity", string(sender.by)).
		Info("Write: "+loggable(what), details...)
}
