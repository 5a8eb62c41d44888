// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	firstRelease = "v2.0.0"
	// firstValue is how long a user waits from the installation to a job that has trained.
	firstValue = time.Minute
)

// These specs replace the shared installation by the files of a release alone.
var _ = Describe("The files of a release", Ordered, Serial, Label("release"), func() {
	folder := filepath.Join(testkit.Root(), "out", "release")
	file := func(name string) string { return filepath.Join(folder, name) }
	here := strings.NewReplacer(
		"oci://ghcr.io/opendilab/charts/di-orchestrator --version 2.0.0", file("di-orchestrator-2.0.0.tgz"),
		"https://github.com/opendilab/DI-orchestrator/releases/download/v2.0.0", folder,
	)

	BeforeAll(func(ctx SpecContext) {
		build := exec.CommandContext(ctx, "make", "release", "VERSION="+firstRelease, "SNAPSHOT=1", "PLATFORMS=linux/amd64")
		build.Dir = testkit.Root()
		output, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		for _, image := range []string{"di-orchestrator", "cartpole"} {
			clusterOutput(ctx, "load-image", file(image+"_"+firstRelease+"_image.oci.tar"))
		}
	}, NodeTimeout(12*patience))
	BeforeEach(func(ctx SpecContext) {
		removeAll(ctx)
	}, NodeTimeout(patience))
	AfterEach(func(ctx SpecContext) {
		kubectlUntilDone(ctx, "delete", "dijob", "cartpole-workers", "--ignore-not-found", "--cascade=foreground", waiting())
	}, NodeTimeout(patience))
	AfterAll(func(ctx SpecContext) {
		removeAll(ctx)
		// Helm does not take over what kubectl made.
		kubectlOutput(ctx, "delete", "--filename="+file("di-orchestrator.yaml"), "--ignore-not-found", waiting())
		makeSystemNamespace(ctx)
		Expect(run.Install(ctx)).To(Succeed())
	}, NodeTimeout(2*patience))

	unpackPlugin := func(ctx SpecContext) string {
		GinkgoHelper()
		plugin := GinkgoT().TempDir()
		unpack := exec.CommandContext(ctx, "tar", "-xzf", file("kubectl-di_"+firstRelease+"_linux_amd64.tar.gz"), "-C", plugin)
		Expect(unpack.Run()).To(Succeed())
		return plugin
	}

	It("lead from helm install to a job that has trained within a minute", func(ctx SpecContext) {
		plugin := unpackPlugin(ctx)
		// The first steps are the installation and the sample.
		began := time.Now()
		Expect(follow(ctx, walk{page: "docs/quickstart.md", name: "quickstart", here: here, plugin: plugin, most: 2})).To(Equal(2))
		took := time.Since(began)
		AddReportEntry("from helm install to a trained job", took.Round(time.Second).String())
		Expect(took).To(BeNumerically("<", firstValue))
	}, NodeTimeout(2*patience)) // A limit of the spec would count the build of the release.

	It("let a user with role edit of one namespace follow the quickstart from the sample onward", func(ctx SpecContext) {
		const namespace, user = "quickstart-tenant", "quickstart-user"
		plugin := unpackPlugin(ctx)
		// An administrator installs, makes the namespace and binds the user's role.
		Expect(follow(ctx, walk{page: "docs/quickstart.md", name: "quickstart", here: here, plugin: plugin, most: 1})).To(Equal(1))
		kubectlOutput(ctx, "create", "namespace", namespace)
		DeferCleanup(func(ctx SpecContext) {
			kubectlOutput(ctx, "delete", "namespace", namespace, "--ignore-not-found", waiting())
		})
		kubectlOutput(ctx, "create", "rolebinding", "edit", "--clusterrole=edit", "--user="+user, "--namespace="+namespace)
		// Kubernetes adds the rules of the installation to role edit.
		kubectlUntilDone(ctx, "auth", "can-i", "create", "dijobs.diengine.opendilab.org", "--as="+user, "--namespace="+namespace)
		_, err := callKubectl(ctx, "auth", "can-i", "list", "pods", "--as="+user, "--namespace=di-system")
		Expect(err).To(HaveOccurred(), "the user has a right in the namespace of the installation")

		tenant := walk{
			page: "docs/quickstart.md", name: "quickstart", here: here, plugin: plugin, skip: 1,
			kubeconfig: kubeconfigOf(user, namespace),
		}
		Expect(follow(ctx, tenant)).To(BeNumerically(">", 5))
		left := kubectlOutput(ctx, "get", "dijobs", "--namespace="+namespace, "--output=name")
		Expect(left).To(BeEmpty())
	}, SpecTimeout(6*patience))

	It("install by kubectl apply of one file", func(ctx SpecContext) {
		kubectlOutput(ctx, "apply", "--server-side", "--force-conflicts", "--filename="+file("di-orchestrator.yaml"))
		expectServing(ctx, "ghcr.io/opendilab/di-orchestrator:"+firstRelease, firstRelease)
		sample, err := os.ReadFile(file("cartpole.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(sample)).To(ContainSubstring("image: ghcr.io/opendilab/cartpole:" + firstRelease))
		kubectlUntilDone(ctx, "apply", "--filename="+file("cartpole.yaml"))
		kubectlOutput(ctx, "wait", "dijob/cartpole-workers", "--for=jsonpath={.status.phase}=Succeeded", "--timeout="+patience.String())
	}, SpecTimeout(2*patience))
})

// kubeconfigOf writes a kubeconfig that impersonates a user in a namespace.
func kubeconfigOf(user, namespace string) string {
	GinkgoHelper()
	loaded, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	Expect(err).NotTo(HaveOccurred())
	Expect(clientcmdapi.MinifyConfig(loaded)).To(Succeed())
	Expect(clientcmdapi.FlattenConfig(loaded)).To(Succeed())
	for _, one := range loaded.Contexts {
		one.Namespace = namespace
	}
	for _, one := range loaded.AuthInfos {
		one.Impersonate = user
	}
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*loaded, path)).To(Succeed())
	return path
}
