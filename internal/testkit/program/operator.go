// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import "context"

// Operator starts the operator with its webhooks.
type Operator struct {
	// Binary is the di-orchestrator, and Folder is where logs are written.
	Binary, Folder string
	// Environment is added to the test's own.
	Environment []string
	// Address is where it serves webhooks; empty for a free one.
	Address string
	// URL is where the API server reaches the webhooks; their address when empty.
	URL string
	// Flags are the operator's, without addresses.
	Flags []string
	// NoWait has StartOperator return before the operator is ready.
	NoWait bool
}

// StartOperator starts the operator with its webhooks.
func StartOperator(ctx context.Context, o *Operator) (*Process, error) {
	return Start(ctx, &Command{
		Binary: o.Binary, Name: "operator", Folder: o.Folder, Environment: o.Environment, Address: o.Address, NoWait: o.NoWait,
		Flags: func(address string) []string {
			url := o.URL
			if url == "" {
				url = "https://" + address
			}
			return append(o.Flags[:len(o.Flags):len(o.Flags)], "--webhook-address", address, "--webhook-url", url)
		},
	})
}
