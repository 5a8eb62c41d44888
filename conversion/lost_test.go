// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestWhatIsLostIsNamedByItsPath(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		v1   string
		want []string
	}{
		"nothing of an empty job": {``, nil},
		"nothing of a v1alpha1 job": {
			"spec: {group: g, cleanPodPolicy: rUNNING, volumes: [{name: a}], coordinator: {template: {a: [1, {b: null}]}}, learner: {}}\n" +
				"status: {phase: Pending, replicaStatus: {Learner: {active: 1}}}", nil,
		},
		"nothing where extended says what is implied": {
			`spec: {coordinator: {}, extended: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: [{type: coordinator, name: coordinator, replicas: 1}]}}`, nil,
		},
		"nothing of an empty extended": {`spec: {coordinator: {}, extended: {}}`, nil},
		"nothing where null is said":   {`spec: {coordinator: {}, extended: {suspend: null, volumes: null}}`, nil},
		"a worker-led job's own roles": {
			`spec: {coordinator: {template: {a: 1}}, learner: {template: {b: 2}}, collector: {},
			  extended: {lifecycle: WorkerLed, tasks: [{type: learner, template: {b: 1}}]}}`,
			[]string{"spec.collector", "spec.coordinator.template", "spec.learner.template.b"},
		},
		"nothing of a worker-led job that is written as it is shown": {
			`spec: {coordinator: {}, extended: {lifecycle: "", tasks: [{type: learner, template: {b: 1}}]}}`, nil,
		},
		"fields of v1alpha1 in extended": {
			`spec: {group: a, coordinator: {}, extended: {group: b, cleanPodPolicy: All, volumes: []}}`,
			[]string{"spec.extended.cleanPodPolicy", "spec.extended.group", "spec.extended.volumes"},
		},
		"values that v2alpha1 cannot hold": {
			"spec: {coordinator: {}, extended: {suspend: 'yes', elastic: {minReplicas: 1, task: 2}, priority: high}}\n" +
				"status: {phase: Running, extended: {replicas: [], phase: 3, taskStatus: 1, restarts: 1}}",
			[]string{
				"spec.extended.elastic", "spec.extended.suspend",
				"status.extended.phase", "status.extended.replicas", "status.extended.taskStatus",
			},
		},
		"tasks that are no list":     {`spec: {coordinator: {}, extended: {tasks: {}}}`, []string{"spec.extended.tasks"}},
		"a field of v2alpha1 itself": {`spec: {coordinator: {}, suspend: true}`, []string{"spec.suspend"}},
		"nothing of newer fields":    {"spec: {coordinator: {}, newer: {a: [1]}}\nstatus: {newer: 1, extended: {restarts: 1, newest: 2}}", nil},
		"a list of a worker-led job's own role": {
			`spec: {coordinator: {template: {a: [1, 2], b: [1], c: [1]}}, extended: {lifecycle: "", tasks: [{type: none, template: {a: [1, 3], b: [1, 1], c: [1], d: 1}}]}}`,
			[]string{"spec.coordinator.template.a", "spec.coordinator.template.b"},
		},
		"numbers that differ by little": {
			`spec: {coordinator: {template: {a: 9007199254740993}}, extended: {lifecycle: "", tasks: [{type: none, template: {a: 9007199254740992}}]}}`,
			[]string{"spec.coordinator.template.a"},
		},
		"a role that is no object": {`spec: {coordinator: 3}`, []string{"spec.coordinator"}},
		"templates of listed tasks that v1alpha1 overrules": {
			`spec: {coordinator: {template: {a: 1}}, extended: {tasks: [
			  {type: collector, name: roll, template: {b: 1}}, {type: collector, name: second, template: {c: 1}},
			  {type: coordinator, template: {a: 2}}]}}`,
			[]string{"spec.extended.tasks[0].template", "spec.extended.tasks[2].template.a"},
		},
		"nothing where an edit has removed a role": {
			`spec: {coordinator: {}, extended: {tasks: [{type: collector, name: roll}, {type: coordinator, replicas: 1}, {type: learner, replicas: 3}]}}`, nil,
		},
		"nothing where v1alpha1 has written phase and counts": {
			`status: {phase: Failed, replicaStatus: {}, extended: {phase: Starting, taskStatus: {a: {Pending: 1}}}}`, nil,
		},
		"what a role says beside its pods": {
			`spec: {coordinator: {replicas: 2, newer: 1}}`, []string{"spec.coordinator.replicas"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Lost(fromYAML(t, headV1+tc.v1))
			expect.NoError(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingIsLostOfWhatConversionWrote(t *testing.T) {
	t.Parallel()
	for name, tc := range pairs() {
		if got, err := Lost(fromYAML(t, headV1+tc.v1)); err != nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestOnlyAJobCanLoseSomething(t *testing.T) {
	t.Parallel()
	if _, err := Lost([]byte(`{"apiVersion":"v1","kind":"Pod"}`)); err == nil {
		t.Error("a Pod is taken for a job")
	}
}

func TestTasksThatV2alpha1CannotHoldAreLostAndDoNoHarm(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		`{extended: {tasks: [{type: evaluator, replicas: x}]}}`,
		`{coordinator: {}, extended: {tasks: [{type: evaluator, replicas: x}, {type: none}, 3, null]}}`,
	} {
		lost, err := Lost(fromYAML(t, headV1+"spec: "+spec))
		if err != nil || len(lost) == 0 {
			t.Errorf("%s loses %v, %v, want the tasks", spec, lost, err)
		}
	}
}

// TestADeepTemplateIsComparedOnce compares objects that differ at their deepest member. Comparing
// each level again would take quadratic time: a minute.
func TestADeepTemplateIsComparedOnce(t *testing.T) {
	t.Parallel()
	const depth = 9_000
	nested := func(value string) string {
		return strings.Repeat(`{"a":`, depth) + value + strings.Repeat(`}`, depth)
	}
	lost, err := Lost([]byte(`{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","metadata":{},"spec":{"coordinator":{"template":` + nested("1") +
		`},"extended":{"tasks":[{"type":"coordinator","template":` + nested("2") + `}]}}}`))
	if err != nil || len(lost) != 1 {
		t.Errorf("%d paths are lost: %v", len(lost), err)
	}
}

// TestAStatusOfManyTasksIsConvertedAtOnce converts the maximum number of tasks of a request. A
// linear search for each task would take half a minute.
func TestAStatusOfManyTasksIsConvertedAtOnce(t *testing.T) {
	t.Parallel()
	var counts, kept strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&counts, `,"t%d":{"active":1}`, i)
		fmt.Fprintf(&kept, `,"t%d":{"Running":1}`, i)
	}
	raw := `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","metadata":{},"status":{"replicaStatus":{` + counts.String()[1:] +
		`},"extended":{"taskStatus":{` + kept.String()[1:] + `}}}}`
	converted, err := Convert([]byte(raw), "diengine.opendilab.org/v2alpha1")
	if err != nil || !strings.Contains(string(converted), `"t59999":{"Running":1}`) {
		t.Errorf("%.300s: %v", converted, err)
	}
}
