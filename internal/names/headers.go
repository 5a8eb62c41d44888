// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

// These are headers of requests to di-server.
const (
	// HeaderIdempotencyKey identifies a request, so that a client may repeat it.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderCaller names the caller of a request. It is CallerUser, or absent if the caller is the
	// coordinator that the body names.
	HeaderCaller = "Di-Caller"
	// CallerUser is a person, or a person's program, that sends a request instead of the
	// coordinator.
	CallerUser = "user"
)
