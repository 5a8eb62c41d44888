// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// refusals returns the reason and message of the first write that the API server refuses; "" if it refuses
// none. Creations come first. One object represents all of its kind, because they are usually refused for
// the same reason. The number of other waiting objects depends on how many the job still needs, not on how
// many were tried.
func (e effects) refusals(job *v2alpha1.DIJob, lacking map[string]int) (reason, message string) {
	for i := range e {
		if e[i].reason == v2alpha1.ReasonFailedCreate && refusal.Is(e[i].err) {
			answer := refusal.Answer(e[i].err)
			reason, message = refusal.Reason(answer), fmt.Sprintf("%s is refused: %s", described(e[i].object), answer)
			if advice := refusal.Advice(answer); advice != "" {
				message += ": " + advice
			}
			break
		}
	}
	if message == "" {
		return e.refusedWrites()
	}
	others := -1
	created, refused := e.byKind(job)
	for kind := range refused {
		others += lacking[kind] - created[kind]
	}
	return reason, message + waitingOthers(others)
}

// refusedWrites returns the reason and message of the first change or deletion that the API server
// refuses.
func (e effects) refusedWrites() (reason, message string) {
	others := -1
	for i := range e {
		switch one := &e[i]; {
		case one.waits():
			others++
		case one.isRefused() && one.object != nil:
			others++
			if message == "" {
				action := "changing"
				if one.reason == v2alpha1.ReasonFailedDelete {
					action = "deleting"
				}
				reason, message = one.reason, fmt.Sprintf("%s %s is refused: %s", action, described(one.object), refusal.Answer(one.err))
			}
		}
	}
	if message == "" {
		return "", ""
	}
	return reason, message + waitingOthers(others)
}

// fault returns the first creation or deletion that failed without a final answer; nil for none. A conflict
// is an answer, and the next reconcile observes the other writer's version.
func (e effects) fault() *effect {
	for i := range e {
		one := &e[i]
		isFinal := one.err == nil || one.object == nil || one.isTaken() || one.waits() || refusal.Is(one.err) || apierrors.IsConflict(one.err)
		if !isFinal && (one.reason == v2alpha1.ReasonFailedCreate || one.reason == v2alpha1.ReasonFailedDelete) {
			return one
		}
	}
	return nil
}

// describeFault describes a fault for the condition.
func (e *effect) describeFault() string {
	if e.reason == v2alpha1.ReasonFailedDelete {
		return fmt.Sprintf("%s cannot be deleted: %s; the operator retries", described(e.object), refusal.Fault(e.err))
	}
	return fmt.Sprintf("%s cannot be created: %s; the operator retries", described(e.object), refusal.Fault(e.err))
}

// isRepeated records whether a reconcile had a fault. It reports whether the job's reconciles have had faults
// for longer than a short outage lasts.
func (s *jobStates) isRepeated(observed *lifecycle.Observed, fault *effect) bool {
	repeated := false
	s.update(client.ObjectKeyFromObject(observed.Job), func(known *jobState) {
		switch {
		case fault == nil:
			known.faultySince = time.Time{}
		case known.faultySince.IsZero():
			known.faultySince = observed.Now
		default:
			repeated = observed.Now.Sub(known.faultySince) >= state.FirstRefusalDelay
		}
	})
	return repeated
}

func waitingOthers(count int) string {
	if count == 0 {
		return ""
	}
	return "; " + english.Plural(count, "other waits", "others wait")
}

// byKind returns the number of created objects of each kind. It also returns the kinds of refused
// creations.
func (e effects) byKind(job *v2alpha1.DIJob) (created map[string]int, refused map[string]bool) {
	created, refused = map[string]int{}, map[string]bool{}
	for i := range e {
		switch e[i].reason {
		case v2alpha1.ReasonSuccessfulCreate:
			created[state.KindOf(job, e[i].object)]++
		case v2alpha1.ReasonFailedCreate:
			if refusal.Is(e[i].err) {
				refused[state.KindOf(job, e[i].object)] = true
			}
		}
	}
	return created, refused
}

// refused returns the job's refused creations. They are dropped once the spec of the job or its
// AggregatorConfig changes.
func (s *jobStates) refused(observed *lifecycle.Observed) map[string]state.Refusal {
	of := versionsOf(observed)
	var refused map[string]state.Refusal
	s.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) {
		if state.refusedOf != of {
			state.refusals, state.refusedWrites, state.refusedOf = nil, nil, of
		}
		refused = maps.Clone(state.refusals)
	})
	return refused
}

func versionsOf(observed *lifecycle.Observed) string {
	versions := fmt.Sprintf("%s/%d", observed.Job.UID, observed.Job.Generation)
	if config := observed.AggregatorConfig; config != nil {
		versions += fmt.Sprintf(" %s/%d", config.UID, config.Generation)
	}
	return versions
}

