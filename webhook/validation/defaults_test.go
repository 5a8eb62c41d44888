// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	twoTasks = `{type: learner, name: learner, replicas: 2}, {type: collector, name: collector, replicas: 3}`
	// settled contains fields that defaulting does not change.
	settled = `cleanPodPolicy: All, backoffLimit: 0, priority: high, `
)

// defaulted is a job, its stored form for an update, and the changes by defaulting.
type defaulted struct {
	spec, old string
	want      []string
}

// expectPatches checks that defaulting makes the expected changes and no others.
func expectPatches(t *testing.T, version string, defaults func(*Request) (Patch, error), cases map[string]defaulted) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := requestOf(t, version, tc.spec, tc.old)
			expect.NoError(t, request.Decode())
			patch, err := defaults(request)
			expect.NoError(t, err)
			var got []string
			for _, operation := range patch {
				value, err := json.Marshal(operation.Value)
				expect.NoError(t, err)
				got = append(got, strings.TrimSuffix(strings.Join([]string{operation.Operation, operation.Path, string(value)}, " "), " null"))
			}
			expect.Equal(t, "patch", tc.want, got)
		})
	}
}

func TestDefaultsOfV1alpha1PatchNothingElse(t *testing.T) {
	t.Parallel()
	expectPatches(t, "v1alpha1", DefaultV1, map[string]defaulted{
		"nothing said": {spec: `spec: {coordinator: {}}`,
			want: []string{`add /spec/cleanPodPolicy "Running"`}},
		"any letter case": {spec: `spec: {coordinator: {}, cleanPodPolicy: nONE}`,
			want: []string{`add /spec/cleanPodPolicy "None"`}},
		"an unknown policy": {spec: `spec: {coordinator: {}, cleanPodPolicy: x}`},
		"no spec":           {spec: ``},
		"an old manifest": {spec: `spec: {cleanPodPolicy: All, coordinator: {}}`,
			old:  `spec: {coordinator: {}, extended: {suspend: true}}`,
			want: []string{`add /spec/extended {"suspend":true}`}},
		"a serial job of a typed client": {spec: `spec: {cleanPodPolicy: All, coordinator: {}, collector: {template: {metadata: {creationTimestamp: null}, spec: {containers: null}}}, learner: {template: {metadata: {}, spec: {containers: null}}}}`,
			want: []string{`remove /spec/collector`, `remove /spec/learner`}},
		"roles that a person left empty":            {spec: `spec: {cleanPodPolicy: All, coordinator: {}, collector: {}, learner: {template: {spec: {containers: []}}}}`},
		"roles without a container":                 {spec: `spec: {cleanPodPolicy: All, coordinator: {}, collector: {template: {spec: {containers: null, hostNetwork: true}}}, learner: {template: {metadata: {labels: {a: ""}}, spec: {containers: null}}}}`},
		"an empty coordinator":                      {spec: `spec: {cleanPodPolicy: All, coordinator: {template: {metadata: {creationTimestamp: null}, spec: {containers: null}}}}`},
		"a typed client's view of a worker-led job": {spec: `spec: {coordinator: {}, collector: {template: {spec: {containers: null}}}, extended: {lifecycle: WorkerLed}}`},
	})
}

func TestDefaultsOfV2alpha1PatchNothingElse(t *testing.T) {
	t.Parallel()
	expectPatches(t, "v2alpha1", DefaultV2, map[string]defaulted{
		"no spec": {spec: ``},
		"led by its coordinator": {spec: `spec: {lifecycle: CoordinatorLed, cleanPodPolicy: All, tasks: [{type: coordinator}, {type: learner}]}`,
			want: []string{`add /spec/backoffLimit 0`, `add /spec/tasks/0/name "coordinator"`, `add /spec/tasks/0/replicas 1`,
				`add /spec/tasks/1/name "learner"`, `add /spec/tasks/1/replicas 0`}},
		"a named task without a type, as v1.1.x took it": {spec: `spec: {cleanPodPolicy: All, backoffLimit: 0, priority: high, elastic: {task: main, replicas: 1}, tasks: [{name: main, replicas: 1}]}`,
			want: []string{`add /spec/tasks/0/type "none"`}},
		"a task without type and name": {spec: `spec: {` + settled + `elastic: {replicas: 1}, tasks: [{replicas: 1}]}`,
			want: []string{`add /spec/tasks/0/name ""`, `add /spec/elastic/task ""`}},
		"the lifecycle is kept": {spec: `spec: {cleanPodPolicy: All, backoffLimit: 0}`, old: `spec: {lifecycle: CoordinatorLed}`,
			want: []string{`add /spec/lifecycle "CoordinatorLed"`}},
	})
}

