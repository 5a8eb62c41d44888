// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit"
)

// These specs use the page in Chromium. web/e2e has what they do there.
var _ = Describe("The web page", Ordered, Serial, Label("web"), func() {
	const namespace, training, failing = "web", "cartpole", "mistaken"

	BeforeAll(func(ctx SpecContext) {
		makeNamespace(ctx, namespace)
		job := learningJob(namespace, training, "--min-round=6s")
		Expect(unstructured.SetNestedMap(job.Object, map[string]any{"task": "collector", "maxReplicas": int64(6)}, "spec", "elastic")).To(Succeed())
		submit(ctx, job)
		mistaken := learningJob(namespace, failing, "--no-such-flag")
		Expect(unstructured.SetNestedField(mistaken.Object, int64(0), "spec", "backoffLimit")).To(Succeed())
		Expect(unstructured.SetNestedField(mistaken.Object, "None", "spec", "cleanPodPolicy")).To(Succeed())
		submit(ctx, mistaken)
		Eventually(func(g Gomega) {
			g.Expect(getJob(ctx, g, namespace, training).Status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(getJob(ctx, g, namespace, failing).Status.Phase).To(Equal(v2alpha1.JobFailed))
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	})

	It("shows a job that trains, resizes it, and explains one that fails", func(ctx SpecContext) {
		page := exec.CommandContext(ctx, filepath.Join(buildPlugin(ctx), "kubectl-di"), "ui", "-n", namespace)
		inBrowser(ctx, "training.mjs", firstLine(page), namespace, training, failing)
	}, SpecTimeout(2*patience))

	It("serves users with their own tokens in the cluster", func(ctx SpecContext) {
		const user = "trainer"
		clusterOutput(ctx, "load-image", filepath.Join(testkit.Root(), "out", "kubectl-di.tar"))
		port := freePort(ctx)
		createCertificate(ctx)
		helmOutput(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--wait", helmWaiting(),
			"--set", "web.enabled=true,web.tls.secretName=web,web.hosts={localhost:"+port+"}")
		DeferCleanup(func(ctx SpecContext) {
			helmOutput(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--wait", helmWaiting(), "--set", "web.enabled=false")
		})
		kubectlOutput(ctx, "create", "serviceaccount", user, "--namespace="+namespace)
		kubectlOutput(ctx, "create", "rolebinding", user, "--clusterrole=edit", "--serviceaccount="+namespace+":"+user, "--namespace="+namespace)
		token := strings.TrimSpace(kubectlOutput(ctx, "create", "token", user, "--namespace="+namespace))
		forward := exec.CommandContext(ctx, kubectl, "port-forward", "service/di-orchestrator-web", port+":443", "--namespace="+names.SystemNamespace)
		firstLine(forward)
		inBrowser(ctx, "incluster.mjs", "https://localhost:"+port, token, training)
	}, SpecTimeout(3*patience))
})

// learningJob returns the example of a worker-led job with another argument of its learner.
func learningJob(namespace, name, arg string) *unstructured.Unstructured {
	GinkgoHelper()
	job := readManifest("v2alpha1.yaml")
	job.SetNamespace(namespace)
	job.SetName(name)
	addArgs(podSpecs(job)["learner"], arg)
	return job
}

// firstLine starts a program until the spec ends, and returns the first line of its output.
func firstLine(command *exec.Cmd) string {
	GinkgoHelper()
	output, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	command.Stderr = GinkgoWriter
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(command.Process.Kill()).To(Succeed())
		// It was killed.
		_ = command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(line)
}

// inBrowser runs a script of web/e2e.
func inBrowser(ctx context.Context, script string, args ...string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "node", append([]string{"e2e/" + script}, args...)...)
	command.Dir, command.Stdout, command.Stderr = filepath.Join(testkit.Root(), "web"), GinkgoWriter, GinkgoWriter
	Expect(command.Run()).To(Succeed())
}

// freePort returns a port that nothing listens on.
func freePort(ctx context.Context) string {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	Expect(err).NotTo(HaveOccurred())
	address, isTCP := listener.Addr().(*net.TCPAddr)
	Expect(isTCP).To(BeTrue(), fmt.Sprint(listener.Addr()))
	Expect(listener.Close()).To(Succeed())
	return strconv.Itoa(address.Port)
}

// createCertificate creates the Secret with the certificate of the page.
func createCertificate(ctx context.Context) {
	GinkgoHelper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}
	_, err = core.CoreV1().Secrets(names.SystemNamespace).Create(ctx, secret, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(core.CoreV1().Secrets(names.SystemNamespace).Delete(ctx, secret.Name, metav1.DeleteOptions{})).To(Succeed())
	})
}
