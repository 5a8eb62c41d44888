// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	// patience is the timeout of every wait. On an idle machine none takes a tenth of it.
	patience = testkit.Patience
	// trainingPatience is the timeout of a complete training, which has many rounds.
	trainingPatience = 3 * patience
	// rolloutPatience is the timeout of Helm, which waits several times in a row.
	rolloutPatience = 2 * patience
)

// waiting returns the flag with a program's timeout for a single wait.
func waiting() string { return "--timeout=" + patience.String() }

// kubectlUntilDone retries commands that the API server may reject for a moment: it calls deleted
// webhooks until its watch delivers the deletion.
func kubectlUntilDone(ctx SpecContext, args ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		output, err := callKubectl(ctx, args...)
		g.Expect(err).NotTo(HaveOccurred(), output)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), strings.Join(args, " "))
}

// submit creates an object that the webhooks admit. The API server may still have an open
// connection to a deleted operator. A call over it fails and is retried.
func submit(ctx context.Context, object client.Object) {
	GinkgoHelper()
	attempts := 0
	Eventually(func() error {
		attempts++
		err := api.Create(ctx, object)
		// The answer of an earlier, successful attempt may have been lost.
		if attempts > 1 && apierrors.IsAlreadyExists(err) {
			return nil
		}
		if apierrors.IsInvalid(err) {
			return StopTrying(err.Error())
		}
		return err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), "creating %s %s",
		object.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(object))
}

// applyContent applies a manifest and retries until it is admitted.
func applyContent(ctx context.Context, namespace, content string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		apply := exec.CommandContext(ctx, kubectl, "--namespace="+namespace, "apply", "--filename=-")
		apply.Stdin = strings.NewReader(content)
		output, err := apply.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(output))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// expectAdmitting waits until jobs of any name are admitted. Jobs of other specs may still exist.
func expectAdmitting(ctx SpecContext) {
	job := readManifest("v2alpha1.yaml")
	job.SetName("")
	job.SetGenerateName("admitted-")
	job.SetNamespace(metav1.NamespaceDefault)
	Eventually(func(ctx context.Context) error {
		return api.Create(ctx, job.DeepCopy(), client.DryRunAll)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), diagnostics(ctx, "jobs are admitted"))
}

// expectRolledOut waits until all replicas of the project's programs are ready.
func expectRolledOut(ctx SpecContext) {
	for _, name := range demo.Deployments() {
		Eventually(func(g Gomega) {
			deployment, err := core.AppsV1().Deployments(names.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			status := deployment.Status
			g.Expect(status.ObservedGeneration).To(Equal(deployment.Generation))
			g.Expect([]int32{status.Replicas, status.UpdatedReplicas, status.AvailableReplicas}).To(HaveEach(*deployment.Spec.Replicas), "%+v", status)
		}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), diagnostics(ctx, "deployment "+name+" is rolled out"))
	}
}

// deleteNamespace deletes a namespace with its contents.
func deleteNamespace(ctx SpecContext, name string) {
	Eventually(func(g Gomega) {
		err := core.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "namespace %s is still there: %v", name, err)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), func() string {
		return diagnostics(ctx, "namespace "+name+" is deleted")() +
			kubectlReport(ctx, "get", "namespace", name, "--output=yaml") +
			kubectlReport(ctx, "get", dijobs+",memberships,pods,services", "--namespace="+name, "--output=wide")
	})
}

// diagnostics describes a failed clean-up: the awaited state and the state of the cluster. No
// AfterEach runs after it.
func diagnostics(ctx SpecContext, awaited string) func() string {
	return func() string {
		return awaited + "\n" +
			kubectlReport(ctx, "get", "nodes", "--output=wide") +
			kubectlReport(ctx, "get", "nodes", `--output=jsonpath={range .items[*]}{.metadata.name} {.spec.taints}{"\n"}{end}`) +
			kubectlReport(ctx, "get", "pods", "--all-namespaces", "--output=wide") +
			kubectlReport(ctx, "get", "deployments", "--namespace="+names.SystemNamespace, "--output=wide") +
			kubectlReport(ctx, "get", "events", "--namespace="+names.SystemNamespace, "--sort-by=.lastTimestamp") +
			kubectlReport(ctx, "logs", "--namespace="+names.SystemNamespace, "--selector="+operatorPods, "--tail=40", "--prefix") +
			kubectlReport(ctx, "logs", "--namespace="+names.SystemNamespace, "--selector="+webhookPods, "--tail=40", "--prefix")
	}
}

// kubectlReport returns the output of kubectl, even if it fails.
func kubectlReport(ctx SpecContext, args ...string) string {
	output, _ := exec.CommandContext(ctx, kubectl, append(args, "--request-timeout=1m")...).CombinedOutput()
	return "\n$ kubectl " + strings.Join(args, " ") + "\n" + string(output)
}
