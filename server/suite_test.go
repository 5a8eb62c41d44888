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
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
)

func TestServer(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(testkit.Patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "di-server on a real API server")
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
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	environment, err := testkit.StartAPI(started)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)

	environment.Config.QPS = -1
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v2alpha1.AddToScheme(scheme)).To(Succeed())
	api.live, err = client.NewWithWatch(environment.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	account, err := environment.As(testkit.Server)
	Expect(err).NotTo(HaveOccurred())
	api.own, err = client.NewWithWatch(account, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	options := store.CacheOptions()
	options.Scheme = scheme
	api.cache, err = cache.New(account, options)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	Expect(store.SetupIndexes(ctx, api.cache)).To(Succeed())
	stopped := make(chan error, 1)
	go func() { stopped <- api.cache.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(stopped).Should(Receive(BeNil()))
	})
	api.cached, err = client.New(account, client.Options{
		Scheme: scheme,
		Cache:  &client.CacheOptions{Reader: api.cache},
	})
	Expect(err).NotTo(HaveOccurred())

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
