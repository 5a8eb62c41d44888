// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ratio simulates producers and a consumer of samples, and compares the rule of
// autoscale/ratio with other rules. docs/ratio.md has the figures.
//
// A run takes seconds as steps. Producers start after a random delay, and are blocked when the queue
// is full. The consumer waits when it is empty. The rule runs with the code of the operator and of di-server:
// it sees nothing but the sums that di-server writes every 20 seconds of the reports of replicas. The other rules are models of
// Kubernetes' controllers; they are told truths that the controllers would have to measure.
package ratio
