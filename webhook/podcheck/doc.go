// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podcheck checks the pod templates of a job before the job runs. It builds a pod of each
// task as the operator does, creates it in dry run, and reports the API server's answer by the
// fields of the job. Nothing is stored.
package podcheck
