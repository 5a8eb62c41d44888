// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage reads every 30 seconds what the pods of all jobs use, by one list for each lifecycle and watched
// namespace. A cluster without the metrics API is no error.
//
// +kubebuilder:rbac:groups=metrics.k8s.io,resources=pods,verbs=list
package usage
