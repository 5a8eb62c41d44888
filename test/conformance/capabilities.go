// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import "slices"

// These rules are those of several rows.
var (
	fromOutside   = where(notApplicable("programs in pods call di-server, and never the API server"), Pod, Deployed)
	readOnly      = where(refused("this job is worker-led: v1alpha1 shows it and cannot change its spec"), WorkerLed, V1)
	onlyV2        = where(notApplicable("the request exists in v2alpha1 only"), V1)
	viewPatches   = where(refused(`cannot patch resource "dijobs"`), View)
	viewPlans     = where(refused(`cannot create resource "scaleplans"`), View)
	asEdit        = where(notApplicable("who submitted a job changes nothing about the end of its pods; the column of edit shows it"), Admin, View)
	noV1Workers   = where(notApplicable("v1alpha1 creates no worker-led jobs, as the row of create shows"), WorkerLed, V1)
	noElastic     = where(notApplicable("the coordinator of a coordinator-led job asks di-server for replicas; its tasks have no count to set"), CoordinatorLed)
	noCoordinator = where(notApplicable("protocol v1alpha1 names the coordinator of the job, and a worker-led job has none"), WorkerLed, V1)
	otherProtocol = where(refused("is coordinator-led: use /v1alpha1/"), CoordinatorLed, V2)
)

// Capabilities returns the rows of the table.
func Capabilities() []Capability {
	return slices.Concat(ofJobs(), ofSizes(), ofReplicas(), ofEnds(), ofReports())
}

// ofJobs are the rows about a job as an object.
func ofJobs() []Capability {
	return []Capability{
		{"create", "creates", "the job exists and its pods run", []rule{
			fromOutside,
			where(refused(`cannot create resource "dijobs"`), View),
			where(refused("makes the job worker-led, so its tasks exist only in v2alpha1: write the job in that version"), WorkerLed, V1),
		}},
		{"read in the other version", "reads in the other version, after it was written,", "the other version shows the group and the lifecycle", []rule{
			fromOutside, noV1Workers,
		}},
		{"edit through the other version", "edits through the other version", "both versions show the new group", []rule{
			fromOutside, noV1Workers, viewPatches,
			where(refused("this job is worker-led: v1alpha1 shows it and cannot change its spec"), WorkerLed, V2),
		}},
		{"suspend", "suspends", "the job has no pods, and condition Suspended is True", []rule{fromOutside, viewPatches, readOnly}},
		{"resume", "resumes", "a suspended job gets its pods", []rule{fromOutside, viewPatches, readOnly}},
		{"describe", "describes by kubectl di", "the command prints phase and replicas", []rule{fromOutside, onlyV2}},
		{"show on the page", "opens on the page of kubectl di ui", "the answer of the page's API has the pods", []rule{fromOutside, onlyV2}},
		{"suspend on the page", "suspends on the page of kubectl di ui", "the job has no pods, and condition Suspended is True", []rule{
			fromOutside, onlyV2, viewPatches,
		}},
		{"delete", "deletes", "job and pods are gone", []rule{
			fromOutside, where(refused(`cannot delete resource "dijobs"`), View),
		}},
	}
}

// ofSizes are the ways to resize a job.
func ofSizes() []Capability {
	plain := func(r ...rule) []rule { return append([]rule{fromOutside}, r...) }
	return []Capability{
		{"resize by the task's count", "resizes by its task's count", "the elastic task grows to two replicas, and shrinks to one", plain(viewPatches, noElastic, readOnly)},
		{"resize by the elastic count", "resizes by its elastic count", "the same", plain(viewPatches, noElastic, readOnly)},
		{"resize by kubectl scale", "scales by kubectl scale", "the same", plain(
			where(notApplicable("v1alpha1 has no scale subresource"), V1), noElastic, where(refused(`cannot patch resource "dijobs/scale"`), View))},
		{"resize by kubectl di scale", "scales by kubectl di scale", "the same", plain(
			onlyV2, where(refused("coordinator-led, and its coordinator decides about its replicas"), CoordinatorLed), where(refused(`dijobs/scale`), View))},
		{"resize by an autoscaler", "resizes by a HorizontalPodAutoscaler", "the elastic task grows to the autoscaler's minimum", plain(
			onlyV2, noElastic, where(refused(`cannot create resource "horizontalpodautoscalers"`), View))},
		{"resize by the status", "resizes by the total in the status of", "", plain(
			noElastic, where(refused(`cannot patch resource "dijobs/status"`), Admin, Edit, View))},
		{"resize by a ScalePlan", "resizes by a ScalePlan", "the plan succeeds, and the task has its replicas", plain(onlyV2, viewPlans)},
		{"resize by kubectl di plan", "resizes by kubectl di plan", "the same", plain(onlyV2, viewPlans)},
		{"resize by kubectl di add and delete", "resizes by kubectl di add and delete", "the task grows by one replica and shrinks again", plain(
			onlyV2, where(refused(`cannot create resource "serviceaccounts/token"`), View))},
		{"resize by di-server", "asks di-server for a replica and gives it up again of", "each answer arrives within 20 seconds; the task grows by one replica and shrinks again",
			[]rule{
				noCoordinator, where(refused("may not create dijobs/replicas"), View), otherProtocol,
			}},
		{"resize by the Python library", "resizes by the Python library", "the same", []rule{
			noCoordinator,
			where(notApplicable("each class of the library has one protocol, and refuses the other lifecycle itself"), CoordinatorLed, V2),
			where(notApplicable("a training program calls as its pod; the row of di-server shows the others"), Admin, Edit, View, Deployed),
		}},
	}
}

