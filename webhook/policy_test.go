// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/webhook"
)

const refusal = "spec.conversion.strategy must stay Webhook"

var _ = Describe("The policy that protects the conversion", func() {
	It("refuses whoever switches it off while there are two versions, and lets pass whoever leaves one", func(ctx SpecContext) {
		alone := newCluster(ctx)
		// The test's API server starts without the stanza; the operator adds it.
		server := alone.serve(ctx, webhook.Options{})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		definition := alone.definition(ctx)
		none := mergePatch(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)

		By("a patch, in force as soon as the API server knows the policy")
		Eventually(func() error { return alone.Patch(ctx, definition.DeepCopy(), none, client.DryRunAll) }).WithContext(ctx).Should(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(refusal)), MatchError(ContainSubstring("di-orchestrator retire-crds"))))
		Expect(alone.Patch(ctx, definition.DeepCopy(), none)).To(MatchError(ContainSubstring("served: v1alpha1, v2alpha1; stored: v2alpha1")))

		By("manifests that lack the stanza, replaced, applied, and tried")
		manifest := filepath.Join(GinkgoT().TempDir(), "crd.yaml")
		bare := definition.DeepCopy()
		unstructured.RemoveNestedField(bare.Object, "spec", "conversion")
		bare.Object["metadata"] = map[string]any{"name": webhook.CRD}
		delete(bare.Object, "status")
		raw := specs.Must(bare.MarshalJSON())
		Expect(os.WriteFile(manifest, raw, 0o600)).To(Succeed())
		for _, args := range [][]string{{"replace"}, {"replace", "--dry-run=server"}, {"apply", "--server-side", "--force-conflicts", "--field-manager=helm"}} {
			out, err := specs.Kubectl(ctx, alone.environment.KubeConfig, append(args, "-f", manifest)...)
			if args[0] == "apply" {
				// Apply keeps the fields that are not named, because the operator owns them.
				Expect(err).NotTo(HaveOccurred(), out)
				continue
			}
			Expect(err).To(HaveOccurred())
			Expect(out).To(ContainSubstring(refusal))
		}
		strategy, _, err := unstructured.NestedString(alone.definition(ctx).Object, "spec", "conversion", "strategy")
		Expect(err).NotTo(HaveOccurred())
		Expect(strategy).To(Equal("Webhook"))

		By("other definitions, which are nobody's")
		others := definition.DeepCopy()
		others.SetName("aggregatorconfigs.diengine.opendilab.org")
		Expect(alone.Patch(ctx, others, mergePatch(`{"metadata":{"labels":{"a":"b"}},"spec":{"conversion":{"strategy":"None"}}}`))).To(Succeed())

		By("a version that is served no more, though it is stored still")
		Expect(alone.stored(ctx, "v1alpha1", "v2alpha1")).To(Succeed())
		Expect(alone.retire(ctx)).To(MatchError(ContainSubstring(refusal)))
		Expect(alone.stored(ctx, "v2alpha1")).To(Succeed())

		By("uninstalling while the operator runs: retire-crds leaves one version, in the same write")
		var told bytes.Buffer
		installer := &crds.Installer{API: alone.typed(), Namespace: "di-system", Out: &told}
		Expect(installer.Retire(ctx, webhook.MutatingConfiguration, webhook.ValidatingConfiguration, webhook.CRD)).To(Succeed())
		Expect(told.String()).To(ContainSubstring("without a webhook"))
		By("installing again")
		Expect(installer.Install(ctx)).To(Succeed())
		Expect(alone.Patch(ctx, definition.DeepCopy(), none)).To(MatchError(ContainSubstring(refusal)))

		By("creating it without, as from an old manifest")
		Expect(alone.Delete(ctx, definition.DeepCopy())).To(Succeed())
		Eventually(func() error { return alone.Create(ctx, bare.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(MatchError(ContainSubstring(refusal)))

		By("the API server having found no fault in it")
		policy := specs.Get[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, alone, "", "di-orchestrator-conversion")
		if policy.Status.TypeChecking != nil {
			Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty())
		}
	})
})

