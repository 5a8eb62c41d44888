// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/webhooks"
)

const (
	ledV1 = `
  group: g
  coordinator: {template: {spec: {containers: [{name: di-container, image: a}]}}}
  collector: {template: {spec: {containers: [{name: di-container, image: b}]}}}
  extended: {suspend: true, ttlSecondsAfterFinished: 60}
`
	workersV2 = `
  preemptible: true
  minReplicas: 1
  maxReplicas: 4
  tasks: [{type: learner, name: learner, replicas: 2, template: {spec: {containers: [{name: di-container, image: a}], newerThanUs: {a: 1}}}}]
`
)

// backUp returns a job as Velero restores it: without its status, and with only the user's part of
// its metadata.
func backUp(from *unstructured.Unstructured) *unstructured.Unstructured {
	saved := from.DeepCopy()
	delete(saved.Object, "status")
	saved.Object["metadata"] = map[string]any{"name": from.GetName(), "namespace": from.GetNamespace()}
	saved.SetAnnotations(from.GetAnnotations())
	saved.SetLabels(map[string]string{"velero.io/restore-name": "drill"})
	return saved
}

var _ = Describe("Restoring jobs from a backup", func() {
	It("is refused while no webhook answers, spoils nothing, and brings both versions' jobs back afterwards", func(ctx SpecContext) {
		s := newSite(ctx)
		stop := s.serve(ctx)
		Expect(s.Create(ctx, specs.Job(v1, namespace, "led", "spec:\n"+ledV1))).To(Succeed())
		Expect(s.Create(ctx, specs.Job(v2, namespace, "workers", "spec:\n"+workersV2))).To(Succeed())
		Expect(s.Create(ctx, specs.Job(v2, namespace, "live", "spec:\n"+workersV2))).To(Succeed())
		before := map[string]any{}
		var backup []*unstructured.Unstructured
		for _, version := range []string{v1, v2} {
			for _, name := range []string{"led", "workers", "live"} {
				before[version+name] = s.get(ctx, version, name).Object["spec"]
			}
		}
		// A backup contains the version that the tool prefers, which may be either.
		backup = append(backup, backUp(s.get(ctx, v1, "led")), backUp(s.get(ctx, v2, "workers")))

		By("losing jobs and the operator")
		stop()
		for _, lost := range backup {
			Expect(s.Delete(ctx, specs.Job(v2, namespace, lost.GetName(), "spec: {}"))).To(Succeed(), "deletion in the stored version needs nobody")
		}
		for _, saved := range backup {
			Expect(s.Create(ctx, saved.DeepCopy())).NotTo(Succeed())
			_, err := s.read(ctx, v2, saved.GetName())
			Expect(err).To(Satisfy(apierrors.IsNotFound), "nothing half restored is stored")
		}
		Expect(s.get(ctx, v2, "live").Object["spec"]).To(Equal(before[v2+"live"]), "the stored version is read without the webhook")
		_, err := s.read(ctx, v1, "live")
		Expect(err).To(MatchError(ContainSubstring("conversion webhook")))

		By("the operator being back")
		s.serve(ctx)
		for _, saved := range backup {
			Expect(s.Create(ctx, saved.DeepCopy())).To(Succeed())
		}
		for _, version := range []string{v1, v2} {
			for _, name := range []string{"led", "workers", "live"} {
				Expect(s.get(ctx, version, name).Object["spec"]).To(Equal(before[version+name]), version+" "+name)
			}
		}

		By("applying the old manifest to the restored job, by kubectl's two ways")
		old := specs.Job(v1, namespace, "led", "spec:\n"+`
  cleanPodPolicy: None
  coordinator: {template: {spec: {containers: [{name: di-container, image: c}]}}}
  collector: {template: {spec: {containers: [{name: di-container, image: b}]}}}
`)
		out, err := s.kubectl(ctx, old, "apply", "--server-side")
		Expect(err).To(HaveOccurred(), "who restored it owns what it says")
		Expect(out).To(ContainSubstring("conflict"))
		out, err = s.kubectl(ctx, old, "apply", "--server-side", "--force-conflicts")
		Expect(err).NotTo(HaveOccurred(), out)
		s.expectKept(ctx)
		Expect(unstructured.SetNestedField(old.Object, "All", "spec", "cleanPodPolicy")).To(Succeed())
		out, err = s.kubectl(ctx, old, "apply")
		Expect(err).NotTo(HaveOccurred(), out)
		s.expectKept(ctx)
		Expect(s.get(ctx, v2, "led").Object["spec"]).To(HaveKeyWithValue("cleanPodPolicy", "All"))
	})
})

