// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topology has the domains that nodes are in, such as zones and racks, and chooses the fewest of them that hold a
// job. It is pure: nodes are places in a list, and what they hold is a number.
package topology
