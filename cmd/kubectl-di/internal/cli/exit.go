// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli contains what the commands of kubectl di share: kubectl's flags, arguments, output,
// progress and exit codes.
package cli

import (
	"errors"
	"fmt"
)

// The exit codes. Scripts depend on them.
const (
	Done = 0
	// Failed reports that the command was refused, or that a followed job failed.
	Failed = 1
	// Usage reports that the command line is wrong.
	Usage = 2
	// Lost reports that convert --strict could not convert everything.
	Lost = 3
	// TimedOut reports that --timeout ended a wait. It is the code of timeout(1).
	TimedOut = 124
)

// coded is an error with an exit code.
type coded struct {
	error
	code int
}

// Unwrap implements the interface of package errors.
func (c coded) Unwrap() error { return c.error }

// With adds an exit code to the error.
func With(code int, err error) error { return coded{err, code} }

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) error { return With(Usage, fmt.Errorf(format, args...)) }

// Join joins errors. A failure outranks a timeout in the exit code.
func Join(failures ...error) error {
	joined := errors.Join(failures...)
	for _, failure := range failures {
		if failure != nil && Code(failure) != TimedOut {
			return With(Code(failure), joined)
		}
	}
	return joined
}

// Code returns the exit code of an error; 0 for nil.
func Code(err error) int {
	with := coded{code: Failed}
	if err == nil {
		return Done
	}
	errors.As(err, &with)
	return with.code
}
