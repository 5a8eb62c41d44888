// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits defines every maximum of a count, list or text in jobs and Memberships. The schema, the
// webhooks and the operator all enforce these maximums, and docs/limits.md lists them. Tests compare the
// schema's markers and that page with this package.
package limits

import "math"

// The limits of a job's spec.
const (
	// Replicas is the maximum of any count of replicas, equal to that of completions in an Indexed
	// batch/v1 Job. It is the maximum in the schema, and the maximum of the installation's setting. The
	// setting is the limit that jobs are validated against.
	Replicas = 100_000
	// PodsPerJob is the default maximum number of pods of a job. Linux starts no process of a job much
	// larger than half of it, because one environment variable contains the addresses of all replicas.
	PodsPerJob = 5_000
	// Tasks is the maximum number of tasks of a job.
	Tasks = 256
	// Volumes is the maximum number of volumes that a job may add to its pods.
	Volumes = 256
	// FailureRules is the maximum number of rules of a failurePolicy.
	FailureRules = 20
	// TaskNames is the maximum number of tasks that one rule or policy names.
	TaskNames = 64
	// ExitCodes is the maximum number of exit codes that one rule names.
	ExitCodes = 255
	// ClusterSpecs is the maximum number of frameworks that a job has cluster specs for.
	ClusterSpecs = 8
	// SlotsPerWorker is the maximum number of MPI processes of one worker.
	SlotsPerWorker = 4_096
	// Seconds is the maximum of a duration, 68 years.
	Seconds = math.MaxInt32
	// NameLength bounds names whose format the API server does not validate.
	NameLength = 253
	// LabelLength bounds names that are part of host names.
	LabelLength = 63
	// FreeTextLength bounds texts without a format, such as spec.group.
	FreeTextLength = 1_024
)

// The limits of spec.autoscale, of tasks[].drain and of ScalePlans.
const (
	// Producers is the maximum number of tasks that produce samples by one ratio rule.
	Producers = 16
	// Staleness is the maximum age of a sample, in versions of the policy.
	Staleness = 1_000
	// GrowthPercent is the maximum memory of a next attempt, in percent of the last one.
	GrowthPercent = 400
	// ShrinkPercent is the maximum of a reduced request, in percent of the last one. It is below 100, so
	// that each reduction reduces.
	ShrinkPercent = 90
	// PendingSeconds is the maximum time before requests are reduced, a week.
	PendingSeconds = 604_800
	// ScalingSeconds is the maximum time for a change of a job: for one ScalePlan, or for the
	// acknowledgements of one removal. It is a day.
	ScalingSeconds = 86_400
	// PlanPods is the maximum number of pods that each list of a ScalePlan names.
	PlanPods = 2_000
	// ResourceOverrides is how many tasks and replicas of a job may have resources that differ from
	// their templates.
	ResourceOverrides = 4_096
	// PlanConditions is the maximum number of conditions of a ScalePlan.
	PlanConditions = 16
	// PlanMessageLength is the maximum length of the message of a ScalePlan. It is that of a condition.
	PlanMessageLength = 32_768
)

// The limits of a job's status. Ranks are below Replicas, regardless of pods and records.
const (
	// RestartsAhead is how many more restarts a pod may record than the status. A status that was restored
	// from a backup learns of these restarts from the pods. A pod that records more is ignored.
	RestartsAhead = 1_000
	// RanksLength bounds the text of recorded ranks. It is sufficient for Replicas ranks in any order.
	RanksLength = 1 << 20
	// GrowthGroups is the maximum number of groups that are added to a queued job. Replicas of further
	// ones queue each by itself.
	GrowthGroups = 64
	// Conditions is the maximum number of conditions of a job. The operator itself sets about thirty
	// types.
	Conditions = 256
	// Counted is the maximum number of counts in one summary of a job's pods, for example by pod phase, or
	// by role in v1alpha1.
	Counted = 64
	// Roles is the maximum number of roles that workers of a job report.
	Roles = 8
	// Rates is the maximum number of sums of reports in a job's status: one for each role and di-server.
	Rates = 8 * Roles
	// Named is how many items of a list a message names. It counts the rest.
	Named = 3
	// Refusals is how many refusals of a membership are recorded.
	Refusals = 32
	// MessageLength is the maximum length of the message of a condition or Event.
	MessageLength = 1_024
)

// The limits of a Membership.
const (
	// Members is the maximum number of members of a Membership, because etcd stores it as one object.
	Members = 2_000
	// GPUs is the maximum number of GPUs of one learner, and therefore of the pods that it is split into.
	GPUs = 4_096
	// Losses is the maximum number of losses that the operator counts for one slot. It is also the maximum
	// number of failure reports that di-server counts for one slot.
	Losses = 1_000_000
	// LostListed is how many lost pods of one job stay advertised.
	LostListed = 2_000
	// Requests is how many requests are recorded with their answers.
	Requests = 32
	// RecordedURLs is how many URLs of one task a recorded answer may list.
	RecordedURLs = 2 * Members
	// Ports is how many changes of a slot's port are recorded.
	Ports = 64
)
