// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exit says which code kubectl di ends with, which scripts rely on.
package exit

import (
	"errors"
	"fmt"
)

// The exit codes.
const (
	// Done says that what was asked for was done.
	Done = 0
	// Failed says that it was not, or that a job that was followed failed.
	Failed = 1
	// Usage says that the command itself is wrong.
	Usage = 2
	// Lost says that something could not be carried over, of convert --strict.
	Lost = 3
)

// coded is an error that decides about the exit code.
type coded struct {
	error
	code int
}

// Unwrap implements the interface of package errors.
func (c coded) Unwrap() error { return c.error }

// With returns the error with an exit code.
func With(code int, err error) error { return coded{err, code} }

// Usagef returns an error that says what is wrong with the command.
func Usagef(format string, args ...any) error { return With(Usage, fmt.Errorf(format, args...)) }

// Code returns the exit code of an error, or of none.
func Code(err error) int {
	if err == nil {
		return Done
	}
	if with := (coded{}); errors.As(err, &with) {
		return with.code
	}
	return Failed
}
