// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
)

// Operator is how tests start the operator.
type Operator struct {
	// Binary is the di-orchestrator, and Folder takes logs.
	Binary, Folder string
	// Environment is added to the test's own.
	Environment []string
	// Flags are those of the operator beside addresses.
	Flags []string
	// NoWait has StartOperator return before the operator is ready.
	NoWait bool
}

// StartOperator starts the operator, which waits for the webhooks.
func StartOperator(ctx context.Context, o *Operator) (*Process, error) {
	return Start(ctx, &Command{
		Binary: o.Binary, Name: "operator", Folder: o.Folder, Environment: o.Environment, NoWait: o.NoWait,
		Flags: func(string) []string { return o.Flags },
	})
}

// Webhooks is how tests start the webhooks.
type Webhooks struct {
	// Binary is the di-orchestrator, and Folder takes logs.
	Binary, Folder string
	// Environment is added to the test's own.
	Environment []string
	// Address is where the webhooks are served; a free one when empty.
	Address string
	// URL is where the API server reaches the webhooks; their address when empty.
	URL string
	// Flags are those of the webhooks beside addresses.
	Flags []string
	// NoWait has StartWebhooks return before the webhooks are ready.
	NoWait bool
}

// StartWebhooks starts the webhooks.
func StartWebhooks(ctx context.Context, w *Webhooks) (*Process, error) {
	return Start(ctx, &Command{
		Binary: w.Binary, Name: "webhook", Folder: w.Folder, Environment: w.Environment, Address: w.Address, NoWait: w.NoWait,
		Flags: func(address string) []string {
			return append(w.Flags[:len(w.Flags):len(w.Flags)], "--webhook-address", address, "--webhook-url", cmp.Or(w.URL, "https://"+address))
		},
	})
}