func TestTheElasticTaskAndItsCountsFollowWhatWasChanged(t *testing.T) {
	t.Parallel()
	expectPatches(t, "v2alpha1", DefaultV2, map[string]defaulted{
		"the only task is elastic": {spec: `spec: {cleanPodPolicy: All, backoffLimit: 0, priority: high, tasks: [{type: none, name: main, replicas: 2}]}`,
			want: []string{`add /spec/elastic {"replicas":2,"task":"main"}`}},
		"elastic wins in a new job": {spec: `spec: {cleanPodPolicy: All, backoffLimit: 0, priority: high, elastic: {task: main, replicas: 4}, tasks: [{type: none, name: main, replicas: 2}]}`,
			want: []string{`add /spec/tasks/0/replicas 4`}},
		"a count below 0 stays where it was written": {spec: `spec: {` + settled + `elastic: {task: main, replicas: -4}, tasks: [{type: none, name: main, replicas: 2}]}`},
		"the defaulted elastic task is removed": {old: `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [{type: learner, name: learner, replicas: 2}]}`,
			want: []string{`add /spec/elastic/task "learner"`, `add /spec/elastic/replicas 2`}},
		"the defaulted elastic task is renamed": {old: `spec: {` + settled + `elastic: {task: main, replicas: 2, maxReplicas: 4}, tasks: [{type: none, name: main, replicas: 2}]}`,
			spec: `spec: {` + settled + `elastic: {task: main, replicas: 2, maxReplicas: 4}, tasks: [{type: none, name: trunk, replicas: 2}]}`,
			want: []string{`add /spec/elastic/task "trunk"`, `add /spec/elastic/replicas 2`}},
		"the defaulted elastic task is removed and the other resized": {old: `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 5}, tasks: [{type: learner, name: learner, replicas: 2}]}`,
			want: []string{`add /spec/elastic/task "learner"`, `add /spec/tasks/0/replicas 5`}},
		"the defaulted elastic task is removed and nothing can be": {old: `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 3}, tasks: [{type: learner, name: learner, replicas: 2}, {type: evaluator, name: evaluator, replicas: 1}]}`,
			want: []string{`remove /spec/elastic`}},
		"the defaulted elastic task is removed and its bounds are not": {old: `spec: {` + settled + `elastic: {task: collector, replicas: 3, minReplicas: 1}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: collector, replicas: 3, minReplicas: 1}, tasks: [{type: learner, name: learner, replicas: 2}, {type: evaluator, name: evaluator, replicas: 1}]}`,
			want: []string{`remove /spec/elastic/task`, `remove /spec/elastic/replicas`}},
		"a client built for v1.1.3 that changes something else keeps what the job was scaled to": {
			old:  `spec: {` + settled + `elastic: {task: main, replicas: 5}, tasks: [{type: none, name: main, replicas: 2}]}`,
			spec: `spec: {` + settled + `tasks: [{type: none, name: main, replicas: 2}]}`,
			want: []string{`add /spec/elastic {"replicas":5,"task":"main"}`}},
		"a client built for v1.1.3 that resizes the task": {
			old:  `spec: {` + settled + `elastic: {task: main, replicas: 5}, tasks: [{type: none, name: main, replicas: 2}]}`,
			spec: `spec: {` + settled + `tasks: [{type: none, name: main, replicas: 3}]}`,
			want: []string{`add /spec/elastic {"replicas":3,"task":"main"}`}},
		"an update that leaves out the count alone": {
			old:  `spec: {` + settled + `elastic: {task: main, replicas: 5, maxReplicas: 9}, tasks: [{type: none, name: main, replicas: 2}]}`,
			spec: `spec: {` + settled + `elastic: {task: main, maxReplicas: 9}, tasks: [{type: none, name: main, replicas: 2}]}`,
			want: []string{`add /spec/elastic/replicas 5`}},
		"an elastic task that its author named is removed": {old: `spec: {` + settled + `elastic: {task: learner, replicas: 2}, tasks: [` + twoTasks + `]}`,
			spec: `spec: {` + settled + `elastic: {task: learner, replicas: 2}, tasks: [{type: collector, name: collector, replicas: 3}]}`},
	})
}
