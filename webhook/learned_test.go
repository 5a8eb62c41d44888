// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// awaitLearned returns when the API server has observed everything that was published until now,
// and no call that began earlier is in flight. The clocks of tests run faster than API servers
// observe changes; servers of webhooks wait for that time.
//
// API servers observe the objects of a kind in the order of the changes. When a later change takes
// effect, so do the earlier ones.
func (c *cluster) awaitLearned(ctx context.Context, calling *caller) {
	GinkgoHelper()
	c.marks++
	mark := fmt.Sprintf("mark%d", c.marks)
	for _, object := range []*unstructured.Unstructured{
		markedDefinition(mark), markedWebhooks("MutatingWebhookConfiguration", mark), markedWebhooks("ValidatingWebhookConfiguration", mark),
	} {
		Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership)).To(Succeed())
	}
	Eventually(func() (string, error) { return c.columns(ctx) }).WithContext(ctx).Should(ContainSubstring(`"` + mark + `"`))
	for _, kind := range []string{"mutating", "validating"} {
		marked := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "marked", Labels: map[string]string{"marked": kind}}}
		Eventually(func() error { return c.Create(ctx, marked.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(
			MatchError(ContainSubstring(mark + "." + kind + ".test")))
	}
	calling.rest.Lock()
	defer calling.rest.Unlock()
}

// markedDefinition defines a kind that has a column of the mark's name.
func markedDefinition(mark string) *unstructured.Unstructured {
	return specs.Object(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: marks.mark.test}
spec:
  group: mark.test
  scope: Namespaced
  names: {kind: Mark, listKind: MarkList, plural: marks, singular: mark}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
    additionalPrinterColumns: [{name: ` + mark + `, type: string, jsonPath: .metadata.name}]
`)
}

// columns returns the API server's table of marks, as JSON.
func (c *cluster) columns(ctx context.Context) (string, error) {
	asking, err := rest.HTTPClientFor(c.environment.Config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.environment.Config.Host, "/")+"/apis/mark.test/v1/marks", http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	response, err := asking.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return string(content), err
}

// markedWebhooks returns a configuration without a server, for objects with a label of the kind.
func markedWebhooks(kind, mark string) *unstructured.Unstructured {
	GinkgoHelper()
	short := strings.ToLower(strings.TrimSuffix(kind, "WebhookConfiguration"))
	return specs.Object(`
apiVersion: admissionregistration.k8s.io/v1
kind: ` + kind + `
metadata: {name: marked}
webhooks:
- name: ` + mark + `.` + short + `.test
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {url: "https://127.0.0.1:1"}
  objectSelector: {matchLabels: {marked: ` + short + `}}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
`)
}
