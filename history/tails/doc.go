// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tails reads the last lines of containers that ended badly from the API server, before their pods are
// gone: a few at a time, repeated a few times, and then given up with a note. Matches of the expressions of
// history.logs.redact are replaced before anything keeps them.
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get
package tails
