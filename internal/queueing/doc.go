// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queueing marks pods for Kueue's integration of plain pods and pod
// groups, and reads from pods what Kueue has done to them. It needs nothing of
// Kueue but names, which are part of Kueue's documented interface, and reads no
// object of it.
//
// What it relies on, as Kueue's webhook and controller of pods do it:
//
//   - A new pod with a queue's name gets a scheduling gate, a finalizer and the
//     label managed. The gate goes when the pod, or its whole group, is admitted.
//   - A group is admitted once as many pods exist as each of them says that there
//     are to be. That number, the queue and the group stay as they are.
//   - Evicting, Kueue writes the condition TerminationTarget on each pod of the
//     group and deletes it.
//   - The finalizer of a pod of a group stays until the group has finished, or a
//     further pod has taken its place.
//   - A group with a pod that is not retriable has finished when all its pods have
//     ended.
package queueing
