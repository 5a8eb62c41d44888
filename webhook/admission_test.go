// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

const (
	goodTask = `{type: learner, name: learner, replicas: 1, template: {spec: {containers: [{name: a}]}}}`
	twoTasks = `{type: learner, name: learner, replicas: 2}, {type: collector, name: collector, replicas: 3}`
	// settled is what defaults leave alone.
	settled = `cleanPodPolicy: All, backoffLimit: 0, priority: high, `
	badTask = `{type: none, replicas: 1, template: {spec: {containers: [{name: a}]}}}`
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
			response := validating(validateV2)(t.Context(), requestOf(t, "v2alpha1", tc.spec, tc.old))
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

func TestDefaultsPatchNothingElse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version, spec, old string
		handle             func(*question) (patch, error)
		want               []string
	}{
		"v1alpha1, nothing said": {version: "v1alpha1", handle: defaultV1, spec: `spec: {coordinator: {}}`,
			want: []string{`add /spec/cleanPodPolicy "Running"`}},
		"v1alpha1, any letter case": {version: "v1alpha1", handle: defaultV1, spec: `spec: {coordinator: {}, cleanPodPolicy: nONE}`,
			want: []string{`add /spec/cleanPodPolicy "None"`}},
		"v1alpha1, an unknown policy": {version: "v1alpha1", handle: defaultV1, spec: `spec: {coordinator: {}, cleanPodPolicy: x}`},
		"v1alpha1, no spec":           {version: "v1alpha1", handle: defaultV1, spec: ``},
		"v1alpha1, an old manifest": {version: "v1alpha1", handle: defaultV1, spec: `spec: {cleanPodPolicy: All, coordinator: {}}`,
			old:  `spec: {coordinator: {}, extended: {suspend: true}}`,
			want: []string{`add /spec/extended {"suspend":true}`}},
		"v1alpha1, a serial job of a typed client": {version: "v1alpha1", handle: defaultV1,
			spec: `spec: {cleanPodPolicy: All, coordinator: {}, collector: {template: {metadata: {creationTimestamp: null}, spec: {containers: null}}}, learner: {template: {metadata: {}, spec: {containers: null}}}}`,
			want: []string{`remove /spec/collector null`, `remove /spec/learner null`}},
		"v1alpha1, roles that a person left empty": {version: "v1alpha1", handle: defaultV1,
			spec: `spec: {cleanPodPolicy: All, coordinator: {}, collector: {}, learner: {template: {spec: {containers: []}}}}`},
		"v1alpha1, roles without a container": {version: "v1alpha1", handle: defaultV1,
			spec: `spec: {cleanPodPolicy: All, coordinator: {}, collector: {template: {spec: {containers: null, hostNetwork: true}}}, learner: {template: {metadata: {labels: {a: ""}}, spec: {containers: null}}}}`},
		"v1alpha1, an empty coordinator": {version: "v1alpha1", handle: defaultV1,
			spec: `spec: {cleanPodPolicy: All, coordinator: {template: {metadata: {creationTimestamp: null}, spec: {containers: null}}}}`},
		"v1alpha1, a typed client's view of a worker-led job": {version: "v1alpha1", handle: defaultV1,
			spec: `spec: {coordinator: {}, collector: {template: {spec: {containers: null}}}, extended: {lifecycle: WorkerLed}}`},
		"v2alpha1, no spec": {version: "v2alpha1", handle: defaultV2, spec: ``},
		"v2alpha1, led by its coordinator": {version: "v2alpha1", handle: defaultV2,
			spec: `spec: {lifecycle: CoordinatorLed, cleanPodPolicy: All, tasks: [{type: coordinator}, {type: learner}]}`,
			want: []string{`add /spec/backoffLimit 0`, `add /spec/tasks/0/name "coordinator"`, `add /spec/tasks/0/replicas 1`,
				`add /spec/tasks/1/name "learner"`, `add /spec/tasks/1/replicas 0`}},
		"v2alpha1, the lifecycle is kept": {version: "v2alpha1", handle: defaultV2,
			spec: `spec: {cleanPodPolicy: All, backoffLimit: 0}`, old: `spec: {lifecycle: CoordinatorLed}`,
			want: []string{`add /spec/lifecycle "CoordinatorLed"`}},
		"v2alpha1, the only task is elastic": {version: "v2alpha1", handle: defaultV2,
			spec: `spec: {cleanPodPolicy: All, backoffLimit: 0, priority: high, tasks: [{type: none, name: main, replicas: 2}]}`,
			want: []string{`add /spec/elastic {"replicas":2,"task":"main"}`}},
		"v2alpha1, elastic wins in a new job": {version: "v2alpha1", handle: defaultV2,
			spec: `spec: {cleanPodPolicy: All, backoffLimit: 0, priority: high, elastic: {task: main, replicas: 4}, tasks: [{type: none, name: main, replicas: 2}]}`,
			want: []string{`add /spec/tasks/0/replicas 4`}},
		"v2alpha1, a count below 0 stays where it was written": {version: "v2alpha1", handle: defaultV2,
			spec: `spec: {` + settled + `elastic: {task: main, replicas: -4}, tasks: [{type: none, name: main, replicas: 2}]}`},
		"v2alpha1, the defaulted elastic task is removed": {version: "v2alpha1", handle: defaultV2,
			old:  `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [{type: learner, name: learner, replicas: 2}]}`,
			want: []string{`add /spec/elastic/task "learner"`, `add /spec/elastic/replicas 2`}},
		"v2alpha1, the defaulted elastic task is renamed": {version: "v2alpha1", handle: defaultV2,
			old:  `spec: {` + settled + `elastic: {task: main, replicas: 2, maxReplicas: 4}, tasks: [{type: none, name: main, replicas: 2}]}`,
			spec: `spec: {` + settled + `elastic: {task: main, replicas: 2, maxReplicas: 4}, tasks: [{type: none, name: trunk, replicas: 2}]}`,
			want: []string{`add /spec/elastic/task "trunk"`, `add /spec/elastic/replicas 2`}},
		"v2alpha1, the defaulted elastic task is removed and the other resized": {version: "v2alpha1", handle: defaultV2,
			old:  `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 5}, tasks: [{type: learner, name: learner, replicas: 2}]}`,
			want: []string{`add /spec/elastic/task "learner"`, `add /spec/tasks/0/replicas 5`}},
		"v2alpha1, the defaulted elastic task is removed and nothing can be": {version: "v2alpha1", handle: defaultV2,
			old:  `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [{type: learner, name: learner, replicas: 2}, {type: evaluator, name: evaluator, replicas: 1}]}`,
			want: []string{`remove /spec/elastic null`}},
		"v2alpha1, the defaulted elastic task is removed and its bounds are not": {version: "v2alpha1", handle: defaultV2,
			old:  `spec: {` + settled + `elastic: {task: collector, replicas: 3, minReplicas: 1}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 3, minReplicas: 1}, tasks: [{type: learner, name: learner, replicas: 2}, {type: evaluator, name: evaluator, replicas: 1}]}`,
			want: []string{`remove /spec/elastic/task null`, `remove /spec/elastic/replicas null`}},
		"v2alpha1, an elastic task that its author named is removed": {version: "v2alpha1", handle: defaultV2,
			old:  `spec: {` + settled + `elastic: {task: learner, replicas: 2}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: learner, replicas: 2}, tasks: [{type: collector, name: collector, replicas: 3}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := mutating(tc.handle)(t.Context(), requestOf(t, tc.version, tc.spec, tc.old))
			if !response.Allowed {
				t.Fatalf("refused: %v", response.Result)
			}
			var got []string
			for _, operation := range response.Patches {
				value, err := json.Marshal(operation.Value)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, strings.Join([]string{operation.Operation, operation.Path, string(value)}, " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
