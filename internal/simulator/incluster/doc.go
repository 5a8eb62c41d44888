// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package incluster replays a workload with the operator itself: a kube-apiserver and etcd, the
// controllers of jobs and the allocator, simulated nodes, and jobs that train by the rules of package
// simulator. It shows whether the operator does what the simulator promises of its policy.
//
// Simulated time is a multiple of real time. It stands still while the operator carries out a
// placement or finishes a job, because these take as long in reality whatever the multiple is. So a
// restart costs exactly the restart time of the rules. All that passes while the clock runs is the
// time from an event to the operator's decision about it.
package incluster
