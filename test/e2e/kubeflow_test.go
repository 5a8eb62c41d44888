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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeflowImage is the image of the replacement for programs that were written for kubeflow.
const kubeflowImage = "kubeflow:e2e"

// These specs build an image and load it as the local cluster requires.
var _ = Describe("Jobs that were written for kubeflow", Ordered, Label("kubeflow", twoNodes), func() {
	const namespace = "kubeflow"
	var plugins string

	BeforeAll(func(ctx SpecContext) {
		loadImage(ctx, kubeflowImage, "./test/e2e/kubeflow")
		plugins = buildPlugin(ctx)
		makeNamespace(ctx, namespace)
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, namespace, []string{"get", "dijobs,pods", "--output=wide"}, []string{"logs", "--selector=diengine/operator", "--prefix", "--tail=40"})
		}
	})

	DescribeTable("are imported as they are, and their replicas find each other", func(ctx SpecContext, file, job string, succeeding ...string) {
		manifest, err := os.ReadFile(filepath.Join("testdata", file))
		Expect(err).NotTo(HaveOccurred())
		convert := exec.CommandContext(ctx, filepath.Join(plugins, "kubectl-di"), "convert", "-f", "-")
		convert.Stdin = strings.NewReader(strings.ReplaceAll(string(manifest), "IMAGE", kubeflowImage))
		imported, err := convert.Output()
		Expect(err).NotTo(HaveOccurred())
		applyContent(ctx, namespace, string(imported))
		expectJobSucceeded(ctx, namespace, job)
		// The manifest defines which replicas decide. All have the same cluster spec.
		for _, pod := range succeeding {
			Eventually(func(g Gomega) {
				found, err := core.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found.Status.Phase).To(Equal(corev1.PodSucceeded), pod)
			}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		}
	},
		Entry("a TFJob", "tfjob.yaml", "tf-mnist", "tf-mnist-chief-0", "tf-mnist-worker-0", "tf-mnist-worker-1"),
		Entry("a PyTorchJob", "pytorchjob.yaml", "torch-mnist", "torch-mnist-master-0", "torch-mnist-worker-0", "torch-mnist-worker-1"),
	)
})
