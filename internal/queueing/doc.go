// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queueing writes the pod metadata of Kueue's integration of plain pods and pod
// groups, and reads from pods what Kueue did with them. It needs only names of Kueue,
// which are part of Kueue's documented interface, and reads none of its objects.
//
// It relies on this behaviour of Kueue's webhook and its controller of pods:
//
//   - A new pod with a queue's name gets a scheduling gate, a finalizer and the
//     label managed. The gate goes when the pod, or its whole group, is admitted.
//   - A group is admitted once as many pods exist as each of them records as the size
//     of the group. Size, queue and group never change.
//   - To evict a group, Kueue writes the condition TerminationTarget on each of its
//     pods and deletes them.
//   - The finalizer of a pod of a group stays until the group has finished, or another
//     pod replaces it.
//   - A group with a pod that is not retriable finishes once all its pods have
//     finished.
package queueing
