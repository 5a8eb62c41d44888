// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/wire"
)

const (
	messageAdvice = "successfully get advice"
	// adviceExpiry is how long an advice holds. The autoscaler writes it at least once a minute.
	adviceExpiry = 3 * time.Minute
)

// advices answers reads of the operator's advice.
type advices struct {
	access *auth.Auth
	reads  *readQueue
	clock  clock.PassiveClock
}

// get answers GET /advice.
func (a *advices) get(c *gin.Context) error {
	filter, err := wire.ReadCoordinator(c.Request.URL.RawQuery)
	if err != nil {
		return err
	}
	job, err := jobOfCoordinator(c.Request.Context(), a.access, filter, auth.Replicas("get"))
	if err != nil {
		return err
	}
	found := newRead(c.Request.Context(), job, func(context.Context) (any, error) { return a.of(job) })
	found.message = messageAdvice
	return a.reads.answer(c, found)
}

// of returns the current advice for a job.
func (a *advices) of(job *v2alpha1.DIJob) (*wire.Advice, error) {
	autoscale := job.Spec.Autoscale
	if autoscale == nil || autoscale.Ratio == nil || autoscale.Ratio.Driver != v2alpha1.RatioByCoordinator {
		return nil, failure.New(failure.Conflict, "job %s/%s has no ratio rule with driver: Coordinator, so the operator does not advise it", job.Namespace, job.Name)
	}
	condition := conditions.Find(&job.Status, v2alpha1.ConditionAutoscaling)
	switch {
	case condition == nil || job.Status.Autoscaling == nil || job.Status.Autoscaling.Ratio == nil || job.Status.Autoscaling.Ratio.DecidedAt == nil:
		return nil, failure.New(failure.Unavailable, "the operator has not decided about job %s/%s yet: ask again later", job.Namespace, job.Name)
	case !conditions.IsTrue(&job.Status, v2alpha1.ConditionAutoscaling):
		return nil, failure.New(failure.Unavailable, "no advice for job %s/%s now: %s", job.Namespace, job.Name, condition.Message)
	}
	decided := job.Status.Autoscaling.Ratio
	if age := a.clock.Since(decided.DecidedAt.Time); age > adviceExpiry {
		return nil, failure.New(failure.Unavailable, "the last advice for job %s/%s is of %s ago: ask again later", job.Namespace, job.Name, age.Round(time.Second))
	}
	return &wire.Advice{Replicas: decided.Replicas, DecidedAt: decided.DecidedAt.UTC().Format(time.RFC3339), Reason: decided.Reason, Message: decided.Message}, nil
}
