// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

// giveBack returns the cluster to v0.2.2, which recognizes each job and pod.
func (t *takenOver) giveBack(ctx context.Context) {
	GinkgoHelper()
	t.awaitStored(ctx, "v2alpha1")
	output, err := t.kubectlDI(ctx, "migrate", "--to", "v1alpha1")
	Expect(err).NotTo(HaveOccurred(), output)
	t.awaitStored(ctx, "v1alpha1")
	t.mustHelm(ctx, "HELM3", "uninstall", "di-orchestrator", "--wait")
	t.expectSameDefinitions(ctx, t.kept)

	By("applying what v0.2.2 installs, with its own definitions")
	t.apply(ctx, t.release)
	t.awaitServedAlone(ctx)
	after := t.read(ctx, "v1alpha1")
	expectKept(t.before, after)
	for name := range after {
		Expect(after[name]["spec"]).NotTo(HaveKey("extended"), name)
	}
	t.expectAlive(ctx, t.left)
	t.expectOwned(ctx, "v1", "PodList")
	t.expectOwned(ctx, "v1", "ServiceList")
	t.expectOwned(ctx, "diengine.opendilab.org/v2alpha1", "MembershipList")
	t.expectReplicas(ctx, map[string]int32{"di-operator": 1, "di-webhook": 1, "di-server": 1})

	By("the release acting on a job as it did")
	led := job("v1alpha1")
	Expect(t.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: t.left[3].Name}, led)).To(Succeed())
	Expect(unstructured.SetNestedField(led.Object, "Failed", "status", "phase")).To(Succeed())
	Expect(t.api.Status().Update(ctx, led)).To(Succeed())
	Expect(unstructured.SetNestedField(led.Object, "team-b", "spec", "group")).To(Succeed())
	Expect(t.api.Update(ctx, led)).To(Succeed())
	Expect(t.api.Delete(ctx, led)).To(Succeed())
}

// kubectlDI builds and runs the plugin and returns its output.
func (m *machine) kubectlDI(ctx context.Context, args ...string) (string, error) {
	GinkgoHelper()
	plugin := specs.Must(program.BuildCommand(ctx, filepath.Dir(binary), "kubectl-di"))
	output, err := exec.CommandContext(ctx, plugin, append(args, "--kubeconfig", m.kubeconfig)...).CombinedOutput()
	return string(output), err
}

// awaitStored waits until all objects are stored in a version.
func (p *plane) awaitStored(ctx context.Context, version string) {
	GinkgoHelper()
	for _, name := range []string{dijobs, "aggregatorconfigs.diengine.opendilab.org"} {
		Eventually(func() []string { return p.definition(ctx, name).Status.StoredVersions }).WithContext(ctx).Should(Equal([]string{version}), name)
	}
}

// apply makes each object of the release equal to its manifest, except webhooks, because no program
// serves them.
func (p *plane) apply(ctx context.Context, release legacy.Release) {
	GinkgoHelper()
	objects := specs.Must(release.Objects())
	for _, object := range objects {
		if kind := object.GetKind(); kind == "MutatingWebhookConfiguration" || kind == "ValidatingWebhookConfiguration" || kind == "Namespace" {
			continue
		}
		Eventually(func() error {
			wanted, there := object.DeepCopy(), &unstructured.Unstructured{}
			there.SetGroupVersionKind(object.GroupVersionKind())
			err := p.api.Get(ctx, client.ObjectKeyFromObject(object), there)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err != nil {
				return p.api.Create(ctx, wanted)
			}
			wanted.SetResourceVersion(there.GetResourceVersion())
			if ip, found, _ := unstructured.NestedString(there.Object, "spec", "clusterIP"); found {
				Expect(unstructured.SetNestedField(wanted.Object, ip, "spec", "clusterIP")).To(Succeed())
			}
			return p.api.Update(ctx, wanted)
		}).WithContext(ctx).Should(Succeed(), object.GetKind()+" "+object.GetName())
	}
}

// awaitServedAlone waits until jobs are served in v1alpha1 by the schema of v0.2.2.
func (p *plane) awaitServedAlone(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("diengine.opendilab.org/v2alpha1")
		list.SetKind("DIJobList")
		g.Expect(p.api.List(ctx, list)).NotTo(Succeed())
		probe := job("v1alpha1")
		probe.SetNamespace(jobs)
		probe.SetName("probe")
		probe.Object["spec"] = map[string]any{"extended": map[string]any{"suspend": true}, "coordinator": map[string]any{"template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "main"}}},
		}}}
		g.Expect(p.api.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Object["spec"]).NotTo(HaveKey("extended"))
	}).WithContext(ctx).Should(Succeed())
}

// expectOwned expects that the owner references to jobs have the version that v0.2.2 serves, so
// that its garbage collector finds the jobs.
func (p *plane) expectOwned(ctx context.Context, version, kind string) {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(version)
	list.SetKind(kind)
	Expect(p.api.List(ctx, list, client.InNamespace(jobs))).To(Succeed())
	Expect(list.Items).NotTo(BeEmpty(), kind)
	for i := range list.Items {
		owner := list.Items[i].GetOwnerReferences()[0]
		Expect(owner.APIVersion+" "+owner.Kind).To(Equal("diengine.opendilab.org/v1alpha1 DIJob"), kind+" "+list.Items[i].GetName())
	}
}
