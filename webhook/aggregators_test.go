// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

const noContainer = ".containers: Required value: a pod needs a container"

// aggregators returns an AggregatorConfig of the version whose template has the pod spec.
func aggregators(version, namespace, podSpec string) *unstructured.Unstructured {
	GinkgoHelper()
	object := specs.Job(version, namespace, "aggregator-config", "spec: {aggregator: {template: {spec: "+podSpec+"}}}")
	object.SetKind("AggregatorConfig")
	return object
}

var _ = Describe("An AggregatorConfig", func() {
	const refused = `admission webhook "validate-aggregatorconfigs.diengine.opendilab.org" denied the request: ` +
		`AggregatorConfig.diengine.opendilab.org "aggregator-config" is invalid: spec.aggregator.template.spec`

	for _, version := range []string{"v1alpha1", "v2alpha1"} {
		DescribeTable("is held to what pods are made from, in "+version,
			func(ctx SpecContext, podSpec, message string) {
				err := c.Create(ctx, aggregators(version, specs.Namespace(ctx, c), podSpec))
				if message == "" {
					Expect(err).NotTo(HaveOccurred())
				} else {
					Expect(err).To(MatchError(refused + message))
				}
			},
			Entry("a sound template", `{containers: [{name: di-container}]}`, ""),
			Entry("no container", `{}`, noContainer),
			Entry("a value of the wrong type", `{containers: [{name: di-container, ports: [{containerPort: http}]}]}`,
				`.containers[0].ports[0].containerPort: Invalid value: "http": must be an integer`),
			Entry("containers of one name", `{containers: [{name: a}, {name: a}]}`, `.containers[1].name: Duplicate value: "a"`),
		)
	}

	It("is warned about for what aggregators will not have, once", func(ctx SpecContext) {
		listener, warnings := listening(api.Config)
		config := aggregators("v1alpha1", specs.Namespace(ctx, c), `{containers: [{name: a, imagee: b, env: [{name: AGGREGATOR_PORT}], ports: [{name: di-port, containerPort: 80}]}]}`)
		Expect(listener.Create(ctx, config)).To(Succeed())
		const at = "spec.aggregator.template.spec.containers[0]."
		Expect(warnings.take()).To(Equal([]string{
			`unknown field "` + at + `imagee"`,
			at + "env[0]: is overridden: the operator sets AGGREGATOR_PORT",
			at + "ports[0]: is not advertised: other pods use port 22272, because only di-port of a container named di-container counts",
		}))
		Expect(listener.Patch(ctx, config, jsonPatch(`[{"op":"add","path":"/spec/aggregator/template/spec/hostNetwork","value":true}]`))).To(Succeed())
		Expect(warnings.take()).To(BeEmpty())
	})

	It("that broke a rule before there was one may be changed elsewhere, released and deleted", Serial, func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		label(ctx, namespace, `"true"`)
		spare(ctx, `{"matchExpressions":[{"key":"unguarded","operator":"DoesNotExist"}]}`)
		DeferCleanup(func(ctx SpecContext) { spare(ctx, `{}`) })
		config := aggregators("v1alpha1", namespace, `{containers: [{image: a}]}`)
		config.SetFinalizers([]string{"test/keep"})
		Eventually(func(ctx context.Context) error { return c.Create(ctx, config.DeepCopy()) }).WithContext(ctx).Should(Succeed())
		label(ctx, namespace, "null")
		other := aggregators("v1alpha1", namespace, `{}`)
		other.SetName("other")
		Eventually(func(ctx context.Context) error { return c.Create(ctx, other.DeepCopy(), client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring("denied")), "guarded again")

		Expect(c.Patch(ctx, config, jsonPatch(`[{"op":"add","path":"/spec/aggregator/template/spec/hostNetwork","value":true}]`))).To(Succeed())
		Expect(c.Patch(ctx, config.DeepCopy(), jsonPatch(`[{"op":"add","path":"/spec/aggregator/template/spec/containers/-","value":{}}]`))).To(
			MatchError(refused + ".containers[1].name: Required value: must be a name that is unique in the pod"))
		Expect(c.Delete(ctx, config)).To(Succeed())
		Expect(c.Patch(ctx, config, mergePatch(`{"metadata":{"finalizers":null}}`))).To(Succeed())
	})
})

func TestTheRuleForAggregatorsIsDocumentedWithItsMessage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "validation.md"))
	expect.NoError(t, err)
	if row := " | webhook | `spec.aggregator.template.spec" + noContainer + "` |"; !strings.Contains(string(page), row) {
		t.Errorf("docs/validation.md has no row that ends in%s", row)
	}
}
