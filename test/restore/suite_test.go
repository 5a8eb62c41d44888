// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restore simulates operational incidents on a real API server. Tools that do not support
// conversion restore jobs from a backup while the operator is down. Users apply old definitions and
// old manifests again.
package restore

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/webhooks"
	"opendilab.org/di-orchestrator/webhook"
)

const (
	group     = "diengine.opendilab.org"
	v1        = "v1alpha1"
	v2        = "v2alpha1"
	namespace = "default"
)

func TestRestore(t *testing.T) {
	t.Parallel()
	specs.Run(t, "Restoring what was lost or overwritten, through a real API server")
}

// site is a cluster whose webhooks start and stop.
type site struct {
	client.Client
	environment *testkit.API
}

// newSite starts a cluster with webhook configurations that no program serves.
func newSite(ctx context.Context) *site {
	GinkgoHelper()
	environment := specs.Must(testkit.StartAPI(ctx))
	DeferCleanup(environment.Stop)
	Expect(webhooks.InstallConfigurations(ctx, environment.Config)).To(Succeed())
	api := specs.Must(testkit.NewClient(environment.Config))
	return &site{Client: api, environment: environment}
}

// serve starts the webhooks and returns when the API server calls them.
func (s *site) serve(ctx context.Context) (stop func()) {
	GinkgoHelper()
	listener := specs.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	account := specs.Must(s.environment.As(testkit.Webhook))
	server := specs.Must(webhook.New(webhook.Options{
		Config: account, URL: "https://" + listener.Addr().String(), Listener: listener, Log: GinkgoLogr,
	}))
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	stop = sync.OnceFunc(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
	})
	DeferCleanup(stop)
	Expect(server.WaitPublished(ctx)).To(Succeed())
	Expect(webhooks.WaitCalled(ctx, s.environment.Config)).To(Succeed())
	return stop
}

// kubectl runs kubectl of the test's assets. If an object is given, it is passed in a file.
func (s *site) kubectl(ctx context.Context, object *unstructured.Unstructured, args ...string) (string, error) {
	GinkgoHelper()
	if object != nil {
		raw := specs.Must(object.MarshalJSON())
		file := filepath.Join(GinkgoT().TempDir(), "object.json")
		Expect(os.WriteFile(file, raw, 0o600)).To(Succeed())
		args = append(args, "-f", file)
	}
	return specs.Kubectl(ctx, s.environment.KubeConfig, args...)
}

// read reads a job in a version.
func (s *site) read(ctx context.Context, version, name string) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: "DIJob"})
	return found, s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
}

// get reads an existing job.
func (s *site) get(ctx context.Context, version, name string) *unstructured.Unstructured {
	GinkgoHelper()
	return specs.GetJob(ctx, s, version, namespace, name)
}

// definition reads the definition of DIJobs.
func (s *site) definition(ctx context.Context) *unstructured.Unstructured {
	GinkgoHelper()
	found := specs.Definition(webhook.CRD)
	Expect(s.Get(ctx, client.ObjectKeyFromObject(found), found)).To(Succeed())
	return found
}
