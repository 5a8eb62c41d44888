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
	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/test/demo"
)

const (
	// patience bounds every wait; on a machine at rest none takes a tenth of it.
	patience = testkit.Patience
	// trainingPatience bounds a training to its end, which is many rounds.
	trainingPatience = 3 * patience
	// rolloutPatience bounds what Helm waits for, which is several waits in a row.
	rolloutPatience = 2 * patience
)

// waiting is how long a program is to wait for one thing.
func waiting() string { return "--timeout=" + patience.String() }

// kubectlUntilDone repeats what the API server may refuse for a moment: it asks
// webhooks until it has heard that they are gone.
func kubectlUntilDone(ctx SpecContext, args ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		output, err := callKubectl(ctx, args...)
		g.Expect(err).NotTo(HaveOccurred(), output)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), strings.Join(args, " "))
}

// submit creates an object for whose admission our webhooks are asked. The API
// server may still keep a connection to an operator that is gone: the call that meets
// it fails, and is made again.
func submit(ctx context.Context, object client.Object) {
	GinkgoHelper()
	attempts := 0
	Eventually(func() error {
		attempts++
		err := api.Create(ctx, object)
		// An answer that was lost is no creation that was.
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

// applyContent applies a manifest, until it is admitted.
func applyContent(ctx context.Context, namespace, content string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		apply := exec.CommandContext(ctx, kubectl, "--namespace="+namespace, "apply", "--filename=-")
		apply.Stdin = strings.NewReader(content)
		output, err := apply.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(output))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// expectAdmitting waits until jobs are admitted, of whatever name: those of other
// specs may still be there.
func expectAdmitting(ctx SpecContext) {
	job := readManifest("v2alpha1.yaml")
	job.SetName("")
	job.SetGenerateName("admitted-")
	job.SetNamespace(metav1.NamespaceDefault)
	Eventually(func(ctx context.Context) error {
		return api.Create(ctx, job.DeepCopy(), client.DryRunAll)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed(), diagnostics(ctx, "jobs are admitted"))
}

// expectRolledOut waits until all replicas of our programs are ready.
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

// deleteNamespace removes a namespace with all that is in it.
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

// diagnostics describes a failed clean-up: what was awaited, and the state of the cluster. No
// AfterEach comes after it.
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

// kubectlReport returns what kubectl prints, whatever that is.
func kubectlReport(ctx SpecContext, args ...string) string {
	output, _ := exec.CommandContext(ctx, kubectl, append(args, "--request-timeout=1m")...).CombinedOutput()
	return "\n$ kubectl " + strings.Join(args, " ") + "\n" + string(output)
}
