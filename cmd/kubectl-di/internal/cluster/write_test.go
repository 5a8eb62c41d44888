// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestARefusalOfANameHasNoRegularExpression(t *testing.T) {
	t.Parallel()
	for name, messages := range map[string][]string{
		"A_b": validation.IsDNS1123Subdomain("A_b"),
		"A b": validation.IsValidLabelValue("A b"),
		"1-a": validation.IsDNS1035Label("1-a"),
		"a b": validation.IsQualifiedName("a b"),
		"a=":  validation.IsEnvVarName("a="),
	} {
		if len(messages) != 1 {
			t.Fatalf("%s: got %q", name, messages)
		}
		wrong := field.Invalid(field.NewPath("metadata", "name"), name, messages[0])
		got := refusal(apierrors.NewInvalid(schema.GroupKind{Kind: "DIJob"}, name, field.ErrorList{wrong}))
		if want := `  metadata.name: Invalid value: "` + name + `": `; !strings.HasPrefix(got, want) || strings.Contains(got, "regex") {
			t.Errorf("got %s", got)
		}
		if !strings.HasSuffix(got, "')") && !strings.HasSuffix(got, "character") {
			t.Errorf("the end of the sentence is gone: %s", got)
		}
	}
}