var _ = Describe("The policy that bounds di-server", func() {
	It("lets it write what it needs, and nothing else of a job", func(ctx SpecContext) {
		alone := newCluster(ctx)
		server := alone.serve(ctx, webhook.Options{})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		// RBAC itself is not under test.
		alone.allow(ctx, "di-server", testkit.AccountName(testkit.Server), "*", "*")
		di := alone.as(testkit.AccountName(testkit.Server))
		const task = `{"type":"collector","replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`
		job := unstructuredJob(`{"preemptible":true,"elastic":{"minReplicas":1,"maxReplicas":3},"tasks":[` + task + `]}`)
		Eventually(func() error { return alone.Create(ctx, job) }).WithContext(ctx).Should(Succeed())
		patch := func(raw string) error { return di.Patch(ctx, job.DeepCopy(), mergePatch(raw)) }
		status := func(raw string) error { return di.Status().Patch(ctx, job.DeepCopy(), mergePatch(raw)) }

		By("refusing what it does not need, as soon as the API server knows the policy")
		// Retry, because a patch that the API server stores before it knows the policy would change
		// nothing later.
		Eventually(func() error {
			return di.Patch(ctx, job.DeepCopy(), mergePatch(`{"spec":{"suspend":true}}`), client.DryRunAll)
		}).WithContext(ctx).Should(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("nothing of a job's spec but the range of spec.elastic"))))
		Expect(patch(`{"spec":{"tasks":[` + strings.Replace(task, `"image":"i"`, `"image":"evil"`, 1) + `]}}`)).To(MatchError(ContainSubstring("no task of a job")))
		Expect(patch(`{"spec":{"tasks":[` + task + `,{"type":"none","name":"more","template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}]}}`)).
			To(MatchError(ContainSubstring("no task of a job")))
		Expect(patch(`{"spec":{"tasks":[` + strings.Replace(task, `"replicas":2`, `"replicas":2,"drain":{}`, 1) + `]}}`)).To(MatchError(ContainSubstring("no task of a job")))
		Expect(patch(`{"spec":{"tasks":[` + strings.Replace(task, `"collector"`, `"learner","name":"collector"`, 1) + `]}}`)).To(MatchError(ContainSubstring("no task of a job")))
		Expect(patch(`{"spec":{"elastic":{"onResize":"Restart"}}}`)).To(MatchError(ContainSubstring("nothing of spec.elastic but")))
		Expect(patch(`{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/"}}]}}`)).To(Satisfy(apierrors.IsForbidden))
		Expect(patch(`{"metadata":{"labels":{"a":"b"}}}`)).To(MatchError(ContainSubstring("nothing of a job's metadata")))
		Expect(patch(`{"metadata":{"annotations":{"a":"b"}}}`)).To(Satisfy(apierrors.IsForbidden))
		Expect(status(`{"status":{"phase":"Succeeded"}}`)).To(MatchError(ContainSubstring("nothing of a job's status but")))

		By("letting pass what it needs")
		Expect(patch(`{"metadata":{"annotations":{"diengine/requests":"[]"}},"spec":{"elastic":{"minReplicas":2,"maxReplicas":4}}}`)).To(Succeed())
		Expect(status(`{"status":{"profilings":{"a":1},"replicas":3}}`)).To(Succeed())
		Expect(status(`{"status":{"replicas":2,"requests":[{"key":"k","id":"r","time":"2026-01-02T03:04:05Z","message":"done"}]}}`)).To(Succeed())
		Expect(status(`{"status":{"rates":[{"server":"s","role":"learner","updatedAt":"2026-01-02T03:04:05.000006Z"}],"membershipAcks":{"version":1}}}`)).To(Succeed())

		By("others, who are not bounded by it")
		Expect(alone.Patch(ctx, job.DeepCopy(), mergePatch(`{"spec":{"suspend":true}}`))).To(Succeed())

		By("a job of an earlier release, of which the webhooks fill in what it lacks in the same write")
		old := unstructuredJob(`{"preemptible":true,"tasks":[` + task + `]}`)
		old.SetName("old")
		Expect(alone.Create(ctx, old)).To(Succeed())
		Expect(alone.Patch(ctx, old.DeepCopy(), mergePatch(`{"spec":{"priority":null,"backoffLimit":null}}`))).To(Succeed())
		Expect(di.Patch(ctx, old.DeepCopy(), mergePatch(`{"spec":{"elastic":{"maxReplicas":4}}}`))).To(Succeed())
	})
})

