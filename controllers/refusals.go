// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// refusals says what the API server refuses to create, as a reason and a
// message, "" where it refuses nothing. The first pod speaks for all, as they
// are mostly refused for the same reason.
func (e effects) refusals() (reason, message string) {
	others := 0
	for i := range e {
		switch {
		case e[i].reason != v2alpha1.ReasonFailedCreate || !isRefusal(e[i].err):
		case message == "":
			answer := refusalOf(e[i].err)
			reason, message = reasonOfRefusal(answer), fmt.Sprintf("%s is refused: %s", described(e[i].object), answer)
		default:
			others++
		}
	}
	switch others {
	case 0:
	case 1:
		message += "; 1 other is refused too"
	default:
		message += fmt.Sprintf("; %d others are refused too", others)
	}
	return reason, message
}

// isRefusal tells an answer to what was asked for from a fault that passes by
// itself.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
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
	default:
		return "service " + object.GetName()
	}
	labels := object.GetLabels()
	return fmt.Sprintf("pod %s (%s)", object.GetName(), cmp.Or(labels[names.LabelReplicaType], labels[names.LabelTaskName]))
}
