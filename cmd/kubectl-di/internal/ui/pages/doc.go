// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pages turns objects of the cluster into what the web page shows. It must not read a
// cluster or a clock.
package pages
