// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps the records of jobs in SQLite or PostgreSQL. Every read is bounded: pages follow a
// key, nothing counts all jobs, and a filter examines a bounded number of jobs for one page. Writers
// take turns, in one transaction for each batch, so that several programs may share a PostgreSQL.
package store
