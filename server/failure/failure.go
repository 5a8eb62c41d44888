// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failure defines the failures that clients of di-server see: their kinds, status codes and messages.
// It is pure.
package failure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Kind classifies failures; each kind has one status code.
type Kind string

// The kinds of failures.
const (
	// Invalid is a request that is malformed or that cannot be satisfied.
	Invalid Kind = "Invalid"
	// Unauthenticated is a request whose sender is unknown.
	Unauthenticated Kind = "Unauthenticated"
	// Forbidden is a request that its sender may not make.
	Forbidden Kind = "Forbidden"
	// NotFound is a request about something that does not exist.
	NotFound Kind = "NotFound"
	// Conflict is a request that the state of its job forbids.
	Conflict Kind = "Conflict"
	// NotImplemented is a method that a path does not support.
	NotImplemented Kind = "NotImplemented"
	// Unavailable is a transient failure: the same request may succeed later.
	Unavailable Kind = "Unavailable"
	// Refused is a request whose write an admission policy or webhook denies. The sender made no error, and
	// the same request fails again.
	Refused Kind = "Refused"
	// Internal is every other failure. Its cause is not the sender.
	Internal Kind = "Internal"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Invalid, Unauthenticated, Forbidden, NotFound, Conflict, NotImplemented, Unavailable, Refused, Internal}
}

// These codes label failures with status 200 in metrics.
const (
	// CodeLater counts requests that may succeed if they are repeated.
	CodeLater = "later"
	// CodeRefused counts requests whose write an admission policy or webhook denies.
	CodeRefused = "refused"
	// CodeFault counts requests that failed although the sender made no error.
	CodeFault = "fault"
)

// Status returns the status code of a kind. Failures that the sender did not cause have status 200. A deployed
// client fails its job at any status from 400, but retries if the status is 200 and success is false.
func (k Kind) Status() int {
	switch k {
	case Invalid:
		return http.StatusBadRequest
	case Unauthenticated:
		return http.StatusUnauthorized
	case Forbidden:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case Conflict:
		return http.StatusConflict
	case NotImplemented:
		return http.StatusNotImplemented
	case Unavailable, Refused, Internal:
	}
	return http.StatusOK
}

// Code returns the metric label of a kind: its status, or a word if that status is also the one of success.
func (k Kind) Code() string {
	switch k {
	case Unavailable:
		return CodeLater
	case Refused:
		return CodeRefused
	case Internal:
		return CodeFault
	case Invalid, Unauthenticated, Forbidden, NotFound, Conflict, NotImplemented:
	}
	return strconv.Itoa(k.Status())
}

// Error is a failure as the client sees it. Its message does not depend on the cluster's internal state. Only
// the log shows the cause.
type Error struct {
	// Kind selects the status code.
	Kind Kind
	// Message describes the error and a correct request.
	Message string
	cause   error
}

// Error implements error.
func (e *Error) Error() string {
	if e.cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error {
	return e.cause
}

// Because returns the failure with a cause.
func (e *Error) Because(cause error) *Error {
	return &Error{Kind: e.Kind, Message: e.Message, cause: cause}
}

// New returns a failure of a kind, with a formatted message.
func New(kind Kind, format string, arguments ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, arguments...)}
}

// From converts an error to the failure that a client sees. An expired request is Unavailable. Any other error
// without a kind is Internal, and only the log shows it.
func From(err error) *Error {
	var named *Error
	switch {
	case errors.As(err, &named):
		return named
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return TimedOut(err)
	}
	return New(Internal, "the request could not be done, see the log of di-server").Because(err)
}

// TimedOut returns the failure of a request that exceeded its deadline. It keeps the text of the cause but not
// its kind, because the kind is transient.
func TimedOut(cause error) *Error {
	failed := New(Unavailable, "the request could not be done in time: send it again")
	if cause == nil {
		return failed
	}
	return failed.Because(errors.New(cause.Error()))
}
