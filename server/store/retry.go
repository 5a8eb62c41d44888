// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/server/failure"
)

// ErrNotYet is the error of an attempt that must wait for another program.
var ErrNotYet = errors.New("what the request waits for is not there yet")

// Attempt tries something once. An error may be transient.
type Attempt func(context.Context) error

// Retry repeats an attempt until it succeeds, fails permanently or the context ends. Most transient
// failures last seconds, so clients see none of them.
func Retry(ctx context.Context, attempt Attempt) error {
	var last error
	err := backoff().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		last = attempt(ctx)
		if isTransient(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) {
		return failure.TimedOut(last)
	}
	return err
}

// backoff returns the delays between attempts.
func backoff() wait.DelayFunc {
	return wait.Backoff{
		Duration: 20 * time.Millisecond,
		Factor:   1.6,
		Jitter:   0.5,
		Steps:    64,
		Cap:      time.Second,
	}.DelayFunc()
}

// isTransient reports whether an error may disappear without a change of the request. Every error is
// transient unless a server has understood the request and refused it. An API server that starts, is
// overloaded, or loses its leader or connections fails in too many ways to list. A missing permission is
// transient, too: an upgrade may grant roles after it starts the program. A denial of an admission policy or
// webhook is permanent.
func isTransient(err error) bool {
	var answered *failure.Error
	switch {
	case err == nil || errors.As(err, &answered):
		return false
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// A proxy answered, or an aggregated API that is not yet available.
		return true
	}
	return !isDefinite(err) && !isDenied(err) && !isUndecodable(err) && !isTooLarge(err)
}

// isTooLarge reports whether an object exceeds the size that etcd stores. The API server returns an
// internal error in this case.
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "etcdserver: request is too large") ||
		err != nil && strings.Contains(err.Error(), "trying to send message larger than max")
}

// isDenied reports whether an admission policy or webhook denied a write. The API server answers such a
// write with a status of the policy's choice, and with these words.
func isDenied(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return strings.Contains(message, "ValidatingAdmissionPolicy '") && strings.Contains(message, " denied request: ") ||
		strings.Contains(message, "admission webhook \"") && strings.Contains(message, " denied the request")
}

// denied returns the failure of a denied write, with the words of the policy.
func denied(err error) error {
	message := err.Error()
	if _, after, found := strings.Cut(message, " is forbidden: "); found {
		message = after
	}
	return failure.New(failure.Refused, "the cluster refuses what di-server writes: %s", message).Because(err)
}

// isDefinite reports whether the API server will give the same answer again.
func isDefinite(err error) bool {
	return slices.ContainsFunc([]func(error) bool{
		apierrors.IsNotFound,
		apierrors.IsAlreadyExists,
		apierrors.IsInvalid,
		apierrors.IsBadRequest,
		apierrors.IsMethodNotSupported,
		apierrors.IsNotAcceptable,
		apierrors.IsUnsupportedMediaType,
		apierrors.IsRequestEntityTooLargeError,
		apierrors.IsGone,
		apierrors.IsResourceExpired,
	}, func(is func(error) bool) bool { return is(err) })
}

// isUndecodable reports whether an error is a decoding error.
func isUndecodable(err error) bool {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &mistyped) ||
		runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) ||
		runtime.IsStrictDecodingError(err)
}

// IsUncertain reports whether a failed write may have been stored. Only a refusal by the API server itself
// excludes that.
func IsUncertain(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsUnexpectedServerError(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse))
}
