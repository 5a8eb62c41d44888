// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package programs has the programs of DI Orchestrator: the operator (the controllers), the webhooks, and
// di-server. Another module calls Main with policies of its own, and so builds an operator that can run
// them.
package programs
