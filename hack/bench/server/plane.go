// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// The users whose requests are counted.
const (
	userServer   = "bench-server"
	userOperator = "bench-operator"
	userPlain    = "bench-plain"
)

// installedMemoryLimit is the GOMEMLIMIT of config/server.
const installedMemoryLimit = "GOMEMLIMIT=230MiB"

// plane is the API server that a section runs on.
type plane struct{ *controlplane.Plane }

// startPlane starts an API server with the CRDs and without webhooks. The
// caller stops it.
func startPlane(folder string) (*plane, error) {
	started, err := controlplane.Start(&controlplane.Options{Folder: folder, Users: []string{userServer, userOperator, userPlain}})
	return &plane{started}, err
}

// startServer starts di-server as it is deployed, and returns when it is ready.
func (b *bench) startServer(ctx context.Context, p *plane, flags ...string) (*program.Process, error) {
	return b.startProgram(ctx, p, userServer, "server", func(address string) []string {
		return append([]string{"--address", address, "--tls-address="}, flags...)
	})
}

// startOperator starts the operator, and returns when it is ready.
func (b *bench) startOperator(ctx context.Context, p *plane) (*program.Process, error) {
	return b.startProgram(ctx, p, userOperator, "operator", func(address string) []string {
		return []string{"--webhook-address", address, "--webhook-url", "https://" + address}
	})
}

// startProgram starts one of the programs under a user of its own.
func (b *bench) startProgram(ctx context.Context, p *plane, user, name string, flags func(address string) []string) (*program.Process, error) {
	kubeconfig, err := p.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	return program.Start(ctx, &program.Command{
		Binary: b.binary, Name: name, Folder: b.folder, Environment: []string{kubeconfig, installedMemoryLimit}, Flags: flags,
	})
}
