// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gate decides who reaches the web page: on a user's computer the browser that opened the
// printed URL, and in a cluster each caller with a token of their own. It refuses requests that
// other pages cause.
package gate
