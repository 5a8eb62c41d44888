// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auth authenticates the sender of a request by its token or its address, and authorizes the sender
// for a job. Its API calls are rate limited per sender, so no sender exhausts the calls of others.
package auth

import (
	"time"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/server/store"
)

// Mode selects how the server treats unauthenticated callers.
type Mode string

// The modes.
const (
	// ModeEnforce refuses unauthenticated callers.
	ModeEnforce Mode = "enforce"
	// ModeLegacy admits unauthenticated callers, counts them and logs a warning. Callers of earlier releases
	// may come through a node port or a gateway, which hides their address.
	ModeLegacy Mode = "legacy"
	// ModeDisabled disables authentication and admits every caller.
	ModeDisabled Mode = "disabled"
)

// Options configure an Auth. All fields but Watches are required.
type Options struct {
	// Mode selects how unauthenticated callers are treated.
	Mode Mode
	// StrictAddresses disables authentication by the address of a node.
	StrictAddresses bool
	// AddressTimeout bounds the wait for the pod of an unknown address.
	AddressTimeout time.Duration
	// RestartTimeout bounds the wait for the status of a restarted container.
	RestartTimeout time.Duration
	// Cluster is the access to the cluster.
	Cluster store.Cluster
	// Watches follows the watches of the cache; nil for none.
	Watches *store.Watches
	// Clock provides the time.
	Clock clock.PassiveClock
	// Metrics counts and logs calls.
	Metrics *Metrics
}

// Auth authenticates and authorizes requests.
type Auth struct {
	Authenticator *Authenticator
	Authorizer    *Authorizer
	Lookups       *Lookups
	Callers       *Callers
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
