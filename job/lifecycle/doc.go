// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle decides what a reconcile changes for a job, given what was observed. After the
// writes it concludes which status to commit. It is pure: it has no client, no clock and no log.
//
// Decide computes an input from the observation; no rule changes it. The rules of the job's
// lifecycle then add to a plan in order, until one of them settles it. They are in package
// workerled or package coordinatorled. Both packages build on package state, and none imports this
// one. Conclude turns the decision and its effects into a status, events and the time of the next
// reconcile.
//
// A worker-led job has these phases:
//
//	Pending -> Starting -> Running -> Succeeded
//	              ^           |
//	              +- Restarting -> Failed
//
// In Pending the job has no pod, in Starting it has some, and in Running all of them were ready.
// Restarting deletes the pods of the failed attempt. A coordinator-led job is Created when its
// coordinator exists, and Running when the coordinator runs. It is Succeeded or Failed when the
// coordinator has finished. docs/lifecycle.md lists every transition, and a test compares it with
// this package.
//
// Some facts disappear from the cluster: a restart, a completed rank, a lost pod, the end of the
// job. The operator first records such a fact in a status, and acts on it in the reconcile that
// observes the record.
package lifecycle
