// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queueing writes the pod metadata of Kueue's integration of plain pods and pod groups. It
// also reads from pods what Kueue did with them, and from Workloads why pods wait. It depends only on
// names in Kueue's documented interface.
//
// It relies on this behaviour of Kueue's webhook and of its pod controller:
//
//   - A new pod with a queue's name gets a scheduling gate, a finalizer and the label managed. Kueue
//     removes the gate when it admits the pod or its whole group.
//   - Each pod of a group records the group's size. The group is admitted once as many pods exist.
//     Size, queue and group never change.
//   - It deletes pods that are created beyond the size, the youngest first.
//   - To evict a group, Kueue writes the condition TerminationTarget on each of its pods and deletes
//     them.
//   - The finalizer of a pod of a group stays until the group has finished, or another pod replaces
//     the pod.
//   - A group with a pod that is not retriable finishes once all its pods have finished.
package queueing
