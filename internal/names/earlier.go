// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

// These are the names of an earlier release's objects, all in one namespace. v1.1.0 to v1.1.3 have
// no webhooks.
const (
	// EarlierOperator is the Deployment of the operator.
	EarlierOperator = "di-operator"
	// EarlierWebhook is the Deployment of the webhooks.
	EarlierWebhook = "di-webhook"
	// EarlierServer is the Deployment of di-server. The Service di-server selects its pods together
	// with those of this release.
	EarlierServer = "di-server"
	// EarlierNodePort is the Service by which clients outside of the cluster call v0.2.2's
	// di-server.
	EarlierNodePort = "di-server-nodeport"
	// EarlierMutating and EarlierValidating are the webhook configurations.
	EarlierMutating   = "di-mutating-webhook-configuration"
	EarlierValidating = "di-validating-webhook-configuration"
	// EarlierWebhookService is the Service of the webhooks.
	EarlierWebhookService = "di-webhook-service"
	// EarlierCertificate is the cert-manager Certificate of the webhooks.
	EarlierCertificate = "di-serving-cert"
)
