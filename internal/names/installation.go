// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import "opendilab.org/di-orchestrator/apis/v2alpha1"

// The objects by which the API server is led to the webhooks.
const (
	// WebhookAuthority is the Secret of the operators' certificate authority.
	WebhookAuthority = "di-orchestrator-webhook-ca"
	// MutatingWebhooks is the MutatingWebhookConfiguration.
	MutatingWebhooks = "di-orchestrator-mutating"
	// ValidatingWebhooks is the ValidatingWebhookConfiguration.
	ValidatingWebhooks = "di-orchestrator-validating"
	// DIJobDefinition is the CustomResourceDefinition of DIJobs.
	DIJobDefinition = "dijobs." + v2alpha1.GroupName
)
