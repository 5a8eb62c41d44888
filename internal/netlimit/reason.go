// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"context"
	"errors"
	"net/http"
	"os"
)

// The reasons for which a connection is closed, or a body is not read to its end, as
// metrics name them.
const (
	// ReasonConnections is that there are too many connections.
	ReasonConnections = "connections"
	// ReasonSlow is that a body comes too slowly.
	ReasonSlow = "slow"
	// ReasonShed is that a body gives up its room to others.
	ReasonShed = "shed"
	// ReasonRoom is that a body finds no room in time.
	ReasonRoom = "room"
	// ReasonSize is that a body is too large.
	ReasonSize = "size"
)

// ReasonOf returns the reason for which a body is not read to its end, "" where its sender
// broke it off. What is shed sees a deadline too.
func ReasonOf(err error) string {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return ReasonSize
	case errors.Is(err, ErrShed):
		return ReasonShed
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonRoom
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ReasonSlow
	}
	return ""
}
