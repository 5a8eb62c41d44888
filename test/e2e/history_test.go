// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
)

// This spec adds the history to the installation that all others share, and removes it again.
var _ = Describe("The history", Serial, Label("history"), func() {
	const namespace, trainer, stranger = "remembered", "trainer", "stranger"

	It("tells those who may read a job of it when it is gone", func(ctx SpecContext) {
		makeNamespace(ctx, namespace)
		addHistory(ctx)
		for user, role := range map[string]string{trainer: "view", stranger: ""} {
			kubectlOutput(ctx, "create", "serviceaccount", user, "--namespace="+namespace)
			if role != "" {
				kubectlOutput(ctx, "create", "rolebinding", user, "--clusterrole="+role, "--serviceaccount="+namespace+":"+user, "--namespace="+namespace)
			}
		}
		job := readManifest("v1alpha1-serial.yaml")
		job.SetNamespace(namespace)
		submit(ctx, job)
		reader := newHistoryReader(ctx)
		var found record.Job
		Eventually(func(g Gomega) {
			found = record.Job{}
			g.Expect(reader.get(ctx, g, trainer, namespace, job.GetName(), &found)).To(Equal(http.StatusOK))
			g.Expect(found.Replicas).NotTo(BeEmpty())
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		Expect(found.Version).To(Equal("v1alpha1"))
		Expect(found.Creator).NotTo(BeEmpty())

		kubectlOutput(ctx, "delete", dijobs, job.GetName(), "--namespace="+namespace, "--cascade=foreground", waiting())
		Eventually(func(g Gomega) {
			g.Expect(reader.get(ctx, g, trainer, namespace, job.GetName(), &found)).To(Equal(http.StatusOK))
			g.Expect(found.Ended.IsZero()).To(BeFalse())
		}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		Expect(reader.get(ctx, Default, stranger, namespace, job.GetName(), nil)).To(Equal(http.StatusNotFound))

		show := exec.CommandContext(ctx, filepath.Join(buildPlugin(ctx), "kubectl-di"), "history", "show", job.GetName(), "-n", namespace, "--service-account", trainer)
		page, err := show.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(page))
		Expect(string(page)).To(And(ContainSubstring("Written in:"), ContainSubstring(found.UID)))
	}, SpecTimeout(3*patience))

	It("optimizes a job for the operator", Label(autoscale), func(ctx SpecContext) {
		makeNamespace(ctx, namespace)
		addHistory(ctx)
		job := preemptibleJob(namespace, "asked", GinkgoT().TempDir())
		unstructured.RemoveNestedField(job.Object, "spec", "preemptible")
		Expect(unstructured.SetNestedField(job.Object, "Remote", "spec", "autoscale", "optimizer", "type")).To(Succeed())
		submit(ctx, job)
		DeferCleanup(func(ctx SpecContext) {
			kubectlOutput(ctx, "delete", dijobs, "asked", "--namespace="+namespace, waiting())
		})
		Eventually(func() string {
			return kubectlOutput(ctx, "get", dijobs, "asked", "--namespace="+namespace, "--output=jsonpath={.status.autoscaling.optimizer.message}")
		}).WithTimeout(2*patience).WithPolling(time.Second).Should(MatchRegexp("; the history has [^()]*$"), "it, and not the local optimizer, has decided")
	}, SpecTimeout(5*patience))
})

// addHistory adds the history with a volume on the node, because the local cluster provides none.
func addHistory(ctx SpecContext) {
	GinkgoHelper()
	kind, folder := corev1.HostPathDirectory, GinkgoT().TempDir()
	// Kubernetes does not give folders of nodes to the group of a pod.
	Expect(os.Chmod(folder, 0o777)).To(Succeed())
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "history"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{"storage": resource.MustParse("20Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: "by-hand", PersistentVolumeSource: corev1.PersistentVolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: folder, Type: &kind},
		},
	}}
	Expect(api.Create(ctx, volume)).To(Succeed())
	helmOutput(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--wait", helmWaiting(),
		"--set=history.enabled=true,history.persistence.storageClass=by-hand")
	DeferCleanup(func(ctx SpecContext) {
		helmOutput(ctx, "upgrade", demo.Release, chartFolder(), "--reuse-values", "--wait", helmWaiting(), "--set=history.enabled=false")
		kubectlOutput(ctx, "delete", "persistentvolumeclaim", "di-orchestrator-history", "--namespace="+names.SystemNamespace, waiting())
		kubectlOutput(ctx, "delete", "persistentvolume", "history", waiting())
	})
}

// historyReader calls the history as users do: by its certificate, with a token.
type historyReader struct {
	client *http.Client
	url    string
	tokens map[string]string
}

func newHistoryReader(ctx SpecContext) *historyReader {
	GinkgoHelper()
	port := freePort(ctx)
	firstLine(exec.CommandContext(ctx, kubectl, "port-forward", "service/di-history", port+":443", "--namespace="+names.SystemNamespace))
	bundle := &corev1.ConfigMap{}
	Expect(api.Get(ctx, types.NamespacedName{Namespace: names.SystemNamespace, Name: "di-orchestrator-server-ca"}, bundle)).To(Succeed())
	authorities := x509.NewCertPool()
	Expect(authorities.AppendCertsFromPEM([]byte(bundle.Data["ca.crt"]))).To(BeTrue())
	return &historyReader{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: authorities, ServerName: "di-history." + names.SystemNamespace + ".svc", MinVersion: tls.VersionTLS12,
		}}},
		url: "https://localhost:" + port + "/v1alpha1/history/jobs/", tokens: map[string]string{},
	}
}

// get reads a job into an object as a user, and returns the status of the answer.
func (r *historyReader) get(ctx context.Context, g Gomega, user, namespace, name string, into any) int {
	if r.tokens[user] == "" {
		output, err := exec.CommandContext(ctx, kubectl, "create", "token", user, "--namespace="+namespace).Output()
		g.Expect(err).NotTo(HaveOccurred())
		r.tokens[user] = strings.TrimSpace(string(output))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+namespace+"/"+name, nil)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+r.tokens[user])
	response, err := r.client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	if into != nil && response.StatusCode == http.StatusOK {
		g.Expect(json.NewDecoder(response.Body).Decode(into)).To(Succeed())
	}
	return response.StatusCode
}
