// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failure holds the failures that clients of di-server see: their
// kinds, status codes and messages. It is pure.
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
	// Invalid is a request that is malformed or asks for the impossible.
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
	// Internal is every other failure. The sender is not at fault.
	Internal Kind = "Internal"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Invalid, Unauthenticated, Forbidden, NotFound, Conflict, NotImplemented, Unavailable, Internal}
}

// The codes that metrics count failures by whose status is 200.
const (
	// CodeLater counts requests that may succeed when they are sent again.
	CodeLater = "later"
	// CodeFault counts requests that failed through no fault of their sender.
	CodeFault = "fault"
)

// Status returns the status code of a kind. Failures that are not the sender's
// fault have status 200: a deployed client ends its job at any status from 400
// on, and retries where the status is 200 and success is false.
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
	case Unavailable, Internal:
	}
	return http.StatusOK
}

// Code returns the code that metrics count a kind by: its status, or a word
// where the status is also that of success.
func (k Kind) Code() string {
	switch k {
	case Unavailable:
		return CodeLater
	case Internal:
		return CodeFault
	case Invalid, Unauthenticated, Forbidden, NotFound, Conflict, NotImplemented:
	}
	return strconv.Itoa(k.Status())
}

// Error is a failure as the client sees it. Its message does not depend on the
// cluster's internal state; only the log shows its cause.
type Error struct {
	// Kind selects the status code.
	Kind Kind
	// Message says what is wrong, and what would be right.
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

// Because returns the failure with its cause.
func (e *Error) Because(cause error) *Error {
	return &Error{Kind: e.Kind, Message: e.Message, cause: cause}
}

// New returns a failure of a kind, with a formatted message.
func New(kind Kind, format string, arguments ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, arguments...)}
}

// From returns the failure that a client sees for an error. An expired request
// is Unavailable; any error without a kind is Internal and only logged.
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

// TimedOut returns the failure of a request that could not be completed in
// time. It keeps the text of the cause, but not its kind, which is transient.
func TimedOut(cause error) *Error {
	failed := New(Unavailable, "the request could not be done in time: send it again")
	if cause == nil {
		return failed
	}
	return failed.Because(errors.New(cause.Error()))
}
