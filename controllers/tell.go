// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// The actions that events name.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
	actionSync   = "Sync"
	actionAdopt  = "Adopt"
)

// tellOfObjects sends an event for each pod or service that was written, or could not be.
func (r *DIJobReconciler) tellOfObjects(job *v2alpha1.DIJob, done effects) {
	for i := range done {
		one := &done[i]
		if one.object == nil {
			continue
		}
		kind := "service"
		if _, isPod := one.object.(*corev1.Pod); isPod {
			kind = "pod"
		}
		name := one.object.GetName()
		switch one.reason {
		case v2alpha1.ReasonSuccessfulCreate:
			r.recorder.Eventf(job, one.object, corev1.EventTypeNormal, one.reason, actionCreate, "created %s %s", kind, name)
		case v2alpha1.ReasonSuccessfulDelete:
			r.recorder.Eventf(job, one.object, corev1.EventTypeNormal, one.reason, actionDelete, "deleted %s %s", kind, name)
		case v2alpha1.ReasonFailedCreate:
			r.recorder.Eventf(job, nil, corev1.EventTypeWarning, one.reason, actionCreate, "%s", note(one.err.Error()))
		case v2alpha1.ReasonFailedDelete:
			r.recorder.Eventf(job, one.object, corev1.EventTypeWarning, one.reason, actionDelete, "%s", note(one.err.Error()))
		}
	}
}

// noteLength is how long the API server lets the note of an event be, in bytes.
const noteLength = 1024

// note cuts a text to what an event can hold.
func note(text string) string {
	if len(text) <= noteLength {
		return text
	}
	return strings.ToValidUTF8(text[:noteLength-3], "") + "..."
}

// tellOfLosses sends an event for each replica that was recorded as lost.
func (r *DIJobReconciler) tellOfLosses(job *v2alpha1.DIJob, decision *lifecycle.Decision) {
	for _, loss := range decision.Losses {
		r.recorder.Eventf(job, nil, loss.Type, loss.Reason, actionSync, "%s", note(loss.Message))
	}
}

// tellOfJob sends the decision's events and counts what it ended.
func (r *DIJobReconciler) tellOfJob(job *v2alpha1.DIJob, decision *lifecycle.Decision) {
	for _, event := range decision.Events {
		r.recorder.Eventf(job, nil, event.Type, event.Reason, actionSync, "%s", note(event.Message))
	}
	if !lifecycle.IsFinished(&job.Status) && lifecycle.IsFinished(&decision.Status) {
		r.metrics.finished.WithLabelValues(string(decision.Status.Phase)).Inc()
	}
	r.metrics.restarts.Add(float64(decision.Status.Restarts - job.Status.Restarts))
}

// jobMetrics are the controllers' own metrics.
type jobMetrics struct {
	finished *prometheus.CounterVec
	restarts prometheus.Counter
}

func newJobMetrics(registerer prometheus.Registerer) (*jobMetrics, error) {
	created := &jobMetrics{
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "di_orchestrator_jobs_finished_total", Help: "Jobs that have finished, by how.",
		}, []string{"phase"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "di_orchestrator_job_restarts_total", Help: "Restarts of jobs after failures.",
		}),
	}
	for _, collector := range []prometheus.Collector{created.finished, created.restarts} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the controllers' metrics: %w", err)
		}
	}
	return created, nil
}
