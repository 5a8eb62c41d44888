// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade has no code of its own. The packages below it replace an earlier
// release and move its objects, in this sequence:
//
//	preflight      before anything changes: reads the cluster, and reports what an
//	    │          installation would meet. It stops the installation if a job would be lost.
//	    ▼
//	crds           installs the CustomResourceDefinitions. v1alpha1 stays served, and the
//	    │          conversion follows once the webhooks answer.
//	    ▼
//	webhooks       of this release serve and are published (package webhook): from here on
//	    │          both versions are admitted and converted.
//	    ▼
//	takeover       the leader stops the earlier release, step by step: its webhooks, its
//	    │          operator, and its di-server once ours answers. Then it opens the gate of
//	    │          the controllers (controllers.GateUntil) and probes admission.
//	    ▼
//	migration      once the takeover is done and an administrator requests it: stored objects
//	               are rewritten in the desired version, and a version stops being served.
//	               Package upgrade/storagemigration runs it.
//
// Each step starts from what it observes and not from what an earlier step recorded. Any of
// them can therefore be interrupted after any write and resumed by another leader. A rollback
// is the same sequence: its desired storage version is that of the earlier release, and the
// earlier release is installed again afterwards.
//
// The takeover ends one minor release after 2.0: release 2.0 takes over v0.2.2 and v1.1.x,
// and 2.1 does not. Its removal deletes package takeover with its tests and fixtures
// (test/upgrade/legacy), what package crds completes in CRDs of earlier releases, the rules
// that adopt their pods (job/lifecycle, adopt.go), the value takeover.enabled with
// config/rbac/takeover, the alert and runbook TakeoverStalled, and docs/takeover.md. The gate
// of the controllers then opens at once. Preflight keeps to name an earlier release, so that
// an installation over it stops before anything changes.
//
// crds and migration import none of the others; takeover imports crds, and preflight
// imports crds and takeover.
package upgrade
