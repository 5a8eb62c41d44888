// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/job/lifecycle"
)

// The actions of events.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
	actionUpdate = "Update"
	actionSync   = "Sync"
	actionAdopt  = "Adopt"
	actionResize = "Resize"
)

// recordWrites records an Event for the pods with the same result, and for each other object whose write
// failed. Pods share an Event, because the API server would spend as much on their Events as on the pods.
func (r *Reconciler) recordWrites(job *v2alpha1.DIJob, done effects) {
	done = r.states.newDeletions(job, done, r.clock.Now())
	pods := map[string][]string{}
	for i := range done {
		if one := &done[i]; one.isPod() && !one.isLeaving() {
			pods[one.groupKey()] = append(pods[one.groupKey()], one.object.GetName())
		}
	}
	for i := range done {
		one := &done[i]
		switch {
		case one.object == nil || one.isLeaving():
		case !one.isPod():
			r.recordWrite(job, one, one.object.GetName())
		case one.object.GetName() == pods[one.groupKey()][0]:
			r.recordWrite(job, one, pods[one.groupKey()]...)
		}
	}
}

// isPod reports whether the write was of a pod.
func (e *effect) isPod() bool {
	_, isPod := e.object.(*corev1.Pod)
	return isPod
}

// isLeaving reports whether an object that will be deleted has the name of a creation.
func (e *effect) isLeaving() bool {
	return errors.As(e.err, &leavingError{})
}

// subject names the object of the write.
func (e *effect) subject() string {
	if e.isPod() {
		return "pod " + e.object.GetName()
	}
	return described(e.object)
}

// groupKey returns what the pods of one Event have in common.
func (e *effect) groupKey() string {
	return e.reason + "/" + e.note
}

// recordWrite records the Event of one object, or of many pods with the same result. The Event of many
// pods is about the first pod, because the API server would count Events about the job as repetitions.
func (r *Reconciler) recordWrite(job *v2alpha1.DIJob, one *effect, objects ...string) {
	subject, failure := one.subject(), ""
	if one.err != nil {
		failure = one.err.Error()
	}
	if count := len(objects); count > 1 {
		subject, failure = fmt.Sprintf("%d pods: %s", count, strings.Join(objects, ", ")), fmt.Sprintf("%d pods: %s", count, failure)
	}
	event := func(related runtime.Object, kind, action, note string) {
		r.recorder.Eventf(job, related, kind, one.reason, action, "%s", recorder.Note(note))
	}
	switch {
	case one.reason == v2alpha1.ReasonSuccessfulCreate && one.isPod():
		event(one.object, corev1.EventTypeNormal, actionCreate, "created "+subject)
	case one.reason == v2alpha1.ReasonSuccessfulDelete && one.isPod():
		event(one.object, corev1.EventTypeNormal, actionDelete, "deleted "+subject)
	case one.reason == v2alpha1.ReasonPodResized:
		event(one.object, corev1.EventTypeNormal, actionResize, fmt.Sprintf("resized in place to %s: %s", one.note, subject))
	case one.reason == v2alpha1.ReasonPodResizeRefused:
		event(one.object, corev1.EventTypeWarning, actionResize, fmt.Sprintf("cannot resize %s in place: %s", subject, one.note))
	case one.reason == v2alpha1.ReasonRestored:
		event(one.object, corev1.EventTypeWarning, actionUpdate, fmt.Sprintf("put back what others changed of %s: %s", subject, one.note))
	case one.reason == v2alpha1.ReasonFailedCreate:
		event(nil, corev1.EventTypeWarning, actionCreate, failure)
	case one.reason == v2alpha1.ReasonFailedDelete:
		event(one.object, corev1.EventTypeWarning, actionDelete, failure)
	case one.reason == v2alpha1.ReasonFailedUpdate:
		event(one.object, corev1.EventTypeWarning, actionUpdate, failure)
	}
}

// recordEvents records Events about a job and its pods.
func (r *Reconciler) recordEvents(job *v2alpha1.DIJob, events []lifecycle.Event) {
	for i := range events {
		r.recordEvent(job, &events[i])
	}
}

// recordEvent records one Event about a job, or about one of its pods.
func (r *Reconciler) recordEvent(job *v2alpha1.DIJob, event *lifecycle.Event) {
	var related runtime.Object
	if event.Pod != "" {
		related = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: event.Pod}}
	}
	r.recorder.Eventf(job, related, event.Type, event.Reason, actionSync, "%s", recorder.Note(event.Message))
}

// The logger of a reconcile already names the job, as in controller-runtime.

// logChanges logs the changes of a written status.
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

// reconcileSpan is the name of the spans of reconciles.
const reconcileSpan = "reconcile dijob"

// The attributes of reconcile spans.
const (
	phaseBeforeKey   = attribute.Key("di.job.phase.before")
	phaseAfterKey    = attribute.Key("di.job.phase.after")
	podsKey          = attribute.Key("di.job.pods")
	statusWrittenKey = attribute.Key("di.status_written")
)

// traceReconcile adds the result of a reconcile to its span.
func traceReconcile(ctx context.Context, observed *lifecycle.Observed, outcome *lifecycle.Outcome, committed bool) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	tracing.AboutJob(ctx, observed.Job)
	after := outcome.Status.Phase
	if !committed {
		after = observed.Job.Status.Phase
	}
	span.SetAttributes(
		phaseBeforeKey.String(string(observed.Job.Status.Phase)), phaseAfterKey.String(string(after)),
		podsKey.Int(len(observed.Pods)), statusWrittenKey.Bool(committed),
	)
}