// expectKept expects that an old manifest has changed the fields that it has, and no field that
// only v2alpha1 has.
func (s *site) expectKept(ctx context.Context) {
	GinkgoHelper()
	spec := s.get(ctx, v2, "led").Object["spec"]
	Expect(spec).To(And(HaveKeyWithValue("suspend", true), HaveKeyWithValue("ttlSecondsAfterFinished", int64(60)),
		HaveKeyWithValue("lifecycle", "CoordinatorLed"), HaveKeyWithValue("group", "g")))
	tasks, _, err := unstructured.NestedSlice(s.get(ctx, v2, "led").Object, "spec", "tasks")
	Expect(err).NotTo(HaveOccurred())
	Expect(tasks).To(HaveLen(2))
	Expect(tasks[0]).To(HaveKeyWithValue("template", HaveKeyWithValue("spec", HaveKeyWithValue("containers", ConsistOf(HaveKeyWithValue("image", "c"))))))
}

var _ = Describe("Applying an old definition", func() {
	It("is refused where it would strand or mix up stored jobs, or is mended at once, and no job is spoilt", func(ctx SpecContext) {
		s := newSite(ctx)
		s.serve(ctx)
		Expect(s.Create(ctx, specs.Job(v1, namespace, "led", "spec:\n"+ledV1))).To(Succeed())
		Expect(s.Create(ctx, specs.Job(v2, namespace, "workers", "spec:\n"+workersV2))).To(Succeed())
		led, workers := s.get(ctx, v2, "led").Object["spec"], s.get(ctx, v2, "workers").Object["spec"]
		intact := func() {
			GinkgoHelper()
			Expect(s.get(ctx, v2, "led").Object["spec"]).To(Equal(led))
			Expect(s.get(ctx, v2, "workers").Object["spec"]).To(Equal(workers))
			// Reading it through the other version and writing it back changes nothing.
			Eventually(func() error { return s.Update(ctx, s.get(ctx, v1, "led")) }).WithContext(ctx).Should(Succeed())
			Expect(s.get(ctx, v2, "led").Object["spec"]).To(Equal(led))
		}
		whole := s.definition(ctx)

		By("one of one version, as v0.2.2's: the API server refuses it, as jobs are stored in the other")
		single := whole.DeepCopy()
		versions, _, err := unstructured.NestedSlice(single.Object, "spec", "versions")
		Expect(err).NotTo(HaveOccurred())
		first, ok := versions[0].(map[string]any)
		Expect(ok).To(BeTrue())
		Expect(first).To(HaveKeyWithValue("name", v1))
		first["storage"] = true
		Expect(unstructured.SetNestedSlice(single.Object, []any{first}, "spec", "versions")).To(Succeed())
		bare(single)
		out, err := s.kubectl(ctx, single, "replace")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("storedVersions"))
		intact()

		By("one of both versions without the stanza, and no policy: the operator mends it")
		binding := &unstructured.Unstructured{}
		binding.SetAPIVersion("admissionregistration.k8s.io/v1")
		binding.SetKind("ValidatingAdmissionPolicyBinding")
		binding.SetName("di-orchestrator-conversion")
		Expect(s.Delete(ctx, binding)).To(Succeed())
		reset := whole.DeepCopy()
		bare(reset)
		Eventually(func() error {
			_, err := s.kubectl(ctx, reset.DeepCopy(), "replace", "--dry-run=server")
			return err
		}).WithContext(ctx).Should(Succeed())
		out, err = s.kubectl(ctx, reset, "replace")
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(func() any { return s.definition(ctx).Object["spec"] }).WithContext(ctx).Should(Equal(whole.Object["spec"]))
		Expect(webhooks.WaitCalled(ctx, s.environment.Config)).To(Succeed())
		intact()

		By("the same with the policy: nothing is reset in the first place")
		out, err = s.kubectl(ctx, nil, "apply", "-k", filepath.Join(testkit.Root(), "config", "policy"))
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(func() error { return s.Update(ctx, s.without(ctx), client.DryRunAll) }).WithContext(ctx).Should(Satisfy(apierrors.IsForbidden))
		out, err = s.kubectl(ctx, reset, "replace")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("spec.conversion.strategy must stay Webhook"))
		Expect(s.definition(ctx).Object["spec"]).To(Equal(whole.Object["spec"]))
		intact()
	})
})

// bare reduces a definition to a manifest without conversion.
func bare(definition *unstructured.Unstructured) {
	unstructured.RemoveNestedField(definition.Object, "spec", "conversion")
	delete(definition.Object, "status")
	definition.Object["metadata"] = map[string]any{"name": definition.GetName()}
}

// without returns the current definition without its conversion stanza.
func (s *site) without(ctx context.Context) *unstructured.Unstructured {
	GinkgoHelper()
	definition := s.definition(ctx)
	unstructured.RemoveNestedField(definition.Object, "spec", "conversion")
	return definition
}
