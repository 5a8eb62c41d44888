// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package incluster replays a workload with the operator itself: a kube-apiserver and etcd, the
// controllers of jobs and the allocator, simulated nodes, and jobs that train by the rules of package
// simulator. It shows whether the operator does what the simulator promises of its policy.
//
// Simulated time is a multiple of real time. While the operator decides about a new job, carries out a
// placement or ends a job, it passes as in reality, because these do not depend on the multiple. So
// what is multiplied is the time that jobs train, and the time until the operator uses what is free.
package incluster
