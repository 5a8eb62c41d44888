// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"context"
	"errors"
	"net/http"
	"os"
)

// The reasons why a connection is closed, or a body is not read to its end. They are labels of metrics.
const (
	// ReasonConnections means that there are too many connections.
	ReasonConnections = "connections"
	// ReasonSlow means that a body arrives too slowly.
	ReasonSlow = "slow"
	// ReasonShed means that a body lost its memory to others.
	ReasonShed = "shed"
	// ReasonRoom means that a body got no memory in time.
	ReasonRoom = "room"
	// ReasonSize means that a body is too large.
	ReasonSize = "size"
)

// ReasonOf returns the reason why a body was not read to its end; "" if its sender aborted it. It checks
// for ErrShed before deadlines, because a shed body also exceeds its deadline.
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
