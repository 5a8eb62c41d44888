// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui serves a web page of jobs with the rights of its user.
package ui
