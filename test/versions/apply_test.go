// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// These are the same job as a manifest of each version. That of v2alpha1 omits the group and
// collector of the other and adds suspend.
const (
	manifestV1 = `
spec:
  group: g
  cleanPodPolicy: All
  coordinator: {template: {spec: {containers: [{name: di-container, image: a}]}}}
  collector: {template: {spec: {containers: [{name: di-container, image: b}]}}}
`
	manifestV2 = `
spec:
  lifecycle: CoordinatorLed
  cleanPodPolicy: All
  suspend: true
  tasks: [{type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container, image: a}]}}}]
`
	// manifestV1Extended is the v1alpha1 equivalent of manifestV2.
	manifestV1Extended = `
spec:
  cleanPodPolicy: All
  coordinator: {template: {spec: {containers: [{name: di-container, image: a}]}}}
  extended: {suspend: true}
`
)

// way applies a manifest.
type way func(ctx context.Context, version, namespace, manifest string) error

// clientSide applies like kubectl apply.
func clientSide(ctx context.Context, version, namespace, manifest string) error {
	GinkgoHelper()
	raw := specs.Must(specs.Job(version, namespace, "j", manifest).MarshalJSON())
	file := filepath.Join(GinkgoT().TempDir(), "job.json")
	Expect(os.WriteFile(file, raw, 0o600)).To(Succeed())
	out, err := specs.Kubectl(ctx, api.KubeConfig, "apply", "--namespace", namespace, "-f", file)
	GinkgoWriter.Println(out)
	return err
}

// serverSide applies as a field manager, like kubectl apply --server-side.
func serverSide(manager string, options ...client.ApplyOption) way {
	return func(ctx context.Context, version, namespace, manifest string) error {
		applied := client.ApplyConfigurationFromUnstructured(specs.Job(version, namespace, "j", manifest))
		return c.Apply(ctx, applied, append(options, client.FieldOwner(manager))...)
	}
}

// managers returns the version in which each manager's fields are recorded.
func managers(of *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	for _, entry := range of.GetManagedFields() {
		found[entry.Manager] = entry.APIVersion
	}
	return found
}

// report writes a status at v2alpha1, as the operator does between two applies.
func report(ctx context.Context, namespace string) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":"Running","restarts":%d}}`, reports.Add(1)))
	Expect(operator.Status().Patch(ctx, specs.Job(v2, namespace, "j", "{}"), patch, client.FieldOwner("di-orchestrator"))).To(Succeed())
}

// specAfter applies manifests one after the other, with an operator that reports in between, and returns the
// spec in v2alpha1.
func specAfter(ctx context.Context, apply way, steps ...[2]string) map[string]any {
	GinkgoHelper()
	namespace := specs.Namespace(ctx, c)
	for _, step := range steps {
		Expect(apply(ctx, step[0], namespace, step[1])).To(Succeed())
		report(ctx, namespace)
	}
	spec, _, err := unstructured.NestedMap(specs.GetJob(ctx, c, v2, namespace, "j").Object, "spec")
	Expect(err).NotTo(HaveOccurred())
	return spec
}

var _ = DescribeTable("A manifest that moves to v2alpha1 takes away what it says no more",
	func(ctx SpecContext, apply way) {
		spec := specAfter(ctx, apply, [2]string{v1, manifestV1}, [2]string{v2, manifestV2})
		expectSame(changed(part(manifestV2, "spec"), int64(0), "backoffLimit"), spec)
	},
	Entry("kubectl apply", way(clientSide)),
	Entry("kubectl apply --server-side", serverSide("kubectl")),
)

var _ = DescribeTable("A manifest that moves to v1alpha1 and back is what it was",
	func(ctx SpecContext, apply way) {
		spec := specAfter(ctx, apply, [2]string{v1, manifestV1}, [2]string{v2, manifestV1AsV2}, [2]string{v1, manifestV1})
		expectSame(part(manifestV1AsV2, "spec"), spec)
	},
	Entry("kubectl apply", way(clientSide)),
	Entry("kubectl apply --server-side", serverSide("kubectl")),
)