// ofReplicas are the rows about single replicas.
func ofReplicas() []Capability {
	return []Capability{
		{"restart a replica", "restarts a replica, by deleting its pod, of", "another pod takes its place: with its name and rank, or as a new member", []rule{
			fromOutside,
			where(notApplicable("pods are the same in both versions"), V1),
			where(refused(`cannot delete resource "pods"`), View),
		}},
		{"replace a replica by kubectl di restart", "replaces a replica by kubectl di restart of", "a pod with a new name takes its place", []rule{
			fromOutside, onlyV2, where(refused("its protocol has no restart: delete the pod, and it is recreated"), WorkerLed),
			where(refused(`cannot create resource "serviceaccounts/token"`), View),
		}},
		{"report a failed replica", "reports a replica as failed to di-server of", "a pod with a new name takes its place", []rule{
			where(notApplicable("protocol v2alpha1 has no such call: the operator sees pods that fail"), WorkerLed),
			where(notApplicable("protocol v2alpha1 has no such call"), V2),
			where(refused("may not update dijobs/replicas"), View),
		}},
		{"addresses by rank", "lists the replicas by di-server of", "the list has the address of each replica, at its rank or by its role", []rule{
			noCoordinator, where(notApplicable("a coordinator-led job has no ranks"), CoordinatorLed, V2),
		}},
		{"ranks in pods", "finds its rank in the environment of", "DI_NODES lists all replicas by rank, and DI_RANK differs in each pod", []rule{
			where(notApplicable("only a pod has an environment"), Admin, Edit, View),
			where(notApplicable("a deployed client has the same environment as any pod"), Deployed),
			where(notApplicable("a coordinator-led job has no ranks"), CoordinatorLed), noV1Workers,
		}},
		{"aggregators", "asks di-server for a learner of two GPUs of", "an aggregator with its DDP learners exists, and the list shows the aggregator", []rule{
			where(notApplicable("only coordinator-led jobs have aggregators"), WorkerLed),
			where(notApplicable("protocol v2alpha1 has no aggregators"), V2),
			where(refused("may not create dijobs/replicas"), View),
		}},
	}
}

// ofEnds are the rows about how a job or its pods end.
func ofEnds() []Capability {
	end := []rule{fromOutside, asEdit, noV1Workers}
	return []Capability{
		{"fail by an exit code", "submits, and sees fail by exit code 3,", "phase Failed, and status.lastFailure has the exit code", end},
		{"fail by memory", "submits, and sees out of memory,", "phase Failed, and the failure has exit code 137 or reason OOMKilled", end},
		{"stall by an image", "submits, with an image that does not exist,", "condition ReplicasStalled with reason ImagePull", end},
		{"stall by a missing ConfigMap", "submits, with a ConfigMap that does not exist,", "condition ReplicasStalled with reason ContainerConfig", end},
		{"stall by a node that does not exist", "submits, for nodes that do not exist,", "condition ReplicasStalled with reason Unschedulable", end},
		{"stall by quota", "submits, beyond the quota of its namespace,", "condition ReplicaFailure with reason QuotaExceeded", end},
		{"finish", "submits, and sees succeed,", "phase Succeeded in both versions", end},
		{"clean up", "submits, with cleanPodPolicy All and ttlSecondsAfterFinished,", "pods, then the job, are gone", end},
	}
}

// ofReports are the rows about what a job reports.
func ofReports() []Capability {
	return []Capability{
		{"report", "reports profilings to di-server of", "status.profilings has the report", []rule{
			noCoordinator, where(refused("may not create dijobs/profilings"), View), otherProtocol,
		}},
	}
}