var _ = Describe("The policy that bounds the webhooks", func() {
	It("lets them publish their address, and change no rule and create no pod", func(ctx SpecContext) {
		alone := newCluster(ctx)
		server := alone.serve(ctx, webhook.Options{})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		alone.allow(ctx, "any-webhooks", testkit.AccountName(testkit.Webhook), "admissionregistration.k8s.io", "*")
		hooks := alone.as(testkit.AccountName(testkit.Webhook))
		const refusal = "change nothing of their configurations but clientConfig"
		for _, patch := range []string{
			`[{"op":"replace","path":"/webhooks/0/rules","value":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods","secrets"],"operations":["*"]}]}]`,
			`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`,
			`[{"op":"add","path":"/webhooks/0/namespaceSelector","value":{"matchLabels":{"a":"b"}}}]`,
			`[{"op":"remove","path":"/webhooks/0"}]`,
			`[{"op":"copy","from":"/webhooks/0","path":"/webhooks/-"},{"op":"replace","path":"/webhooks/0/name","value":"a.b.c"}]`,
		} {
			Eventually(func() error {
				return hooks.Patch(ctx, mutatingConfiguration(), client.RawPatch(types.JSONPatchType, []byte(patch)), client.DryRunAll)
			}).WithContext(ctx).Should(MatchError(ContainSubstring(refusal)), patch)
			Expect(hooks.Patch(ctx, validatingConfiguration(), client.RawPatch(types.JSONPatchType, []byte(patch)), client.DryRunAll)).
				To(MatchError(ContainSubstring(refusal)), patch)
		}
		other := mutatingConfiguration()
		other.Name = "other"
		other.Webhooks = []admissionregistrationv1.MutatingWebhook{{
			Name: "a.b.c", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://a")},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}}
		Expect(hooks.Create(ctx, other, client.DryRunAll)).To(MatchError(ContainSubstring(refusal)))
	})
})

var _ = Describe("The policy about who may submit jobs", func() {
	It("lets those submit who may create pods in the namespace, and leaves all other writes alone", func(ctx SpecContext) {
		alone := newCluster(ctx)
		out, err := specs.Kubectl(ctx, alone.environment.KubeConfig, "apply", "-k", filepath.Join(testkit.Root(), "config", "policy", "submitters"))
		Expect(err).NotTo(HaveOccurred(), out)
		server := alone.serve(ctx, webhook.Options{})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		alone.allow(ctx, "jobs", "author", "diengine.opendilab.org", "dijobs")
		author := alone.as("author")
		const spec = `{"tasks":[{"type":"learner","template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}]}`
		// A dry run stores no job before the policy acts.
		Eventually(func() error { return author.Create(ctx, unstructuredJob(spec), client.DryRunAll) }).WithContext(ctx).Should(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("author may not create pods in namespace default"))))
		job := unstructuredJob(spec)
		Expect(alone.Create(ctx, job)).To(Succeed())
		Expect(author.Patch(ctx, job.DeepCopy(), mergePatch(`{"spec":{"suspend":true}}`))).To(Satisfy(apierrors.IsForbidden))
		Expect(author.Patch(ctx, job.DeepCopy(), mergePatch(`{"metadata":{"labels":{"a":"b"}}}`))).To(Succeed())
		By("an AggregatorConfig, whose template jobs run")
		alone.allow(ctx, "configs", "author", "diengine.opendilab.org", "aggregatorconfigs")
		config := unstructuredJob(`{"aggregator":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
		config.SetKind("AggregatorConfig")
		Eventually(func() error { return author.Create(ctx, config.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("AggregatorConfigs run pods: author may not create pods"))))
		alone.allow(ctx, "pods", "author", "", "pods")
		Eventually(func() error {
			return author.Patch(ctx, job.DeepCopy(), mergePatch(`{"spec":{"suspend":true}}`))
		}).WithContext(ctx).Should(Succeed())
	})
})

// unprotect removes the policy that protects the conversion, as an installation with crds.protect=false lacks it.
func (c *cluster) unprotect(ctx context.Context) {
	GinkgoHelper()
	Expect(c.Delete(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "di-orchestrator-conversion"}})).To(Succeed())
	none := mergePatch(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
	Eventually(func() error { return c.Patch(ctx, c.definition(ctx), none, client.DryRunAll) }).WithContext(ctx).Should(Succeed())
}

// as returns a client that impersonates a user.
func (c *cluster) as(user string) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(c.environment.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return specs.Must(client.New(config, client.Options{}))
}

// allow gives a user all verbs on a resource.
func (c *cluster) allow(ctx context.Context, name, user, group, resource string) {
	GinkgoHelper()
	rule := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"*"}}
	Expect(c.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})).To(Succeed())
	Expect(c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}

// unstructuredJob returns a job of v2alpha1 with a spec.
func unstructuredJob(spec string) *unstructured.Unstructured {
	GinkgoHelper()
	return specs.Job("v2alpha1", metav1.NamespaceDefault, "job", "spec: "+spec)
}

// stored writes the stored versions of the definition's status.
func (c *cluster) stored(ctx context.Context, versions ...any) error {
	definition := c.definition(ctx)
	if err := unstructured.SetNestedSlice(definition.Object, versions, "status", "storedVersions"); err != nil {
		return err
	}
	return c.Status().Update(ctx, definition)
}

// retire disables the conversion and serves one version, independent of the stored ones.
func (c *cluster) retire(ctx context.Context) error {
	definition := c.definition(ctx)
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for i := range versions {
		if version, ok := versions[i].(map[string]any); ok {
			version["served"] = version["storage"]
		}
	}
	if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
		return err
	}
	if err := unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
		return err
	}
	return c.Update(ctx, definition, client.DryRunAll)
}

// typed returns a client with the Go types of definitions.
func (c *cluster) typed() client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	return specs.Must(client.New(c.environment.Config, client.Options{Scheme: scheme}))
}

var _ = Describe("The policy about disruption budgets", func() {
	It("warns about those over pods of jobs that Kubernetes computes wrongly, and about no others", func(ctx SpecContext) {
		alone := newCluster(ctx)
		by, warnings := listening(alone.environment.Config)
		warned := func(spec string) bool {
			GinkgoHelper()
			budget := specs.Object(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {namespace: default, name: b}, spec: ` + spec + `}`)
			Expect(by.Create(ctx, budget, client.DryRunAll)).To(Succeed())
			heard := strings.Join(warnings.take(), "\n")
			return strings.Contains(heard, "needs minAvailable as a whole number") && strings.Contains(heard, "spec.disruption of the job")
		}
		const ofJob = `"selector":{"matchLabels":{"diengine/job":"j"}}`
		Eventually(func() bool { return warned(`{"maxUnavailable":0,` + ofJob + `}`) }).WithContext(ctx).Should(BeTrue())
		Expect(warned(`{"minAvailable":"50%",` + ofJob + `}`)).To(BeTrue())
		Expect(warned(`{"maxUnavailable":1,"selector":{"matchExpressions":[{"key":"dijob-name","operator":"Exists"}]}}`)).To(BeTrue())
		Expect(warned(`{"minAvailable":3,` + ofJob + `}`)).To(BeFalse())
		Expect(warned(`{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}`)).To(BeFalse())
		Expect(warned(`{"maxUnavailable":1}`)).To(BeFalse())
	})
})