// withMore is manifestV1 with fields below its roles.
const withMore = `
spec:
  group: g
  cleanPodPolicy: All
  volumes: [{name: v}]
  coordinator: {template: {metadata: {annotations: {example.com/a~b: c}}, spec: {priorityClassName: high, containers: [{name: di-container, image: a}]}}}
  collector: {template: {metadata: {labels: {a: b, c: d}}, spec: {nodeSelector: {disk: ssd, zone: a}, containers: [{name: di-container, image: b}]}}}
  learner: {template: {spec: {containers: [{name: di-container, image: c}]}}}
`

var _ = DescribeTable("A manifest of v1alpha1 removes what it no longer says, also while the operator writes at v2alpha1",
	func(ctx SpecContext, apply way) {
		spec := specAfter(ctx, apply, [2]string{v1, withMore}, [2]string{v1, manifestV1})
		expectSame(part(manifestV1AsV2, "spec"), spec)

		By("a part of what a map has")
		less := strings.NewReplacer(", c: d", "", "disk: ssd, ", "").Replace(withMore)
		namespace := specs.Namespace(ctx, c)
		for _, step := range []string{withMore, less, less} {
			Expect(apply(ctx, v1, namespace, step)).To(Succeed())
			report(ctx, namespace)
		}
		expectSame(part(less, "spec"), specs.GetJob(ctx, c, v1, namespace, "j").Object["spec"])
	},
	Entry("kubectl apply", way(clientSide)),
	Entry("kubectl apply --server-side", serverSide("kubectl")),
	Entry("a GitOps tool", serverSide("argocd-controller", client.ForceOwnership)),
)

var _ = Describe("What an apply at v1alpha1 gives up", func() {
	It("stays if another manager of v1alpha1 applies it, too", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(serverSide("one")(ctx, v1, namespace, withMore)).To(Succeed())
		Expect(serverSide("two")(ctx, v1, namespace, withMore)).To(Succeed())
		report(ctx, namespace)
		Expect(serverSide("one")(ctx, v1, namespace, manifestV1)).To(Succeed())
		expectSame(part(withMore, "spec"), specs.GetJob(ctx, c, v1, namespace, "j").Object["spec"])
	})

	It("stays, with a warning, if another user owns a part of the spec at v2alpha1", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(serverSide("one")(ctx, v1, namespace, withMore)).To(Succeed())
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))
		Expect(c.Patch(ctx, specs.Job(v2, namespace, "j", "{}"), patch, client.FieldOwner("person"))).To(Succeed())
		warnings := &heard{}
		listening := rest.CopyConfig(api.Config)
		listening.WarningHandler = warnings
		by := specs.Must(client.New(listening, client.Options{}))
		Expect(by.Apply(ctx, client.ApplyConfigurationFromUnstructured(specs.Job(v1, namespace, "j", manifestV1)), client.FieldOwner("one"))).To(Succeed())
		Expect(warnings.said).To(ContainElement(And(ContainSubstring("is left out but stays"), ContainSubstring("apply v2alpha1"))))
	})
})

// heard records warnings.
type heard struct{ said []string }

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _ string, text string) { h.said = append(h.said, text) }

// manifestV1AsV2 is manifestV1 in v2alpha1.
const manifestV1AsV2 = `
spec:
  lifecycle: CoordinatorLed
  backoffLimit: 0
  group: g
  cleanPodPolicy: All
  tasks:
  - {type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container, image: a}]}}}
  - {type: collector, name: collector, replicas: 0, template: {spec: {containers: [{name: di-container, image: b}]}}}
`

var _ = DescribeTable("What only v2alpha1 can say stays when the manifest moves to v1alpha1 without it",
	func(ctx SpecContext, apply way) {
		spec := specAfter(ctx, apply, [2]string{v2, manifestV2}, [2]string{v1, manifestV1})
		Expect(spec).To(And(HaveKeyWithValue("suspend", true), HaveKeyWithValue("group", "g")))
	},
	Entry("kubectl apply", way(clientSide)),
	Entry("kubectl apply --server-side", serverSide("kubectl")),
)

var _ = Describe("What v1alpha1 said in extended", func() {
	var (
		extended = [2]string{v1, manifestV1Extended}
		without  = [2]string{v2, `
spec:
  lifecycle: CoordinatorLed
  cleanPodPolicy: All
  tasks: [{type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container, image: a}]}}}]
`}
	)
	It("stays when kubectl apply moves the manifest to v2alpha1 without it, as last-applied names it in v1alpha1's words", func(ctx SpecContext) {
		Expect(specAfter(ctx, clientSide, extended, without)).To(HaveKeyWithValue("suspend", true))
	})
	It("goes when kubectl apply --server-side moves the manifest to v2alpha1 without it", func(ctx SpecContext) {
		Expect(specAfter(ctx, serverSide("kubectl"), extended, without)).NotTo(HaveKey("suspend"))
	})
})

