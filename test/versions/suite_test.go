// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions tests through a real API server that a job is the same job in both versions, for
// writes, reads, watches, applies and deletions.
package versions

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/webhooks"
)

const (
	group = "diengine.opendilab.org"
	v1    = "v1alpha1"
	v2    = "v2alpha1"

	// timeout is how long a spec waits for the API server.
	timeout = testkit.Patience
)

var (
	api *webhooks.API
	c   client.WithWatch
	// operator has the permissions of the operator.
	operator client.WithWatch
	// reports counts the statuses that it has written.
	reports atomic.Int32
)

func TestVersions(t *testing.T) {
	t.Parallel()
	RegisterFailHandler(Fail)
	RunSpecs(t, "One job in two versions, through a real API server")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	api, err = webhooks.StartAPIWithWebhooks(ctx)
	Expect(err).NotTo(HaveOccurred())
	c, err = testkit.NewClient(api.Config)
	Expect(err).NotTo(HaveOccurred())
	account, err := api.As(testkit.Operator)
	Expect(err).NotTo(HaveOccurred())
	operator, err = testkit.NewClient(account)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	if api != nil {
		Expect(api.Stop()).To(Succeed())
	}
})

// other returns the other version.
func other(version string) string {
	if version == v1 {
		return v2
	}
	return v1
}

func kind(version, name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}
}

// fields decodes YAML as clients do: whole numbers are int64.
func fields(manifest string) map[string]any {
	GinkgoHelper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	Expect(err).NotTo(HaveOccurred())
	var object map[string]any
	Expect(utiljson.Unmarshal(raw, &object)).To(Succeed())
	return object
}

// job returns a job of the version in the namespace.
func job(version, namespace, name, manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{Object: fields(manifest)}
	object.SetGroupVersionKind(kind(version, "DIJob"))
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// create creates a job of the version and returns it as stored.
func create(ctx context.Context, version, namespace, name, manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	Expect(c.Create(ctx, job(version, namespace, name, manifest))).To(Succeed())
	return get(ctx, version, namespace, name)
}

// get reads a job in a version.
func get(ctx context.Context, version, namespace, name string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind(version, "DIJob"))
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
	return object
}

// part returns a member of an object that YAML describes.
func part(manifest, name string) any {
	GinkgoHelper()
	return fields(manifest)[name]
}

// newNamespace creates a namespace, which isolates the specs.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	namespace.GenerateName = "versions-"
	Expect(c.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// kubectl runs kubectl of the test's assets in a namespace with additional environment variables.
// It returns the output and whether the command failed.
func kubectl(ctx context.Context, namespace string, variables []string, args ...string) (string, error) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(file, api.KubeConfig, 0o600)).To(Succeed())
	program := filepath.Join(os.Getenv(testkit.AssetsVariable), "kubectl")
	command := exec.CommandContext(ctx, program, append([]string{"--namespace", namespace}, args...)...)
	command.Env = append(append(os.Environ(), "KUBECONFIG="+file), variables...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// withoutEmpty returns a value without members that are null or empty. Typed clients write those
// for all absent fields that they know.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, member := range value {
			if member = withoutEmpty(member); member != nil {
				kept[key] = member
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, item := range value {
			kept[i] = withoutEmpty(item)
		}
		return kept
	}
	return value
}

// expectSame expects equality and reports the fields in which two values differ.
func expectSame(want, got any) {
	GinkgoHelper()
	Expect(cmp.Diff(want, got)).To(BeEmpty(), "-want +got")
}
