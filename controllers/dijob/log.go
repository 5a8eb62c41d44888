// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/names"
)

// The logger of a reconcile names the job already, as controller-runtime does.

// logChanges logs what changed for a job with a status that was written.
func logChanges(ctx context.Context, job *v2alpha1.DIJob, outcome *lifecycle.Outcome) {
	log := log.FromContext(ctx).WithValues(names.LogWhich(job)...)
	before, after := &job.Status, &outcome.Status
	if before.Phase != after.Phase {
		log.Info("Job phase changed", "phase", after.Phase, "phaseBefore", before.Phase,
			"restarts", after.Restarts, "reschedules", after.Reschedules)
	}
	for _, ended := range outcome.Failures {
		log.Info("Pod failed or was disrupted", "taskType", ended.TaskType, "reason", ended.Reason)
	}
}

// logReconcile logs the result of a reconcile.
func logReconcile(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision, outcome *lifecycle.Outcome, committed bool) {
	log := log.FromContext(ctx).V(1)
	if !log.Enabled() {
		return
	}
	log.WithValues(names.LogWhich(observed.Job)...).Info("Reconciled job",
		"phase", outcome.Status.Phase, "pods", len(observed.Pods),
		"create", len(decision.CreatePods)+len(decision.CreateServices)+len(decision.CreateConfigMaps),
		"delete", len(decision.DeletePods)+len(decision.DeleteServices)+len(decision.DeleteConfigMaps),
		"statusWritten", committed, "next", outcome.RequeueAfter.String())
}
