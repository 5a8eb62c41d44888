// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"strconv"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/webhooks"
)

var (
	api *webhooks.API
	c   client.Client
)

func TestWebhooks(t *testing.T) {
	t.Parallel()
	specs.Run(t, "Conversion, defaulting and validation through a real API server")
}

var _ = BeforeSuite(func(ctx context.Context) {
	api = specs.Must(webhooks.StartAPIWithWebhooks(ctx))
	// The API server has no other clients.
	config := rest.CopyConfig(api.Config)
	config.QPS = -1
	c = specs.Must(client.New(config, client.Options{}))
})

var _ = AfterSuite(func() {
	if api != nil {
		Expect(api.Stop()).To(Succeed())
	}
})

// content returns a decoded YAML document.
func content(manifest string) any {
	GinkgoHelper()
	return specs.Object("part: " + manifest).Object["part"]
}

// minor returns the minor version of the API server.
func minor() int {
	GinkgoHelper()
	return specs.Must(strconv.Atoi(specs.Must(discovery.NewDiscoveryClientForConfigOrDie(api.Config).ServerVersion()).Minor))
}
