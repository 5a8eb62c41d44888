// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/podschema"
)

// Every member of a pod template, with every kind of value in its place: the
// comparison refuses what the decoder refuses, and finds the fields that the
// strict decoder does not know, no more and no less.
func TestTheComparisonAgreesWithTheDecoderOnEveryFieldOfATemplate(t *testing.T) {
	t.Parallel()
	var whole any
	raw, err := json.Marshal(fullTemplate())
	if err == nil {
		err = json.Unmarshal(raw, &whole)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	found := compare([]byte(doc), reflect.TypeFor[corev1.PodTemplateSpec](), field.NewPath("t"))
	unknown, err := kjson.UnmarshalStrict([]byte(doc), &corev1.PodTemplateSpec{}, kjson.DisallowUnknownFields)
	if (err != nil) != (len(found.mistyped) > 0) {
		t.Errorf("%s: the decoder says %v, the comparison %v", doc, err, found.mistyped)
	}
	if err == nil && len(unknown) != len(found.unknown) {
		t.Errorf("%s: the decoder does not know %v, the comparison %v", doc, unknown, found.unknown)
	}
}

// To decode this quantity takes an hour, and nothing cancels it.
func TestAQuantityThatCostsIsRefusedByItsPathAndNotDecoded(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`"1e-2000000000"`, `1e2000000000`, `"1\u0065-2000000000"`} {
		errs := validateTemplate([]byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"memory":`+value+`}}}]}}`), field.NewPath("t"))
		if len(errs) != 1 || errs[0].Field != "t.spec.containers[0].resources.limits[memory]" {
			t.Errorf("%s: %v, want an error at the limit", value, errs)
		}
	}
}

func TestAStoredQuantityThatCostsIsComparedAsItIsWritten(t *testing.T) {
	t.Parallel()
	stored := rawObject([]byte(`{"name":"v","emptyDir":{"sizeLimit":"1e-2000000000"}}`))
	other := rawObject([]byte(`{"name":"v","emptyDir":{"sizeLimit":"1e-2000000001"}}`))
	spaced := rawObject(append([]byte(" "), stored.Raw...))
	if !sameVolumes([]v2alpha1.RawObject{stored}, []v2alpha1.RawObject{spaced}) {
		t.Error("the same volume is told apart")
	}
	if sameVolumes([]v2alpha1.RawObject{stored}, []v2alpha1.RawObject{other}) {
		t.Error("two volumes are taken for one")
	}
	spec := &v2alpha1.DIJobSpec{}
	template := func(limit string) *v2alpha1.Task {
		return &v2alpha1.Task{Template: rawObject([]byte(`{"spec":{"overhead":{"cpu":"` + limit + `"}}}`))}
	}
	if sameTemplate(spec, template("1e-2000000000"), template("1e-2000000001")) {
		t.Error("two templates are taken for one")
	}
}

func rawObject(content []byte) v2alpha1.RawObject {
	var raw v2alpha1.RawObject
	raw.Raw = content
	return raw
}

// fullTemplate has every field, and one item in every list and map.
func fullTemplate() *corev1.PodTemplateSpec {
	template := &corev1.PodTemplateSpec{}
	filler := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 1).MaxDepth(40).Funcs(
		func(q *resource.Quantity, _ randfill.Continue) { *q = resource.MustParse("1") },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte(`{}`)) },
	)
	filler.Fill(template)
	return template
}

// everyNode visits each member below a decoded value with a function that
// returns a document of nothing but the way to that member, and a value there.
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

// newerPods is the schema of an API server whose pods have a field that the Go
// types of this program do not know.
func newerPods(t *testing.T) podFields {
	t.Helper()
	schema, err := podschema.Parse([]byte(`{"components":{"schemas":{
		"io.k8s.api.core.v1.PodTemplateSpec":{"properties":{"spec":{"properties":{"newer":{"type":"string"},
			"containers":{"items":{"properties":{"name":{"type":"string"}}}}}}}},
		"io.k8s.api.core.v1.Volume":{"properties":{"name":{"type":"string"}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context) *podschema.Schema { return schema }
}

func TestWhoseWordItIsThatAFieldIsUnknown(t *testing.T) {
	t.Parallel()
	const refusal = ": Invalid value: unknown field: pods have none of this name here; correct it, or write with --validate=warn to keep it"
	const at = "spec.tasks[0].template.spec."
	for name, tc := range map[string]struct {
		fields           podFields
		validation       string
		pod, old         string
		errors, warnings []string
	}{
		"one that the API server knows":                                  {fields: newerPods(t), validation: "Strict", pod: `{newer: a, containers: [{name: a}]}`},
		"one that only our types know":                                   {fields: newerPods(t), validation: "Strict", pod: `{containers: [{name: a, image: b}]}`, errors: []string{at + "containers[0].image" + refusal}},
		"one that only our types know, not strictly":                     {fields: newerPods(t), validation: "Warn", pod: `{containers: [{name: a, image: b}]}`, warnings: []string{`unknown field "` + at + `containers[0].image"`}},
		"one that nobody knows, to a writer who says nothing":            {fields: newerPods(t), pod: `{other: b, containers: [{name: a}]}`, warnings: []string{`unknown field "` + at + `other"`}},
		"one that nobody knows, to a writer who does not care":           {fields: newerPods(t), validation: "Ignore", pod: `{other: b, containers: [{name: a}]}`},
		"one that was there before":                                      {fields: newerPods(t), validation: "Strict", pod: `{other: b, containers: [{name: b}]}`, old: `{other: a, containers: [{name: b}]}`},
		"without the API server's schema":                                {validation: "Strict", pod: `{newer: a, containers: [{name: a}]}`, warnings: []string{`unknown field "` + at + `newer"`}},
		"without the API server's schema, to a writer who does not care": {validation: "Ignore", pod: `{newer: a, containers: [{name: a}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := ""
			if tc.old != "" {
				old = workerTask(tc.old)
			}
			request := requestOf(t, "v2alpha1", workerTask(tc.pod), old)
			request.Options.Raw = []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldValidation":"` + tc.validation + `"}`)
			response := validating(tc.fields, validateV2)(t.Context(), request)
			var errs []string
			if response.Result != nil && response.Result.Details != nil {
				for _, cause := range response.Result.Details.Causes {
					errs = append(errs, cause.Field+": "+cause.Message)
				}
			}
			warnings := slices.DeleteFunc(response.Warnings, func(warning string) bool { return !strings.HasPrefix(warning, "unknown field") })
			if diff := cmp.Diff(tc.errors, errs); diff != "" || response.Allowed != (len(errs) == 0) {
				t.Errorf("allowed: %v, errors (-want +got):\n%s", response.Allowed, diff)
			}
			if diff := cmp.Diff(tc.warnings, warnings, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
