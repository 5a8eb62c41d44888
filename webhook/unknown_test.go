// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

const (
	strict = client.FieldValidation(metav1.FieldValidationStrict)
	ignore = client.FieldValidation(metav1.FieldValidationIgnore)

	refusedAsUnknown = `: Invalid value: unknown field: pods in this cluster have no such field; correct it, or write with --validate=warn to keep it`
)

// misspelt returns jobs of both versions with a misspelt field in a template, and its path.
func misspelt(namespace string) map[string]*unstructured.Unstructured {
	const pod = `{template: {spec: {containers: [{name: a, imagee: b}]}}`
	return map[string]*unstructured.Unstructured{
		"spec.coordinator.template.spec.containers[0].imagee": specs.Job("v1alpha1", namespace, "old", "spec: {coordinator: "+pod+"}}"),
		"spec.tasks[0].template.spec.containers[0].imagee":    specs.Job("v2alpha1", namespace, "new", "spec: {tasks: [{type: none, name: a, "+pod[1:]+"}]}"),
		"spec.volumes[0].emptydir": specs.Job("v2alpha1", namespace, "volume",
			"spec: {volumes: [{name: v, emptydir: {}}], tasks: [{type: none, name: a, template: {spec: {containers: [{name: a}]}}}]}"),
		"spec.aggregator.template.spec.containers[0].imagee": aggregators("v2alpha1", namespace, `{containers: [{name: a, imagee: b}]}`),
	}
}

var _ = Describe("An unknown field of a template", func() {
	It("is refused by its path where the writer asks for strict validation", func(ctx SpecContext) {
		for path, object := range misspelt(specs.Namespace(ctx, c)) {
			Expect(c.Create(ctx, object, strict)).To(MatchError(ContainSubstring("is invalid: "+path+refusedAsUnknown)), path)
		}
	})

	It("is warned about where the writer says nothing, and not mentioned where it is to be ignored", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		for path, object := range misspelt(namespace) {
			listener, heard := listening(api.Config)
			Expect(listener.Create(ctx, object.DeepCopy(), ignore, client.DryRunAll)).To(Succeed())
			Expect(heard.take()).NotTo(ContainElement(ContainSubstring("unknown field")), path)
			Expect(listener.Create(ctx, object)).To(Succeed())
			Expect(heard.take()).To(ContainElement(`unknown field "`+path+`"`), path)
		}
	})

	It("does not keep a strict writer from changing the rest of what is stored", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		for path, object := range misspelt(namespace) {
			Expect(c.Create(ctx, object)).To(Succeed())
			change := `[{"op":"add","path":"/spec/cleanPodPolicy","value":"None"}]`
			if object.GetKind() == "AggregatorConfig" {
				change = `[{"op":"add","path":"/spec/aggregator/template/spec/hostNetwork","value":true}]`
			}
			Expect(c.Patch(ctx, object, jsonPatch(change), strict)).To(Succeed(), path)
		}
	})

	It("is refused by kubectl's default, for a job as for a Deployment", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		manifest := filepath.Join(GinkgoT().TempDir(), "job.yaml")
		Expect(os.WriteFile(manifest, []byte(`
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: j}
spec: {tasks: [{type: none, name: a, template: {spec: {containers: [{name: a, imagee: b}]}}}]}
`), 0o600)).To(Succeed())
		out, err := specs.Kubectl(ctx, api.KubeConfig, "apply", "-n", namespace, "-f", manifest)
		Expect(err).To(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("spec.tasks[0].template.spec.containers[0].imagee" + refusedAsUnknown))
		out, err = specs.Kubectl(ctx, api.KubeConfig, "apply", "--validate=warn", "-n", namespace, "-f", manifest)
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring(`Warning: unknown field "spec.tasks[0].template.spec.containers[0].imagee"`))
	})

	It("that is written twice is refused by the API server itself", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		raw, err := discovery.NewDiscoveryClientForConfig(api.Config)
		Expect(err).NotTo(HaveOccurred())
		err = raw.RESTClient().Post().AbsPath("/apis/diengine.opendilab.org/v2alpha1/namespaces/"+namespace+"/dijobs").
			Param("fieldValidation", "Strict").SetHeader("Content-Type", "application/json").
			Body([]byte(`{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"j"},"spec":{"tasks":[
				{"type":"none","name":"a","template":{"spec":{"containers":[{"name":"a","image":"a","image":"b"}]}}}]}}`)).
			Do(ctx).Error()
		Expect(err).To(MatchError(ContainSubstring(`strict decoding error: duplicate field "spec.tasks[0].template.spec.containers[0].image"`)))
	})
})
