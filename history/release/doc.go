// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release lets deleted jobs go once their end is recorded, with history.require: it removes the finalizer that the
// operator added. It repeats what fails, and the operator lets go of a job that waits for too long.
//
// A policy bounds this right to that finalizer of deleted jobs:
//
// +kubebuilder:rbac:groups=diengine.opendilab.org,resources=dijobs,verbs=patch
package release
