// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

const (
	goodTask = `{type: learner, name: learner, replicas: 1, template: {spec: {containers: [{name: a}]}}}`
	badTask  = `{type: none, replicas: 1, template: {spec: {containers: [{name: a}]}}}`
)

func rawJob(t *testing.T, version, spec string) runtime.RawExtension {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte("apiVersion: diengine.opendilab.org/" + version + "\nkind: DIJob\nmetadata: {name: j}\n" + spec))
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: raw}
}

func requestOf(t *testing.T, version, spec, old string) admission.Request {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Name: "j", Object: rawJob(t, version, spec),
	}}
	if old != "" {
		request.Operation = admissionv1.Update
		request.OldObject = rawJob(t, version, old)
	}
	return request
}

func TestAnUpdateIsNotRefusedForWhatWasAlreadySo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ spec, old, want string }{
		"a new fault":               {spec: `spec: {tasks: [` + badTask + `]}`, old: `spec: {tasks: [` + goodTask + `]}`, want: "spec.tasks[0].name"},
		"an old fault":              {spec: `spec: {group: a, tasks: [` + badTask + `]}`, old: `spec: {tasks: [` + badTask + `]}`},
		"an old fault, and another": {spec: `spec: {cleanPodPolicy: x, tasks: [` + badTask + `]}`, old: `spec: {tasks: [` + badTask + `]}`, want: "spec.cleanPodPolicy"},
		"a fault that is mended":    {spec: `spec: {tasks: [` + goodTask + `]}`, old: `spec: {tasks: [` + badTask + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := validating(nil, validateV2)(t.Context(), requestOf(t, "v2alpha1", tc.spec, tc.old))
			if response.Allowed != (tc.want == "") {
				t.Fatalf("allowed: %v, result: %v", response.Allowed, response.Result)
			}
			if tc.want == "" {
				return
			}
			if causes := response.Result.Details.Causes; len(causes) != 1 || causes[0].Field != tc.want {
				t.Errorf("causes: %v, want one at %s", causes, tc.want)
			}
		})
	}
}
