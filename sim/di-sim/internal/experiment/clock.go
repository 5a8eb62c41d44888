// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package experiment

import (
	"syscall"
	"time"
)

// processorTime returns the time that the process has computed, so that other programs on the machine
// do not count. Without the figure it returns the zero time.
func processorTime() time.Time {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return time.Time{}
	}
	return time.Time{}.Add(time.Duration(usage.Utime.Nano() + usage.Stime.Nano()))
}
