// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

// What earlier releases are installed as, all in one namespace. v1.1.0 to v1.1.3
// have no webhooks.
const (
	// EarlierOperator is the Deployment of their operator.
	EarlierOperator = "di-operator"
	// EarlierWebhook is the Deployment of their webhooks.
	EarlierWebhook = "di-webhook"
	// EarlierServer is the Deployment of their di-server, whose pods the Service
	// di-server selects beside ours.
	EarlierServer = "di-server"
	// EarlierNodePort is the Service by which v0.2.2's di-server is called from
	// outside of the cluster.
	EarlierNodePort = "di-server-nodeport"
	// EarlierMutating and EarlierValidating are their webhook configurations.
	EarlierMutating   = "di-mutating-webhook-configuration"
	EarlierValidating = "di-validating-webhook-configuration"
	// EarlierWebhookService is the Service that their webhooks are reached by.
	EarlierWebhookService = "di-webhook-service"
	// EarlierCertificate is what cert-manager calls the certificate of their webhooks.
	EarlierCertificate = "di-serving-cert"
)
