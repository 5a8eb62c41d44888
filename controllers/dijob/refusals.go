// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/names"
)

// refusals says what the API server refuses, as a reason and a message, "" where it
// refuses nothing: what it refuses to create before other writes. The first pod speaks for all, as they
// are mostly refused for the same reason. The others of the refused kinds wait:
// their number depends on what the job lacks and not on how many were tried.
func (e effects) refusals(job *v2alpha1.DIJob, lacking map[string]int) (reason, message string) {
	for i := range e {
		if e[i].reason == v2alpha1.ReasonFailedCreate && isRefusal(e[i].err) {
			answer := refusalOf(e[i].err)
			reason, message = reasonOfRefusal(answer), fmt.Sprintf("%s is refused: %s", described(e[i].object), answer)
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

// refusedWrites says what the API server refuses of what exists.
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
				reason, message = one.reason, fmt.Sprintf("%s %s is refused: %s", action, described(one.object), refusalOf(one.err))
			}
		}
	}
	if message == "" {
		return "", ""
	}
	return reason, message + waitingOthers(others)
}

func waitingOthers(count int) string {
	switch {
	case count == 1:
		return "; 1 other waits"
	case count > 1:
		return fmt.Sprintf("; %d others wait", count)
	}
	return ""
}

// byKind counts what was created of each kind, and tells of which kinds the API
// server refused something.
func (e effects) byKind(job *v2alpha1.DIJob) (created map[string]int, refused map[string]bool) {
	created, refused = map[string]int{}, map[string]bool{}
	for i := range e {
		switch e[i].reason {
		case v2alpha1.ReasonSuccessfulCreate:
			created[lifecycle.KindOf(job, e[i].object)]++
		case v2alpha1.ReasonFailedCreate:
			if isRefusal(e[i].err) {
				refused[lifecycle.KindOf(job, e[i].object)] = true
			}
		}
	}
	return created, refused
}

// refused returns what the operator remembers of the job's refused creations. A
// job that says something else now, or another AggregatorConfig, begins again.
func (s *jobStates) refused(observed *lifecycle.Observed) map[string]lifecycle.Refusal {
	of := versionsOf(observed)
	var refused map[string]lifecycle.Refusal
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

// recordRefusals remembers which kinds the API server refused to create in a pass.
func (s *jobStates) recordRefusals(observed *lifecycle.Observed, done effects) {
	created, refused := done.byKind(observed.Job)
	if len(refused) == 0 && len(observed.Refused) == 0 {
		return
	}
	s.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) {
		next := map[string]lifecycle.Refusal{}
		for _, kind := range slices.Concat(slices.Collect(maps.Keys(observed.Refused)), slices.Collect(maps.Keys(refused))) {
			after := observed.Refused[kind].After(created[kind], refused[kind], observed.Now)
			if after != (lifecycle.Refusal{}) {
				next[kind] = after
			}
		}
		state.refusals = next
	})
}

// isRefusal tells an answer to what was asked for from a fault that passes by
// itself. A webhook that fails may do so for days, and an object that is too
// large for etcd stays so, though the API server answers as for a fault of its own.
func isRefusal(err error) bool {
	return errors.As(err, new(*strippedError)) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsInternalError(err) && isOfWebhook(err) || strings.Contains(err.Error(), "etcdserver: request is too large")
}

// isOfWebhook reports whether the API server could not call a webhook that the
// object has to pass, or got no answer in time.
func isOfWebhook(err error) bool {
	return strings.Contains(err.Error(), "failed calling webhook ")
}

// refusalOf returns the API server's answer without the object's name, which
// stands before it, and without what of a quota is used, which other jobs change.
func refusalOf(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return err.Error()
	}
	answer := status.Status().Message
	for _, verdict := range []string{" is forbidden: ", " is invalid: "} {
		if _, why, found := strings.Cut(answer, verdict); found {
			answer = why
			break
		}
	}
	if before, rest, found := strings.Cut(answer, ", used: "); found && isQuota(answer) {
		_, limited, _ := strings.Cut(rest, ", limited: ")
		answer = before + ", limited: " + limited
	}
	return answer
}

// reasonOfRefusal tells admission plugins apart by their words: they answer
// with the same code and no machine-readable cause.
func reasonOfRefusal(answer string) string {
	switch {
	case isQuota(answer):
		return v2alpha1.ReasonQuotaExceeded
	case strings.HasPrefix(answer, "violates PodSecurity "):
		return v2alpha1.ReasonPodSecurityViolation
	}
	return v2alpha1.ReasonFailedCreate
}

// isQuota: a quota is exceeded, asks that a pod says what it needs, or is so
// new that nobody has counted yet.
func isQuota(answer string) bool {
	return slices.ContainsFunc([]string{"exceeded quota: ", "failed quota: ", "status unknown for quota: "}, func(words string) bool {
		return strings.HasPrefix(answer, words)
	})
}

// described names an object with its kind and role.
func described(object client.Object) string {
	switch object.(type) {
	case *corev1.Pod:
	case *unstructured.Unstructured:
		return typeOf(object) + " " + object.GetName()
	case *v2alpha1.Membership:
		return "membership " + object.GetName()
	case *corev1.ConfigMap:
		return "ConfigMap " + object.GetName()
	default:
		return "service " + object.GetName()
	}
	labels := object.GetLabels()
	return fmt.Sprintf("pod %s (%s)", object.GetName(), cmp.Or(labels[names.LabelReplicaType], labels[names.LabelTaskName]))
}
