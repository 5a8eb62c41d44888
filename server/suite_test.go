// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

func TestServer(t *testing.T) {
	specs.Run(t, "di-server on a real API server")
}

// cluster is the API server of all specs, with the clients of a server.
type cluster struct {
	// live reads and writes without a cache.
	live client.WithWatch
	// own is a client without a cache that has the permissions of di-server.
	own client.WithWatch
	// cached reads from the synced cache and writes to the API server.
	cached client.Client
	cache  cache.Cache
}

var api cluster

var _ = BeforeSuite(func(started SpecContext) {
	environment := specs.Must(testkit.StartAPI(started))
	DeferCleanup(environment.Stop)

	api.live = specs.Must(testkit.NewClient(environment.Config))
	account := specs.Must(environment.As(testkit.Server))
	api.own = specs.Must(testkit.NewClient(account))

	options := store.CacheOptions()
	options.Scheme = api.live.Scheme()
	api.cache = specs.Must(cache.New(account, options))
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	Expect(store.SetupIndexes(ctx, api.cache)).To(Succeed())
	stopped := make(chan error, 1)
	go func() { stopped <- api.cache.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(stopped).Should(Receive(BeNil()))
	})
	api.cached = specs.Must(client.New(account, client.Options{
		Scheme: options.Scheme,
		Cache:  &client.CacheOptions{Reader: api.cache},
	}))

	// With two nodes of 8 GPUs, a learner of 10 is split into 8 and 2.
	for _, name := range []string{"node-a", "node-b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(api.live.Create(ctx, node)).To(Succeed())
		node.Status.Allocatable = corev1.ResourceList{names.DefaultGPU: resource.MustParse("8")}
		Expect(api.live.Status().Update(ctx, node)).To(Succeed())
		Eventually(func(g Gomega) {
			var seen corev1.Node
			g.Expect(api.cached.Get(ctx, client.ObjectKeyFromObject(node), &seen)).To(Succeed())
			g.Expect(seen.Status.Allocatable).NotTo(BeEmpty())
		}).Should(Succeed())
	}
})
