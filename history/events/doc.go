// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events watches the Events of jobs, and the warnings of their pods, without keeping the others.
//
// +kubebuilder:rbac:groups="",resources=events,verbs=list;watch
package events
