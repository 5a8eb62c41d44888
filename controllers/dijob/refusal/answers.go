// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusal recognizes writes that the API server refuses, and delays their repetition.
package refusal

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// StrippedError is returned for a write from which admission removed a part. It counts as refused, because
// a repeat has the same result.
type StrippedError struct {
	Annotation string
}

// Error implements error.
func (e *StrippedError) Error() string {
	return fmt.Sprintf("admission removes annotation %s, which the job needs: exempt pods that a DIJob owns", e.Annotation)
}

// ChangedError is returned for a write that others change so that the job does not work. It counts as refused,
// because a repeat has the same result.
type ChangedError struct {
	// Who changes it: admission, or another writer.
	Who string
	// What is the changed field.
	What string
}

// Error implements error.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s changes %s, which the job needs: exempt objects that a DIJob owns", e.Who, e.What)
}

// Is reports whether an error is an answer to the request and not a temporary fault. A webhook may fail
// for days. An object that is too large for etcd stays too large, although the API server returns an
// internal error.
func Is(err error) bool {
	return errors.As(err, new(*StrippedError)) || errors.As(err, new(*ChangedError)) ||
		apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook ") ||
		strings.Contains(err.Error(), "etcdserver: request is too large")
}

// Answer returns the API server's answer without the leading name of the object. It also omits the used
// part of a quota, because other jobs change it.
func Answer(err error) string {
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

// streamID is the number of an HTTP/2 stream in an error. Each try has another one.
var streamID = regexp.MustCompile(`stream ID \d+; `)

// Fault describes why a write has no final answer: the connection broke, the call timed out, or the API
// server cannot answer now. The text is the same at each try, so it has no addresses and numbers.
func Fault(err error) string {
	if failed := (*net.OpError)(nil); errors.As(err, &failed) {
		return failed.Op + ": " + failed.Err.Error()
	}
	if call := (*url.Error)(nil); errors.As(err, &call) {
		return streamID.ReplaceAllString(call.Err.Error(), "")
	}
	return streamID.ReplaceAllString(Answer(err), "")
}

// Reason returns the reason of a refusal according to its message. Admission plugins return the same code
// and no machine-readable cause, so only the message distinguishes them.
func Reason(answer string) string {
	switch {
	case isMissingResources(answer):
		return v2alpha1.ReasonResourcesMissing
	case isQuota(answer):
		return v2alpha1.ReasonQuotaExceeded
	case isOutsideLimits(answer):
		return v2alpha1.ReasonLimitRangeViolation
	case strings.HasPrefix(answer, "violates PodSecurity "):
		return v2alpha1.ReasonPodSecurityViolation
	}
	return v2alpha1.ReasonFailedCreate
}

// isQuota reports whether the cause is a quota: the quota is exceeded, or is so new that its usage is unknown.
func isQuota(answer string) bool {
	return slices.ContainsFunc([]string{"exceeded quota: ", "failed quota: ", "status unknown for quota: "}, func(start string) bool {
		return strings.HasPrefix(answer, start)
	})
}
