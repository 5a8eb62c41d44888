// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
)

// errNotYet says that what a request waits for is not there yet.
var errNotYet = errors.New("what the request waits for is not there yet")

// persist does an attempt again until it succeeds or fails for a reason that
// does not pass, and at most until the request's time is over. Most of what
// passes does so within seconds, so the client is not told of it before.
func persist(ctx context.Context, attempt func(context.Context) error) error {
	var last error
	err := patience().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		last = attempt(ctx)
		if passes(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) {
		return unavailable(last)
	}
	return err
}

// unavailable is the failure of a request that could not be done in time. Its
// cause is told, and no more what it is: that passes.
func unavailable(cause error) *Error {
	failed := failure(KindUnavailable, "the request could not be done in time: send it again")
	if cause == nil {
		return failed
	}
	return failed.because(errors.New(cause.Error()))
}

// patience returns the delays between attempts.
func patience() wait.DelayFunc {
	return wait.Backoff{
		Duration: 20 * time.Millisecond,
		Factor:   1.6,
		Jitter:   0.5,
		Steps:    64,
		Cap:      time.Second,
	}.DelayFunc()
}

// passes reports whether an error may go away without anybody changing the
// request. All do but the answers of a server that understood it: an API
// server that starts, is overloaded, loses its leader or its connections fails
// in more ways than can be told. A missing permission passes too, as roles may
// be behind the program in an upgrade.
func passes(err error) bool {
	var answered *Error
	switch {
	case err == nil || errors.As(err, &answered):
		return false
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// Not the API server's own answer, but that of a proxy before it or of
		// a part of it that is not there yet.
		return true
	}
	return !isDefinite(err) && !isUndecodable(err) && !isTooLarge(err)
}

// isTooLarge reports whether an object has become larger than etcd takes, which
// the API server tells as a fault of its own.
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "etcdserver: request is too large") ||
		err != nil && strings.Contains(err.Error(), "trying to send message larger than max")
}

// isDefinite reports whether the API server will say the same again.
func isDefinite(err error) bool {
	for _, definite := range []func(error) bool{
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
	} {
		if definite(err) {
			return true
		}
	}
	return false
}

// isUndecodable reports whether an error says that content is no good.
func isUndecodable(err error) bool {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &mistyped) ||
		runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) ||
		runtime.IsStrictDecodingError(err)
}

// isUncertain reports whether a write that failed so may be done nevertheless:
// all but the API server's own refusals leave that open.
func isUncertain(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsUnexpectedServerError(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse))
}
