// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Kind is a kind of failure that clients tell apart by its status code.
type Kind string

// The kinds of failures.
const (
	// KindInvalid is a request that is malformed or asks for what cannot be.
	KindInvalid Kind = "Invalid"
	// KindUnauthenticated is a request of which is not known who sends it.
	KindUnauthenticated Kind = "Unauthenticated"
	// KindForbidden is a request that its sender may not make.
	KindForbidden Kind = "Forbidden"
	// KindNotFound is a request about what does not exist.
	KindNotFound Kind = "NotFound"
	// KindConflict is a request that the state of its job forbids.
	KindConflict Kind = "Conflict"
	// KindNotImplemented is a method that a path does not know.
	KindNotImplemented Kind = "NotImplemented"
	// KindUnavailable is a request that could not be done now; the same request
	// may succeed later.
	KindUnavailable Kind = "Unavailable"
	// KindInternal is every other failure. Its sender is not at fault.
	KindInternal Kind = "Internal"
)

// status returns the status code of a kind; it is the only place that knows them.
// A failure that is not the sender's fault has status 200, as a deployed client
// ends its job at any status from 400 on, and takes success false for later.
func (k Kind) status() int {
	switch k {
	case KindInvalid:
		return http.StatusBadRequest
	case KindUnauthenticated:
		return http.StatusUnauthorized
	case KindForbidden:
		return http.StatusForbidden
	case KindNotFound:
		return http.StatusNotFound
	case KindConflict:
		return http.StatusConflict
	case KindNotImplemented:
		return http.StatusNotImplemented
	case KindUnavailable, KindInternal:
		return http.StatusOK
	}
	return http.StatusOK
}

// code returns by which code a failure of a kind is counted: its status, and a
// word for those that share theirs with success.
func (k Kind) code() string {
	switch k {
	case KindUnavailable:
		return codeLater
	case KindInternal:
		return codeFault
	case KindInvalid, KindUnauthenticated, KindForbidden, KindNotFound, KindConflict, KindNotImplemented:
	}
	return strconv.Itoa(k.status())
}

// Error is a failure as a client sees it: a kind and a message that does not
// change with the cluster's inner state. Its cause is for the log alone.
type Error struct {
	// Kind says which status code the client sees.
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

// because returns the failure with its cause.
func (e *Error) because(cause error) *Error {
	return &Error{Kind: e.Kind, Message: e.Message, cause: cause}
}

func failure(kind Kind, format string, arguments ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, arguments...)}
}

// asFailure returns the failure that an error is for a client; what no handler
// named is internal, and its text stays in the log. What the end of a request's
// time cut off is unavailable.
func asFailure(err error) *Error {
	var named *Error
	switch {
	case errors.As(err, &named):
		return named
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable(err)
	}
	return failure(KindInternal, "the request could not be done, see the log of di-server").because(err)
}
