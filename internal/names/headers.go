// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

// Headers of requests to di-server.
const (
	// HeaderIdempotencyKey names a request, so that it may be sent again.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderCaller says on whose behalf a request is made: CallerUser, or absent
	// the coordinator's that the body names.
	HeaderCaller = "Di-Caller"
	// CallerUser is a person, or a program of theirs, who asks in the
	// coordinator's place.
	CallerUser = "user"
)
