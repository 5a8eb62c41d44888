// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package specs has what the suites of Ginkgo share: their settings, and the steps without which a spec
// cannot continue. A failed step fails the spec at the line that calls it.
package specs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/test/testkit"
)

// Run runs the specs of a package. They log only if they fail, and wait as long as a loaded machine needs.
func Run(t *testing.T, name string) {
	t.Helper()
	RegisterFailHandler(Fail)
	log.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(testkit.Patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, name)
}

// Must returns the value of a call that must succeed.
func Must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// Namespace creates a namespace, which isolates a spec, and returns its name.
func Namespace(ctx context.Context, api client.Client) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(api.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// Get reads an object that exists. Cluster-scoped objects have no namespace.
func Get[T any, O interface {
	*T
	client.Object
}](ctx context.Context, api client.Reader, namespace, name string) O {
	GinkgoHelper()
	object := O(new(T))
	Expect(api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)).To(Succeed())
	return object
}

// List reads a list of objects.
func List[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, api client.Reader, options ...client.ListOption) L {
	GinkgoHelper()
	list := L(new(T))
	Expect(api.List(ctx, list, options...)).To(Succeed())
	return list
}

// Kubectl runs the kubectl of the test's assets, and returns its output.
func Kubectl(ctx context.Context, kubeconfig []byte, args ...string) (string, error) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(file, kubeconfig, 0o600)).To(Succeed())
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv(testkit.AssetsVariable), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+file)
	output, err := command.CombinedOutput()
	return string(output), err
}
