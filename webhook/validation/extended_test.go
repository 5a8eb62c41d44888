// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import "testing"

func TestAWorkerLedJobIsOnlyShownInV1alpha1(t *testing.T) {
	t.Parallel()
	const shown = `spec: {cleanPodPolicy: Running, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: 1000m}}, newer: 1}]}}},
  extended: {lifecycle: WorkerLed, tasks: [{type: none, name: main, replicas: 1, template: {spec: {containers: [{name: a, resources: {limits: {cpu: 1000m}}, newer: 1}]}}}]}}`
	const changed = `spec: this job is worker-led: v1alpha1 shows it and cannot change its spec; use v2alpha1, as in kubectl edit dijobs.v2alpha1.diengine.opendilab.org j`
	const tasks = `extended: {lifecycle: WorkerLed, tasks: [{type: none, name: main, replicas: 1, template: {spec: {containers: [{name: a, resources: {limits: {cpu: 1000m}}, newer: 1}]}}}]}`
	for name, tc := range map[string]struct {
		spec    string
		refused bool
		// old is the stored job. Its default is the variable shown.
		old string
	}{
		"as it was":                         {spec: shown},
		"as a typed client writes it":       {spec: `spec: {group: "", cleanPodPolicy: Running, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {metadata: {creationTimestamp: null}, spec: {containers: [{name: a, resources: {limits: {cpu: "1"}}}]}}}, ` + tasks + `}`},
		"another policy":                    {spec: `spec: {cleanPodPolicy: None, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: 1000m}}, newer: 1}]}}}, ` + tasks + `}`, refused: true},
		"another image":                     {spec: `spec: {cleanPodPolicy: Running, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {spec: {containers: [{name: b}]}}}, ` + tasks + `}`, refused: true},
		"a collector":                       {spec: `spec: {cleanPodPolicy: Running, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: "1"}}}]}}}, collector: {template: {spec: {containers: [{name: b}]}}}, ` + tasks + `}`, refused: true},
		"extended emptied, as if to be led": {spec: `spec: {cleanPodPolicy: Running, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {spec: {containers: [{name: a}]}}}, extended: {}}`, refused: true},
		"another count of replicas":         {spec: `spec: {cleanPodPolicy: Running, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: "1"}}}]}}}, extended: {lifecycle: WorkerLed, tasks: [{type: none, name: main, replicas: 2}]}}`, refused: true},
		"another template inside extended":  {spec: `spec: {cleanPodPolicy: Running, volumes: [{name: v, emptyDir: {}}], coordinator: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: "1"}}}]}}}, extended: {lifecycle: WorkerLed, tasks: [{type: none, name: main, replicas: 1, template: {spec: {containers: [{name: b}]}}}]}}`, refused: true},
		"a number that differs beyond the precision of floats": {
			old:  `spec: {coordinator: {}, extended: {lifecycle: WorkerLed, activeDeadlineSeconds: 9007199254740993}}`,
			spec: `spec: {coordinator: {}, extended: {lifecycle: WorkerLed, activeDeadlineSeconds: 9007199254740992}}`, refused: true},
		"an empty selector, which selects all, becomes none": {
			old:  `spec: {coordinator: {}, extended: {lifecycle: WorkerLed}, volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: a, labelSelector: {}}}]}}]}`,
			spec: `spec: {coordinator: {}, extended: {lifecycle: WorkerLed}, volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: a}}]}}]}`, refused: true},
		"volumes as a typed client writes them": {
			old:  `spec: {coordinator: {}, extended: {lifecycle: WorkerLed}, volumes: [{name: v, projected: {sources: []}}]}`,
			spec: `spec: {group: "", coordinator: {}, extended: {lifecycle: WorkerLed}, volumes: [{name: v, projected: {sources: null}}]}`},
		"without volumes, which v1 can hold": {spec: `spec: {cleanPodPolicy: Running, coordinator: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: "1"}}}]}}}, ` + tasks + `}`, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := shown
			if tc.old != "" {
				old = tc.old
			}
			answer := ask(t, validateView, "v1alpha1", tc.spec, old)
			if answer.allowed() == tc.refused {
				t.Fatalf("errors: %v", answer.errors)
			}
			if want := "spec: Forbidden: " + changed[len("spec: "):]; tc.refused && answer.errors[0] != want {
				t.Errorf("got %v, want %s", answer.errors, want)
			}
		})
	}
}
