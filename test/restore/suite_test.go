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
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit"
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
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(testkit.Patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	logf.SetLogger(GinkgoLogr)
	RunSpecs(t, "Restoring what was lost or overwritten, through a real API server")
}

// site is a cluster whose webhooks start and stop.
type site struct {
	client.Client
	environment *testkit.API
	kubeconfig  string
}

// newSite starts a cluster with webhook configurations that no program serves.
func newSite(ctx context.Context) *site {
	GinkgoHelper()
	environment, err := testkit.StartAPI(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)
	Expect(webhooks.InstallConfigurations(ctx, environment.Config)).To(Succeed())
	api, err := testkit.NewClient(environment.Config)
	Expect(err).NotTo(HaveOccurred())
	s := &site{Client: api, environment: environment, kubeconfig: filepath.Join(GinkgoT().TempDir(), "kubeconfig")}
	Expect(os.WriteFile(s.kubeconfig, environment.KubeConfig, 0o600)).To(Succeed())
	return s
}

// serve starts the webhooks and returns when the API server calls them.
func (s *site) serve(ctx context.Context) (stop func()) {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	account, err := s.environment.As(testkit.Webhook)
	Expect(err).NotTo(HaveOccurred())
	server, err := webhook.New(webhook.Options{
		Config: account, URL: "https://" + listener.Addr().String(), Listener: listener, Log: GinkgoLogr,
	})
	Expect(err).NotTo(HaveOccurred())
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
		raw, err := object.MarshalJSON()
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "object.json")
		Expect(os.WriteFile(file, raw, 0o600)).To(Succeed())
		args = append(args, "-f", file)
	}
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv(testkit.AssetsVariable), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	out, err := command.CombinedOutput()
	return string(out), err
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
	found, err := s.read(ctx, version, name)
	Expect(err).NotTo(HaveOccurred())
	return found
}

// definition reads the definition of DIJobs.
func (s *site) definition(ctx context.Context) *unstructured.Unstructured {
	GinkgoHelper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	Expect(s.Get(ctx, client.ObjectKey{Name: webhook.CRD}, found)).To(Succeed())
	return found
}

// job returns a job of a version as decoded by clients: whole numbers are int64.
func job(version, name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	raw, err := yaml.YAMLToJSON([]byte("spec:\n" + spec))
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	Expect(utiljson.Unmarshal(raw, &object.Object)).To(Succeed())
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: "DIJob"})
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}
