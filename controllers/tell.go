// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// The actions that events name.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
	actionUpdate = "Update"
	actionSync   = "Sync"
	actionAdopt  = "Adopt"
)

// toldAlone is how many objects of one pass have an event each for the same reason.
// More have one together, so that events of a large job do not crowd out others'.
const toldAlone = 16

// tellOfObjects sends an event for each pod that was written, and for each
// object that could not be; one for many.
func (r *DIJobReconciler) tellOfObjects(job *v2alpha1.DIJob, done effects) {
	pods := map[string][]*corev1.Pod{}
	for i := range done {
		if pod, isPod := done[i].object.(*corev1.Pod); isPod && !errors.As(done[i].err, &leavingError{}) {
			pods[done[i].reason] = append(pods[done[i].reason], pod)
		}
	}
	for i := range done {
		one := &done[i]
		if one.object == nil || errors.As(one.err, &leavingError{}) {
			continue
		}
		_, isPod := one.object.(*corev1.Pod)
		if all := pods[one.reason]; isPod && len(all) > toldAlone {
			if one.object == all[0] {
				r.tellOfMany(job, one, len(all))
			}
			continue
		}
		r.tellOfOne(job, one, isPod)
	}
}

// tellOfOne sends the event of one object.
func (r *DIJobReconciler) tellOfOne(job *v2alpha1.DIJob, one *effect, isPod bool) {
	switch name := one.object.GetName(); {
	case one.reason == v2alpha1.ReasonSuccessfulCreate && isPod:
		r.recorder.Eventf(job, one.object, corev1.EventTypeNormal, one.reason, actionCreate, "created pod %s", name)
	case one.reason == v2alpha1.ReasonSuccessfulDelete && isPod:
		r.recorder.Eventf(job, one.object, corev1.EventTypeNormal, one.reason, actionDelete, "deleted pod %s", name)
	case one.reason == v2alpha1.ReasonFailedCreate:
		r.recorder.Eventf(job, nil, corev1.EventTypeWarning, one.reason, actionCreate, "%s", note(one.err.Error()))
	case one.reason == v2alpha1.ReasonFailedDelete:
		r.recorder.Eventf(job, one.object, corev1.EventTypeWarning, one.reason, actionDelete, "%s", note(one.err.Error()))
	case one.reason == v2alpha1.ReasonFailedUpdate:
		r.recorder.Eventf(job, one.object, corev1.EventTypeWarning, one.reason, actionUpdate, "%s", note(one.err.Error()))
	}
}

// tellOfMany sends one event for many pods that had the same end, about the first:
// events about the same object would be taken for one that repeats itself.
func (r *DIJobReconciler) tellOfMany(job *v2alpha1.DIJob, first *effect, count int) {
	switch first.reason {
	case v2alpha1.ReasonSuccessfulCreate:
		r.recorder.Eventf(job, first.object, corev1.EventTypeNormal, first.reason, actionCreate, "created %d pods", count)
	case v2alpha1.ReasonSuccessfulDelete:
		r.recorder.Eventf(job, first.object, corev1.EventTypeNormal, first.reason, actionDelete, "deleted %d pods", count)
	case v2alpha1.ReasonFailedCreate:
		r.recorder.Eventf(job, nil, corev1.EventTypeWarning, first.reason, actionCreate, "%s", note(fmt.Sprintf("%d pods: %s", count, first.err)))
	case v2alpha1.ReasonFailedDelete:
		r.recorder.Eventf(job, first.object, corev1.EventTypeWarning, first.reason, actionDelete, "%s", note(fmt.Sprintf("%d pods: %s", count, first.err)))
	case v2alpha1.ReasonFailedUpdate:
		r.recorder.Eventf(job, first.object, corev1.EventTypeWarning, first.reason, actionUpdate, "%s", note(fmt.Sprintf("%d pods: %s", count, first.err)))
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
	for i := range decision.Losses {
		r.tell(job, &decision.Losses[i])
	}
}

// tellOfJob sends the decision's events.
func (r *DIJobReconciler) tellOfJob(job *v2alpha1.DIJob, decision *lifecycle.Decision) {
	for i := range decision.Events {
		r.tell(job, &decision.Events[i])
	}
}

// tell sends an event that a decision has.
func (r *DIJobReconciler) tell(job *v2alpha1.DIJob, event *lifecycle.Event) {
	var related runtime.Object
	if event.Pod != "" {
		related = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: event.Pod}}
	}
	r.recorder.Eventf(job, related, event.Type, event.Reason, actionSync, "%s", note(event.Message))
}
