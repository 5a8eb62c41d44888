// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e tests the demo's promises on the cluster of the kubeconfig: real API server, real
// kubelet, real containers.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit"
)

func TestEndToEnd(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	RegisterFailHandler(Fail)
	RunSpecs(t, "End to end")
}

var (
	cluster *rest.Config
	core    kubernetes.Interface
	api     client.Client
	kubectl string
	helm    string
	run     *demo.Demo
)

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = config.GetConfig()
	Expect(err).NotTo(HaveOccurred())
	core, err = kubernetes.NewForConfig(cluster)
	Expect(err).NotTo(HaveOccurred())
	Expect(v2alpha1.AddToScheme(scheme.Scheme)).To(Succeed())
	api, err = client.New(cluster, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	kubectl, err = exec.LookPath("kubectl")
	Expect(err).NotTo(HaveOccurred())
	helm, err = exec.LookPath("helm")
	Expect(err).NotTo(HaveOccurred())
	run, err = demo.New(demo.Options{Config: cluster, Kubectl: kubectl, Helm: helm, Root: testkit.Root(), Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	Expect(run.Install(ctx)).To(Succeed())
})

// A log of CI may keep only its end, so the reasons of all failures are repeated there.
var _ = ReportAfterSuite("reasons", func(report Report) {
	for i := range report.SpecReports {
		if spec := &report.SpecReports[i]; spec.Failed() {
			fmt.Fprintf(os.Stdout, "\nfailed: %s\n%.4000s\n", spec.FullText(), spec.FailureMessage())
		}
	}
})
