// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/webhooks"
)

var (
	api *webhooks.API
	c   client.Client
)

func TestWebhooks(t *testing.T) {
	t.Parallel()
	RegisterFailHandler(Fail)
	logf.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(testkit.Patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Conversion, defaulting and validation through a real API server")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	api, err = webhooks.StartAPIWithWebhooks(ctx)
	Expect(err).NotTo(HaveOccurred())
	// The API server has no other clients.
	config := rest.CopyConfig(api.Config)
	config.QPS = -1
	c, err = client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	if api != nil {
		Expect(api.Stop()).To(Succeed())
	}
})

func read(manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	// Decode like clients do: integers are int64.
	Expect(utiljson.Unmarshal(raw, &object.Object)).To(Succeed())
	return object
}

// job returns a job of the version in the namespace.
func job(version, namespace, name, content string) *unstructured.Unstructured {
	GinkgoHelper()
	object := read(content)
	object.SetAPIVersion("diengine.opendilab.org/" + version)
	object.SetKind("DIJob")
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// newNamespace creates a namespace of its own for each spec.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	namespace.GenerateName = "jobs-"
	Expect(c.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// get reads a job in a version.
func get(ctx context.Context, version, namespace, name string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "diengine.opendilab.org", Version: version, Kind: "DIJob"})
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
	return object
}

// content returns a decoded YAML document.
func content(manifest string) any {
	GinkgoHelper()
	return read("part: " + manifest).Object["part"]
}

// kubectl runs the test assets' kubectl against an API server.
func kubectl(ctx context.Context, kubeconfig []byte, args ...string) (string, error) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(file, kubeconfig, 0o600)).To(Succeed())
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv(testkit.AssetsVariable), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+file)
	out, err := command.CombinedOutput()
	return string(out), err
}
