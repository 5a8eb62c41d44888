// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package soak runs an installation under fire: etcd, two API servers, operators with shards, di-servers and webhooks as
// processes, with jobs that clients edit. The wall clocks of the programs are apart. A seeded schedule kills, pauses and
// cuts off programs, moves their clocks, loses pods and nodes, and lets strangers edit objects. Every change is recorded from etcd, and a checker decides whether the history keeps
// the promises. The tests need build tag soak: see `make soak`.
package soak
