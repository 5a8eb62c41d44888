// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// The names of objects of an installation.
const (
	// WebhookAuthority is the Secret of the webhooks' certificate authority.
	WebhookAuthority = "di-orchestrator-webhook-ca"
	// ServerBundle is the ConfigMap of the CA bundle for clients of di-server and of the history.
	ServerBundle = "di-orchestrator-server-ca"
	// ServerBundleKey is its key.
	ServerBundleKey = "ca.crt"
	// MutatingWebhooks is the MutatingWebhookConfiguration.
	MutatingWebhooks = "di-orchestrator-mutating"
	// ValidatingWebhooks is the ValidatingWebhookConfiguration.
	ValidatingWebhooks = "di-orchestrator-validating"
	// AllocationGroups is the ConfigMap with the histories of groups of jobs, in the operator's namespace.
	AllocationGroups = "di-orchestrator-allocation-groups"
	// DIJobDefinition is the CustomResourceDefinition of DIJobs.
	DIJobDefinition = "dijobs." + v2alpha1.GroupName
)

// MayNameAggregatorConfig reports whether jobs of a namespace may name an AggregatorConfig. Its
// template becomes pods of such a job, and the job's users can read its content. All jobs may name
// the cluster-wide AggregatorConfig.
func MayNameAggregatorConfig(jobNamespace string, config *v2alpha1.AggregatorConfig, isClusters bool) bool {
	if isClusters || config.Namespace == jobNamespace {
		return true
	}
	shared := strings.Split(strings.ReplaceAll(config.Annotations[AnnotationSharedWith], " ", ""), ",")
	return slices.Contains(shared, "*") || slices.Contains(shared, jobNamespace)
}
