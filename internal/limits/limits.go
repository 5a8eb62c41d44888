// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits names every maximum of a count, list or text in jobs and
// Memberships. Schema, webhooks and operator all hold to these, and docs/limits.md
// lists them; tests hold the schema's markers and that page against this package.
package limits

import "math"

// Of the spec of a job.
const (
	// Replicas is the most that any count of replicas may say, as the completions of
	// an Indexed batch/v1 Job. It is the schema's maximum, and that of the
	// installation's own setting, which is what a job is refused by.
	Replicas = 100_000
	// PodsPerJob is how many pods a job may have where the installation does not say
	// otherwise. Linux starts no process of a job much larger than half of it, as the
	// addresses of all replicas are one variable of its environment.
	PodsPerJob = 5_000
	// Tasks is how many tasks a job may have.
	Tasks = 256
	// Volumes is how many volumes a job may add to its pods.
	Volumes = 256
	// FailureRules is how many rules a failurePolicy may have.
	FailureRules = 20
	// TaskNames is how many tasks one rule or policy may name.
	TaskNames = 64
	// ExitCodes is how many exit codes one rule may name.
	ExitCodes = 255
	// ClusterSpecs is how many frameworks a job may be described for.
	ClusterSpecs = 8
	// Seconds is the most that a span of time may say, 68 years.
	Seconds = math.MaxInt32
	// NameLength bounds names whose own form the API server does not hold.
	NameLength = 253
	// LabelLength bounds names that are a part of host names.
	LabelLength = 63
	// FreeTextLength bounds texts without any form, such as spec.group.
	FreeTextLength = 1_024
)

// Of the status of a job. Ranks are below Replicas, whatever pods and records say.
const (
	// RestartsAhead is how many more restarts a pod may know of than the status: a
	// status that was restored from a backup learns of them. A pod that claims more is
	// not believed.
	RestartsAhead = 1_000
	// RanksLength is how long the text of recorded ranks may be: that of as many as
	// Replicas, in no order.
	RanksLength = 1 << 20
	// Conditions is how many conditions a job may have; the operator itself sets some
	// thirty types.
	Conditions = 256
	// Counted is how many counts one summary of a job's pods may hold, such as those by pod
	// phase, or by role in v1alpha1.
	Counted = 64
	// Named is how many of many things one message names; it counts the rest.
	Named = 3
	// MessageLength is how long the message of a condition or event is kept.
	MessageLength = 1_024
)

// Of a Membership.
const (
	// Members is how many members a Membership may have, which etcd stores as one object.
	Members = 2_000
	// GPUs is how many GPUs one learner may have, and so how many pods it is cut into.
	GPUs = 4_096
	// Losses is how many losses the operator, and how many failure reports di-server counts
	// for one slot.
	Losses = 1_000_000
	// LostListed is how many lost pods stay advertised for one job.
	LostListed = 2_000
	// Requests is how many requests are recorded, with their answers.
	Requests = 32
	// RecordedURLs is how many URLs one recorded answer may list of a task.
	RecordedURLs = 2 * Members
	// Ports is how many changes of a slot's port are recorded.
	Ports = 64
)
