// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jsontype

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// The test sets every member of a pod template to every kind of value. The comparison must reject
// exactly what the decoder rejects, and find exactly the fields that the strict decoder does not
// know.
func TestTheComparisonAgreesWithTheDecoderOnEveryFieldOfATemplate(t *testing.T) {
	t.Parallel()
	var whole any
	raw, err := json.Marshal(fullTemplate())
	if err == nil {
		err = json.Unmarshal(raw, &whole)
	}
	expect.NoError(t, err)
	nodes := 0
	everyNode(whole, func(doc string) string { return doc }, func(around func(string) string) {
		nodes++
		for _, value := range []string{
			`null`, `true`, `1`, `-1`, `1.5`, `1e2`, `3000000000`, `9223372036854775808`, `"x"`, `"1"`, `"MQ=="`, `"2006-01-02T15:04:05Z"`,
			`""`, `[]`, `[1]`, `["x"]`, `[{}]`, `[null]`, `{}`, `{"a":1}`, `{"a":"x"}`,
		} {
			agree(t, around(value))
		}
	})
	if nodes < 1000 {
		t.Fatalf("the template has only %d members", nodes)
	}
}

func agree(t *testing.T, doc string) {
	t.Helper()
	found := Compare([]byte(doc), reflect.TypeFor[corev1.PodTemplateSpec](), field.NewPath("t"))
	unknown, err := kjson.UnmarshalStrict([]byte(doc), &corev1.PodTemplateSpec{}, kjson.DisallowUnknownFields)
	if (err != nil) != (len(found.Mistyped) > 0) {
		t.Errorf("%s: the decoder says %v, the comparison %v", doc, err, found.Mistyped)
	}
	if err == nil && len(unknown) != len(found.Unknown) {
		t.Errorf("%s: the decoder does not know %v, the comparison %v", doc, unknown, found.Unknown)
	}
}

// fullTemplate returns a template with every field, and one item in every list and map.
func fullTemplate() *corev1.PodTemplateSpec {
	template := &corev1.PodTemplateSpec{}
	filler := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 1).MaxDepth(40).Funcs(
		func(q *resource.Quantity, _ randfill.Continue) { *q = resource.MustParse("1") },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte(`{}`)) },
	)
	filler.Fill(template)
	return template
}

// everyNode calls a function for each member below a decoded value. The function around returns a
// document that contains only the path to that member, and a value there.
func everyNode(value any, around func(string) string, visit func(around func(string) string)) {
	visit(around)
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			// A string encodes.
			quoted, _ := json.Marshal(key)
			everyNode(member, func(doc string) string { return around(`{` + string(quoted) + `:` + doc + `}`) }, visit)
		}
	case []any:
		for _, item := range value {
			everyNode(item, func(doc string) string { return around(`[` + doc + `]`) }, visit)
		}
	}
}