// recordRefusals records the kinds whose creation the API server refused in a reconcile.
func (s *jobStates) recordRefusals(observed *lifecycle.Observed, done effects) {
	created, refused := done.byKind(observed.Job)
	if len(refused) == 0 && len(observed.Refused) == 0 {
		return
	}
	s.update(client.ObjectKeyFromObject(observed.Job), func(known *jobState) {
		next := map[string]state.Refusal{}
		for _, kind := range slices.Concat(slices.Collect(maps.Keys(observed.Refused)), slices.Collect(maps.Keys(refused))) {
			after := observed.Refused[kind].After(created[kind], refused[kind], observed.Now)
			if after != (state.Refusal{}) {
				next[kind] = after
			}
		}
		known.refusals = next
	})
}

// described returns the name of an object with its kind and role.
func described(object client.Object) string {
	switch object.(type) {
	case *corev1.Pod:
	case *unstructured.Unstructured:
		return typeOf(object) + " " + object.GetName()
	case *v2alpha1.Membership:
		return "membership " + object.GetName()
	case *v2alpha1.DIJob:
		return "job " + object.GetName()
	case *corev1.ConfigMap:
		return "ConfigMap " + object.GetName()
	case *corev1.Secret:
		return "Secret " + object.GetName()
	case *policyv1.PodDisruptionBudget:
		return "PodDisruptionBudget " + object.GetName()
	default:
		return "service " + object.GetName()
	}
	labels := object.GetLabels()
	return fmt.Sprintf("pod %s (%s)", object.GetName(), cmp.Or(labels[names.LabelReplicaType], labels[names.LabelTaskName]))
}

// The verbs of changes and deletions. Each verb and type of object has separate refusals.
const (
	verbAdopt   = "adopt"
	verbRestore = "restore"
	verbRelease = "release"
	verbDelete  = "delete"
	verbCollect = "collect"
	verbForce   = "delete by force"
	verbUpdate  = "update"
	verbResize  = "resize"
)

// operation is a change or deletion of objects.
type operation struct {
	verb string
	// digest identifies the content of the write of an object.
	digest func(client.Object) string
	do     func(context.Context, client.Object) effect
}

// applyOne carries out an operation on one object.
func (r *Reconciler) applyOne(ctx context.Context, observed *lifecycle.Observed, operation operation, object client.Object) effect {
	return r.apply(ctx, observed, operation, []client.Object{object})[0]
}

// apply carries out an operation on objects of one type in parallel, and returns the results in their order. A
// refused write is repeated after its delay, or once the job has changed. Other events do not repeat it.
func (r *Reconciler) apply(ctx context.Context, observed *lifecycle.Observed, operation operation, objects []client.Object) effects {
	if len(objects) == 0 {
		return nil
	}
	verb := operation.verb + fmt.Sprintf(" %T", objects[0])
	known := r.states.refusedWrites(observed.Job, verb)
	try, budget := known.Plan(objects, operation.digest, observed.Now)
	done := make(effects, len(objects))
	for i := range done {
		done[i] = effect{err: refusal.ErrWaits}
	}
	refusal.Try(budget, try, func(i int) (refused bool) {
		done[i] = operation.do(ctx, objects[i])
		return done[i].isRefused()
	})
	for i := range done {
		switch one := &done[i]; {
		case one.isRefused():
			if one.reason == "" {
				one.object, one.reason = objects[i], v2alpha1.ReasonFailedUpdate
			}
			known = known.Refuse(objects[i], operation.digest(objects[i]), observed.Now)
		case one.err == nil:
			known = known.Forget(objects[i])
		}
	}
	r.states.recordRefusedWrites(observed.Job, verb, known.Expire(observed.Now))
	return done
}

// isRefused reports whether the API server refused the write.
func (e *effect) isRefused() bool {
	return e.err != nil && !e.waits() && refusal.Is(e.err)
}

// waits reports whether the write was not tried.
func (e *effect) waits() bool { return errors.Is(e.err, refusal.ErrWaits) }

// refusedWrites returns the refused writes of a job and verb.
func (s *jobStates) refusedWrites(job *v2alpha1.DIJob, verb string) (known refusal.Writes) {
	s.update(client.ObjectKeyFromObject(job), func(state *jobState) { known = slices.Clone(state.refusedWrites[verb]) })
	return known
}

func (s *jobStates) recordRefusedWrites(job *v2alpha1.DIJob, verb string, known refusal.Writes) {
	s.update(client.ObjectKeyFromObject(job), func(state *jobState) {
		if len(known) == 0 {
			delete(state.refusedWrites, verb)
			return
		}
		if state.refusedWrites == nil {
			state.refusedWrites = map[string]refusal.Writes{}
		}
		state.refusedWrites[verb] = known
	})
}

// nextWrite returns the time until a refused write of a job may be repeated; 0 for never.
func (s *jobStates) nextWrite(job *v2alpha1.DIJob, now time.Time) time.Duration {
	var soonest time.Time
	s.update(client.ObjectKeyFromObject(job), func(state *jobState) {
		for _, known := range state.refusedWrites {
			if next := known.Next(now); !next.IsZero() && (soonest.IsZero() || next.Before(soonest)) {
				soonest = next
			}
		}
	})
	if soonest.IsZero() {
		return 0
	}
	return soonest.Sub(now)
}
