// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobview answers what users ask about a job: what is desired, what is there, what is wrong, since when, and what
// would help. The answer is a value. kubectl di describe, list, top and ui render it, each in its own way, and decide
// nothing else about a job. The package reads no cluster and no clock.
package jobview
