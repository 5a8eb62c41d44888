// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/webhook/podschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// jobOfPod returns a job of one task whose pods have a spec.
func jobOfPod(t *testing.T, spec string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte("apiVersion: diengine.opendilab.org/v2alpha1\nkind: DIJob\nmetadata: {name: j}\n" +
		"spec: {tasks: [{type: none, name: main, replicas: 1, template: {spec: " + spec + "}}]}"))
	expect.NoError(t, err)
	return raw
}

// newerPods returns the schema of an API server whose pods have a field that this program's Go
// types do not know.
func newerPods(t *testing.T) podFields {
	t.Helper()
	schema, err := podschema.Parse([]byte(`{"components":{"schemas":{
		"io.k8s.api.core.v1.PodTemplateSpec":{"properties":{"spec":{"properties":{"newer":{"type":"string"},
			"containers":{"items":{"properties":{"name":{"type":"string"}}}}}}}},
		"io.k8s.api.core.v1.Volume":{"properties":{"name":{"type":"string"}}}}}}`))
	expect.NoError(t, err)
	return func(context.Context) *podschema.Schema { return schema }
}

func TestWhoseWordItIsThatAFieldIsUnknown(t *testing.T) {
	t.Parallel()
	const refusal = ": Invalid value: unknown field: pods in this cluster have no such field; correct it, or write with --validate=warn to keep it"
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
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "j"}}
			request.Object.Raw = jobOfPod(t, tc.pod)
			if tc.old != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, jobOfPod(t, tc.old)
			}
			request.Options.Raw = []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldValidation":"` + tc.validation + `"}`)
			response := hooks{fields: tc.fields}.validating(validation.NewRules(nil, validation.Bounds{}).ValidateV2)(t.Context(), request)
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

func TestWarningsFitWhatTheAPIServerPassesOn(t *testing.T) {
	t.Parallel()
	var long []string
	for range 300 {
		long = append(long, string(make([]byte, 300)))
	}
	total := 0
	for _, warning := range bounded(long) {
		if len(warning) > 256 {
			t.Errorf("a warning of %d characters is cut by the API server", len(warning))
		}
		total += len(warning)
	}
	if total > 4096 {
		t.Errorf("warnings of %d characters are cut by the API server", total)
	}
}
