// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watch records all jobs while they change. Informers only note which jobs have changed, and
// one loop records them in batches. While the database is away it retries, and jobs are recorded as
// they are then: what is lost of that time is reports in between. After a start it compares the
// database with what exists.
package watch