var _ = Describe("Two managers, each with its version", func() {
	It("conflict where they say different things, in the words of the one that is in the way", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		old, young := serverSide("old"), serverSide("young")
		Expect(old(ctx, v1, namespace, manifestV1)).To(Succeed())
		const otherImage = `
spec:
  lifecycle: CoordinatorLed
  cleanPodPolicy: All
  tasks: [{type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container, image: c}]}}}]
`
		Expect(young(ctx, v2, namespace, otherImage)).To(MatchError(And(
			ContainSubstring(`conflict with "old"`), ContainSubstring(".spec.coordinator.template.spec.containers"))))

		By("forcing")
		Expect(serverSide("young", client.ForceOwnership)(ctx, v2, namespace, otherImage)).To(Succeed())
		stored := specs.GetJob(ctx, c, v2, namespace, "j")
		Expect(managers(stored)).To(Equal(map[string]string{"old": group + "/" + v1, "young": group + "/" + v2}))
		Expect(stored.Object["spec"]).To(HaveKeyWithValue("group", "g"), "what only the old manager says is still its own")
		Expect(stored.Object["spec"]).To(HaveKeyWithValue("tasks", HaveLen(1)), "the list of tasks has one owner")

		By("applying the old manifest again")
		Expect(old(ctx, v1, namespace, manifestV1)).To(MatchError(And(
			ContainSubstring(`conflict with "young"`), ContainSubstring(".spec.tasks"))))
		Expect(serverSide("old", client.ForceOwnership)(ctx, v1, namespace, manifestV1)).To(Succeed())
		expectSame(part(manifestV1AsV2, "spec"), specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"])
	})

	It("own together what they say alike", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(serverSide("old")(ctx, v1, namespace, manifestV1)).To(Succeed())
		Expect(serverSide("young")(ctx, v2, namespace, manifestV1AsV2)).To(Succeed())
		Expect(serverSide("old")(ctx, v1, namespace, manifestV1)).To(Succeed())
		expectSame(part(manifestV1AsV2, "spec"), specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"])
		expectOneJob(ctx, v1, namespace, "j")
	})

	It("conflict also where the other has updated the job", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(serverSide("old")(ctx, v1, namespace, manifestV1)).To(Succeed())
		stored := specs.GetJob(ctx, c, v2, namespace, "j")
		Expect(unstructured.SetNestedField(stored.Object, "None", "spec", "cleanPodPolicy")).To(Succeed())
		Expect(c.Update(ctx, stored, client.FieldOwner("person"))).To(Succeed())
		Expect(serverSide("old")(ctx, v1, namespace, manifestV1)).To(MatchError(And(
			ContainSubstring(`conflict with "person"`), ContainSubstring(".spec.cleanPodPolicy"))))
		Expect(serverSide("old", client.ForceOwnership)(ctx, v1, namespace, manifestV1)).To(Succeed())
		Expect(managers(specs.GetJob(ctx, c, v1, namespace, "j"))).To(Equal(map[string]string{"old": group + "/" + v1}))
	})

	It("may each have the status and the spec", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(serverSide("old")(ctx, v1, namespace, manifestV1)).To(Succeed())
		status := client.ApplyConfigurationFromUnstructured(specs.Job(v2, namespace, "j", `status: {phase: Starting, restarts: 1}`))
		Expect(c.Status().Apply(ctx, status, client.FieldOwner("operator"))).To(Succeed())
		Expect(serverSide("old")(ctx, v1, namespace, manifestV1)).To(Succeed())
		seen := specs.GetJob(ctx, c, v1, namespace, "j")
		expectSame(specs.Object(`{phase: Created, extended: {phase: Starting, restarts: 1}}`).Object, seen.Object["status"])
		for _, entry := range seen.GetManagedFields() {
			Expect(entry.Operation).To(Equal(metav1.ManagedFieldsOperationApply))
		}
		Expect(managers(seen)).To(Equal(map[string]string{"old": group + "/" + v1, "operator": group + "/" + v2}))
	})
})
