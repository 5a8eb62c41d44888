// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaler resizes jobs while they run: the producers of samples follow the consumer
// (spec.autoscale.ratio), and an optimizer plans replicas and resources (spec.autoscale.optimizer). It runs in the leader. It measures, lets autoscale/ratio decide, and writes
// counts of the spec, status.autoscaling and condition Autoscaling.
package autoscaler
