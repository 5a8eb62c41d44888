// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
)

// Operator configures how tests start the operator.
type Operator struct {
	// Binary is the path of di-orchestrator. Folder is the folder for logs.
	Binary, Folder string
	// Environment extends the test's own environment.
	Environment []string
	// Flags are the operator's flags except addresses, and Configuration has sections of its file.
	Flags         []string
	Configuration string
	// NoWait makes StartOperator return before the operator is ready.
	NoWait bool
}

// StartOperator starts the operator, which waits for the webhooks.
func StartOperator(ctx context.Context, o *Operator) (*Process, error) {
	return Start(ctx, &Command{
		Binary: o.Binary, Name: "operator", Folder: o.Folder, Environment: o.Environment, Configuration: o.Configuration, NoWait: o.NoWait,
		Flags: func(string) []string { return o.Flags },
	})
}

// Webhooks configures how tests start the webhooks.
type Webhooks struct {
	// Binary is the path of di-orchestrator. Folder is the folder for logs.
	Binary, Folder string
	// Environment extends the test's own environment.
	Environment []string
	// Address is the address that the webhooks listen on. If empty, a free one is used.
	Address string
	// URL is the URL at which the API server reaches the webhooks. It defaults to their address.
	URL string
	// Flags are the webhooks' flags except addresses, and Configuration has sections of their file.
	Flags         []string
	Configuration string
	// NoWait makes StartWebhooks return before the webhooks are ready.
	NoWait bool
}

// StartWebhooks starts the webhooks.
func StartWebhooks(ctx context.Context, w *Webhooks) (*Process, error) {
	return Start(ctx, &Command{
		Binary: w.Binary, Name: "webhook", Folder: w.Folder, Environment: w.Environment, Address: w.Address, Configuration: w.Configuration, NoWait: w.NoWait,
		Flags: func(address string) []string {
			return append(w.Flags[:len(w.Flags):len(w.Flags)], "--webhook-address", address, "--webhook-url", cmp.Or(w.URL, "https://"+address))
		},
	})
}
