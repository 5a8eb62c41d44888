// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/config/crd"
)

// kubectl apply stores the applied object in an annotation, whose maximum is 256 KiB.
func TestADefinitionStaysSmall(t *testing.T) {
	t.Parallel()
	const budget = 256 << 10
	for _, content := range crd.All() {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(definition)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s takes %d bytes", definition.Name, len(encoded))
		if len(encoded) >= budget {
			t.Errorf("%s takes %d bytes, want fewer than %d", definition.Name, len(encoded), budget)
		}
	}
}
