// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auth finds out who sends a request, by its token or its address, and
// decides what that sender may do to which job. Its questions to the API server
// are rate limited per sender, so that no sender takes the calls of others.
package auth

import (
	"time"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/server/store"
)

// Mode is how unauthenticated callers are treated.
type Mode string

// The modes.
const (
	// ModeEnforce refuses them.
	ModeEnforce Mode = "enforce"
	// ModeLegacy admits them, counts them and logs a warning: callers of earlier
	// releases may come through a node port or a gateway, which hides them.
	ModeLegacy Mode = "legacy"
	// ModeOff disables authentication and admits every caller.
	ModeOff Mode = "off"
)

// Options configure an Auth. All fields but Watches are required.
type Options struct {
	// Mode is how unauthenticated callers are treated.
	Mode Mode
	// StrictAddresses is whether the address of a node authenticates no one.
	StrictAddresses bool
	// AddressTimeout bounds the wait for the pod of an unknown address.
	AddressTimeout time.Duration
	// RestartTimeout bounds the wait for the status of a restarted container.
	RestartTimeout time.Duration
	// Cluster is the access to the cluster.
	Cluster store.Cluster
	// Watches follow the watches of the cache; nil for none.
	Watches *store.Watches
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics count and log calls.
	Metrics *Metrics
}

// Auth authenticates and authorizes requests.
type Auth struct {
	*Authenticator
	*Authorizer
	*Lookups
	*Callers
}

// New returns an Auth.
func New(options Options) *Auth {
	lookups := newLookups(options)
	authorizer := newAuthorizer(options)
	return &Auth{
		Authenticator: newAuthenticator(options, lookups),
		Authorizer:    authorizer,
		Lookups:       lookups,
		Callers:       &Callers{options: options, lookups: lookups, authorizer: authorizer},
	}
}
