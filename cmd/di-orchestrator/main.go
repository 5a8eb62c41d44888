// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command di-orchestrator contains the programs of DI Orchestrator in one binary: the operator (the
// controllers), the webhooks, and di-server.
package main

import (
	"os"

	"opendilab.org/di-orchestrator/cmd/di-orchestrator/programs"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(programs.Main(version, nil)) }
