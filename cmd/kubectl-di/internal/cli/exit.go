// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is what the commands of kubectl di share: kubectl's flags, arguments,
// output, progress and exit codes.
package cli

import (
	"errors"
	"fmt"
)

// The exit codes, which scripts rely on.
const (
	Done = 0
	// Failed says that the command was refused, or that a job that was followed failed.
	Failed = 1
	// Usage says that the command itself is wrong.
	Usage = 2
	// Lost says that convert --strict could not carry something over.
	Lost = 3
)

// coded is an error with an exit code.
type coded struct {
	error
	code int
}

// Unwrap implements the interface of package errors.
func (c coded) Unwrap() error { return c.error }

// With returns the error with an exit code.
func With(code int, err error) error { return coded{err, code} }

// Usagef returns an error about the command itself.
func Usagef(format string, args ...any) error { return With(Usage, fmt.Errorf(format, args...)) }

// Code returns the exit code of an error, or of none.
func Code(err error) int {
	with := coded{code: Failed}
	if err == nil {
		return Done
	}
	errors.As(err, &with)
	return with.code
}
