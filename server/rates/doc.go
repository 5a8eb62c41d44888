// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rates sums the reports of a job's workers by role. Each di-server sums the reports that it receives,
// and keeps its sums in the status of the job beside those of other di-servers.
package rates
