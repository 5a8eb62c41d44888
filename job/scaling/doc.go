// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaling decides about ScalePlans: which plan of a job is active, which cannot be executed and
// why, what a plan changes, and which finished plans are deleted. It is pure.
//
// Two controllers use it. That of ScalePlans accepts or refuses a plan, and writes its status. That of jobs
// takes the newest accepted plan, records in the job's status.scaling.plan what the plan changes, and
// executes the record. So the job's status alone shows what remains to be done.
package scaling
