// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	headV1 = "apiVersion: diengine.opendilab.org/v1alpha1\nkind: DIJob\nmetadata: {name: j, annotations: {a: b}}\n"
	headV2 = "apiVersion: diengine.opendilab.org/v2alpha1\nkind: DIJob\nmetadata: {name: j, annotations: {a: b}}\n"
)

// pairs returns jobs in both versions. Each version converts into the other.
func pairs() map[string]struct{ v1, v2 string } {
	return map[string]struct{ v1, v2 string }{
		"a job of v1alpha1 needs nothing extended": {
			v1: `
spec:
  group: g
  priorityClassName: high
  cleanPodPolicy: Running
  volumes: [{name: cache, emptyDir: {}}]
  coordinator: {template: {spec: {containers: [{name: di-container}]}}}
  collector: {template: {metadata: {creationTimestamp: null}}}
  learner: {}
status:
  phase: Created
  conditions: [{type: Created, status: "True"}]
  replicaStatus: {Coordinator: {active: 1}, Collector: {active: 2, failed: 0}, Aggregator: {}}
`,
			v2: `
spec:
  lifecycle: CoordinatorLed
  backoffLimit: 0
  group: g
  priorityClassName: high
  cleanPodPolicy: Running
  volumes: [{name: cache, emptyDir: {}}]
  tasks:
  - {type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container}]}}}
  - {type: collector, name: collector, replicas: 0, template: {metadata: {creationTimestamp: null}}}
  - {type: learner, name: learner, replicas: 0}
status:
  phase: Pending
  conditions: [{type: Created, status: "True"}]
  taskStatus: {coordinator: {Running: 1}, collector: {Running: 2, Failed: 0}, aggregator: {}}
`,
		},
		"what only v2alpha1 can say is extended": {
			v1: `
spec:
  coordinator: {template: {a: 1}}
  extended: {suspend: true, backoffLimit: 2, aggregatorConfig: {name: a}}
status:
  phase: Created
  replicaStatus: {Coordinator: {active: 3}}
  extended:
    phase: Starting
    restarts: 1
    taskStatus: {coordinator: {Pending: 1, Running: 2}}
    completionTimestamp: "2026-01-01T00:00:00Z"
`,
			v2: `
spec:
  lifecycle: CoordinatorLed
  backoffLimit: 2
  suspend: true
  aggregatorConfig: {name: a}
  tasks: [{type: coordinator, name: coordinator, replicas: 1, template: {a: 1}}]
status:
  phase: Starting
  restarts: 1
  taskStatus: {coordinator: {Pending: 1, Running: 2}}
  completionTimestamp: "2026-01-01T00:00:00Z"
`,
		},
		"tasks that v1alpha1 does not imply are listed without its templates": {
			v1: `
spec:
  coordinator: {template: {a: 1}}
  collector: {template: {b: 2}}
  extended:
    lifecycle: CoordinatorLed
    tasks: [{type: collector, name: roll}, {type: coordinator}, {type: evaluator, template: {c: 3}}]
status:
  replicaStatus: {Collector: {active: 1}}
`,
			v2: `
spec:
  lifecycle: CoordinatorLed
  tasks: [{type: collector, name: roll, template: {b: 2}}, {type: coordinator, template: {a: 1}}, {type: evaluator, template: {c: 3}}]
status:
  taskStatus: {roll: {Running: 1}}
`,
		},
		"how a task drains is extended, because a role of v1alpha1 has a template only": {
			v1: `
spec:
  coordinator: {template: {a: 1}}
  collector: {template: {b: 2}}
  extended:
    autoscale: {memory: {max: 0.50Ti}}
    disruption: {maxUnavailable: 25%}
    tasks: [{type: coordinator, name: coordinator, replicas: 1}, {type: collector, name: collector, replicas: 0, drain: {timeoutSeconds: 5}}]
`,
			v2: `
spec:
  lifecycle: CoordinatorLed
  backoffLimit: 0
  autoscale: {memory: {max: 0.50Ti}}
  disruption: {maxUnavailable: 25%}
  tasks:
  - {type: coordinator, name: coordinator, replicas: 1, template: {a: 1}}
  - {type: collector, name: collector, replicas: 0, template: {b: 2}, drain: {timeoutSeconds: 5}}
`,
		},
		"a worker-led task that drains is shown without that": {
			v1: `
spec:
  coordinator: {}
  learner: {template: {a: 1}}
  extended: {lifecycle: "", tasks: [{type: learner, template: {a: 1}, drain: {onTimeout: Remove}}]}
`,
			v2: `
spec:
  tasks: [{type: learner, template: {a: 1}, drain: {onTimeout: Remove}}]
`,
		},
		"a worker-led job is shown and wholly extended": {
			v1: `
spec:
  cleanPodPolicy: None
  coordinator: {}
  learner: {template: {a: 1}}
  collector: {template: {b: 2}}
  extended:
    lifecycle: ""
    priority: high
    tasks: [{type: learner, replicas: 1, template: {a: 1}}, {type: collector, name: roll, template: {b: 2}}, {type: evaluator}]
status:
  phase: Running
  replicaStatus: {Collector: {active: 3}, Learner: {active: 1}}
  extended: {replicas: 5, profilings: {x: null}}
`,
			v2: `
spec:
  cleanPodPolicy: None
  priority: high
  tasks: [{type: learner, replicas: 1, template: {a: 1}}, {type: collector, name: roll, template: {b: 2}}, {type: evaluator}]
status:
  phase: Running
  replicas: 5
  profilings: {x: null}
  taskStatus: {roll: {Running: 3}, learner: {Running: 1}}
`,
		},
		"a single task of type none is shown as a serial job": {
			v1: `
spec:
  coordinator: {template: {a: 1}}
  extended: {lifecycle: WorkerLed, tasks: [{type: none, name: main, template: {a: 1}}]}
status: {replicaStatus: {Coordinator: {succeeded: 1}}}
`,
			v2: `
spec: {lifecycle: WorkerLed, tasks: [{type: none, name: main, template: {a: 1}}]}
status: {taskStatus: {main: {Succeeded: 1}}}
`,
		},
		"a job without a spec gets none":                      {v1: `status: {phase: Running}`, v2: `status: {phase: Running}`},
		"a job of nothing stays one":                          {v1: ``, v2: ``},
		"an empty spec of v2alpha1":                           {v1: `spec: {coordinator: {}, extended: {lifecycle: ""}}`, v2: `spec: {}`},
		"a spec of v1alpha1 without any role":                 {v1: `spec: {group: g}`, v2: `spec: {group: g, lifecycle: CoordinatorLed, backoffLimit: 0}`},
		"a phase of v1alpha1 that v2alpha1 has a meaning for": {v1: `status: {phase: Pending}`, v2: `status: {phase: v1alpha1/Pending}`},
		"a phase that is spelled like a marked one":           {v1: `status: {phase: v1alpha1/Starting}`, v2: `status: {phase: v1alpha1/v1alpha1/Starting}`},
		"a phase that only looks marked":                      {v1: `status: {phase: v1alpha1/Odd}`, v2: `status: {phase: v1alpha1/Odd}`},
		"v1alpha1's own word in v2alpha1":                     {v1: `status: {phase: Created, extended: {phase: Created}}`, v2: `status: {phase: Created}`},
		"counts of names that stand for each other": {
			v1: `
spec: {coordinator: {}, collector: {}, extended: {lifecycle: WorkerLed, tasks: [{type: collector, name: roll}, {type: none, name: collector}]}}
status: {replicaStatus: {Collector: {active: 1}, collector: {active: 2}, roll: {active: 3}, learner: {active: 4}, Learner: {active: 5}}}
`,
			v2: `
spec: {lifecycle: WorkerLed, tasks: [{type: collector, name: roll}, {type: none, name: collector}]}
status: {taskStatus: {roll: {Running: 1}, collector: {Running: 2}, Collector: {Running: 3}, Learner: {Running: 4}, learner: {Running: 5}}}
`,
		},
		"counts of tasks that swap their types' names": {
			v1: `
spec: {coordinator: {}, collector: {}, learner: {}, extended: {lifecycle: "", tasks: [{type: collector, name: learner}, {type: learner, name: Collector}]}}
status: {replicaStatus: {Collector: {active: 1}, Learner: {active: 2}, collector: {active: 3}}}
`,
			v2: `
spec: {tasks: [{type: collector, name: learner}, {type: learner, name: Collector}]}
status: {taskStatus: {learner: {Running: 1}, Collector: {Running: 2}, collector: {Running: 3}}}
`,
		},
		"usual tasks in another order": {
			v1: `spec: {coordinator: {}, learner: {}, extended: {tasks: [{type: learner, name: learner, replicas: 0}, {type: coordinator, name: coordinator, replicas: 1}]}}`,
			v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: [{type: learner, name: learner, replicas: 0}, {type: coordinator, name: coordinator, replicas: 1}]}`,
		},
		"of several tasks of one type the first is shown": {
			v1: `spec: {coordinator: {}, collector: {template: {a: 1}}, extended: {lifecycle: "", tasks: [{type: collector, template: {a: 1}}, {type: collector, name: b, template: {a: 2}}]}}`,
			v2: `spec: {tasks: [{type: collector, template: {a: 1}}, {type: collector, name: b, template: {a: 2}}]}`,
		},
		"a task that only a coordinator-led job may have is not shown": {
			v1: `spec: {coordinator: {}, extended: {lifecycle: "", tasks: [{type: coordinator, template: {a: 1}}]}}`,
			v2: `spec: {tasks: [{type: coordinator, template: {a: 1}}]}`,
		},
		"counts of two tasks of one name": {
			v1: `
spec: {coordinator: {}, collector: {}, learner: {}, extended: {lifecycle: "", tasks: [{type: collector, name: x}, {type: learner, name: x}]}}
status: {replicaStatus: {Collector: {active: 1}, Learner: {active: 2}}}
`,
			v2: `
spec: {tasks: [{type: collector, name: x}, {type: learner, name: x}]}
status: {taskStatus: {x: {Running: 1}, learner: {Running: 2}}}
`,
		},
		"a count that is null": {v1: `status: {replicaStatus: {a: {active: null}}}`, v2: `status: {taskStatus: {a: {Running: null}}}`},
		"a job that restarts":  {v1: `status: {phase: Created, extended: {phase: Restarting}}`, v2: `status: {phase: Restarting}`},
		"a job that is placed": {v1: `status: {phase: Created, extended: {phase: Rescheduling}}`, v2: `status: {phase: Rescheduling}`},
		"a coordinator-led job of v2alpha1 without a coordinator": {
			v1: `spec: {learner: {}, extended: {tasks: [{type: learner, replicas: 2}]}}`,
			v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: [{type: learner, replicas: 2}]}`,
		},
		"a coordinator-led job whose tasks are null": {
			v1: `spec: {extended: {tasks: null}}`, v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: null}`,
		},
		"an unknown phase stays": {v1: `status: {phase: Odd, replicaStatus: {}}`, v2: `status: {phase: Odd, taskStatus: {}}`},
	}
}

func fromYAML(tb testing.TB, manifest string) []byte {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		tb.Fatalf("reading %s: %v", manifest, err)
	}
	return raw
}

func checkConverts(t *testing.T, raw, want []byte, apiVersion string) {
	t.Helper()
	got := mustConvert(t, decode(t, raw), apiVersion)
	noDuplicates(t, got)
	if diff := cmp.Diff(decode(t, want), decode(t, got)); diff != "" {
		t.Errorf("to %s (-want +got):\n%s", apiVersion, diff)
	}
}

// noDuplicates fails if an object has two members with one name. A reader would see only one of
// them.
func noDuplicates(t *testing.T, raw []byte) {
	t.Helper()
	var content map[string]any
	if strict, err := kjson.UnmarshalStrict(raw, &content); err != nil || len(strict) > 0 {
		t.Errorf("%s: %v, %v", raw, strict, err)
	}
}

func TestAJobOfTheWantedVersionStaysAsItIs(t *testing.T) {
	t.Parallel()
	for _, version := range []string{v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String()} {
		raw := fmt.Sprintf(`{ "apiVersion":%q,"kind":"DIJob","spec":{"suspend":true,"tasks":[],"coordinator":{}},"spec":{"tasks":[]}}`, version)
		if got, err := Convert([]byte(raw), version); err != nil || string(got) != raw {
			t.Errorf("%s became %s, %v", raw, got, err)
		}
	}
}

func TestSpaceBetweenTokensMeansNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range pairs() {
		compact := fromYAML(t, headV2+tc.v2)
		want, err := Convert(compact, v1alpha1.GroupVersion.String())
		expect.NoError(t, err)
		for _, space := range []string{" ", "\t", "\n", "\r"} {
			var spaced bytes.Buffer
			expect.NoError(t, json.Indent(&spaced, compact, "", space))
			// json.Indent adds no spaces before commas and colons.
			loose := strings.NewReplacer(",\n", space+",\n", `": `, `"`+space+":"+space).Replace(spaced.String())
			got, err := Convert([]byte(loose), v1alpha1.GroupVersion.String())
			if err != nil || cmp.Diff(decode(t, want), decode(t, got)) != "" {
				t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
			}
		}
	}
}

// TestAnObjectOfManyMembersIsCutInTime would take too long if each member were compared with all
// others.
func TestAnObjectOfManyMembersIsCutInTime(t *testing.T) {
	t.Parallel()
	const members = 150_000
	raw := []byte{'{'}
	for i := range members {
		raw = fmt.Appendf(raw, `"member-%06d":%d,`, i, i)
	}
	parsed, ok := parseObject(append(raw, `"member-000007":"last","member-100000":"last"}`...))
	if !ok || len(parsed) != members || string(parsed[members-1].value) != "149999" ||
		string(parsed[7].value) != `"last"` || string(parsed[100_000].value) != `"last"` {
		t.Errorf("got %d members", len(parsed))
	}
}

func TestTheVersionsSayTheSame(t *testing.T) {
	t.Parallel()
	for name, tc := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v1, v2 := fromYAML(t, headV1+tc.v1), fromYAML(t, headV2+tc.v2)
			checkConverts(t, v1, v2, v2alpha1.GroupVersion.String())
			checkConverts(t, v2, v1, v1alpha1.GroupVersion.String())
		})
	}
}

// TestV1alpha1Wins checks objects that did not come unchanged from conversion: edits, and content
// that neither version accepts.
func TestV1alpha1Wins(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ v1, v2 string }{
		"the letter case of cleanPodPolicy is made v2alpha1's": {
			v1: `spec: {cleanPodPolicy: ALL}`,
			v2: `spec: {cleanPodPolicy: All, lifecycle: CoordinatorLed, backoffLimit: 0}`,
		},
		"a role that was removed and one that was added": {
			v1: `spec: {coordinator: {template: {a: 2}}, learner: {}, extended: {tasks: [{type: collector, name: roll}, {type: coordinator, replicas: 1}]}}`,
			v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: [{type: coordinator, replicas: 1, template: {a: 2}}, {type: learner, name: learner, replicas: 0}]}`,
		},
		"a field of v1alpha1 is not taken from extended": {
			v1: "spec: {extended: {group: b, priorityClassName: b, cleanPodPolicy: All, volumes: [{name: c}]}}\n" +
				"status: {extended: {phase: Starting, conditions: [], taskStatus: {a: {Pending: 1}}}}",
			v2: "spec: {lifecycle: CoordinatorLed, backoffLimit: 0}\nstatus: {}",
		},
		"all roles that were listed are removed": {
			v1: `spec: {extended: {tasks: [{type: collector, name: roll}]}}`,
			v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: []}`,
		},
		"tasks of null and a role": {
			v1: `spec: {coordinator: {}, extended: {tasks: null}}`,
			v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: [{type: coordinator, name: coordinator, replicas: 1}]}`,
		},
		"a role has no members of a task but those of its pods": {
			v1: `spec: {coordinator: {replicas: 3, type: learner, name: x, newer: 1}}`,
			v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: [{type: coordinator, name: coordinator, replicas: 1, newer: 1}]}`,
		},
		"a role without a template, and with a member that the listed task has": {
			v1: `spec: {coordinator: {newer: 1}, extended: {tasks: [{type: coordinator, template: {a: 2}, newer: 2, other: 3}]}}`,
			v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0, tasks: [{type: coordinator, newer: 1, other: 3}]}`,
		},
		"policies in other letters": {v1: `spec: {cleanPodPolicy: nOne}`, v2: `spec: {cleanPodPolicy: None, lifecycle: CoordinatorLed, backoffLimit: 0}`},
		"the default policy too":    {v1: `spec: {cleanPodPolicy: running}`, v2: `spec: {cleanPodPolicy: Running, lifecycle: CoordinatorLed, backoffLimit: 0}`},
		"a newer field of a status": {v1: `status: {newer: 1, replicas: 3}`, v2: `status: {newer: 1}`},
		"what v2alpha1 cannot hold is dropped": {
			v1: "spec: {extended: {suspend: 'yes', tasks: 3, priority: high}}\nstatus: {phase: Running, extended: {restarts: [], replicas: 2}}",
			v2: "spec: {priority: high, lifecycle: CoordinatorLed, backoffLimit: 0}\nstatus: {phase: Running, replicas: 2}",
		},
		"a phase and counts written through v1alpha1": {
			v1: `status: {phase: Failed, replicaStatus: {Collector: {failed: 1}}, extended: {phase: Starting, taskStatus: {collector: {Pending: 1}}}}`,
			v2: `status: {phase: Failed, taskStatus: {collector: {Failed: 1}}}`,
		},
		"counts of one role, which leave those of the others as they are kept": {
			v1: `status: {replicaStatus: {Collector: {active: 3}, Coordinator: {active: 1}, Learner: null}, extended: {taskStatus: {collector: {Pending: 1}, coordinator: {Pending: 1}}}}`,
			v2: `status: {taskStatus: {collector: {Running: 3}, coordinator: {Pending: 1}, learner: null}}`,
		},
		"counts whose zeros a typed client has dropped": {
			v1: `status: {replicaStatus: {Collector: {active: 1}}, extended: {taskStatus: {collector: {Pending: 1, Failed: 0}}}}`,
			v2: `status: {taskStatus: {collector: {Pending: 1, Failed: 0}}}`,
		},
		"nulls and values of the wrong kind": {
			v1: "spec: {coordinator: null, collector: 3, extended: null, volumes: null}\nstatus: {phase: null, replicaStatus: [], extended: 1}",
			v2: "spec: {volumes: null, lifecycle: CoordinatorLed, backoffLimit: 0}\nstatus: {phase: null, taskStatus: []}",
		},
		"a spec that is no object":  {v1: "spec: null\nstatus: x", v2: "spec: null\nstatus: x"},
		"a field that is newer":     {v1: `spec: {newer: {a: 1}}`, v2: `spec: {newer: {a: 1}, lifecycle: CoordinatorLed, backoffLimit: 0}`},
		"a field of the other's":    {v1: `spec: {suspend: true, tasks: []}`, v2: `spec: {lifecycle: CoordinatorLed, backoffLimit: 0}`},
		"a count that is no number": {v1: `status: {replicaStatus: {Learner: null}}`, v2: `status: {taskStatus: {learner: null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Convert(fromYAML(t, headV1+tc.v1), v2alpha1.GroupVersion.String())
			expect.NoError(t, err)
			noDuplicates(t, got)
			if diff := cmp.Diff(decode(t, fromYAML(t, headV2+tc.v2)), decode(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAggregatorConfigOnlyChangesItsVersion(t *testing.T) {
	t.Parallel()
	const content = `","kind":"AggregatorConfig","metadata":{"name":"a"},"spec":{"aggregator":{"template":{"n":1e400,"s":"\u003c<"}}}}`
	raw := `{"apiVersion":"diengine.opendilab.org/v1alpha1` + content
	want := `{"apiVersion":"diengine.opendilab.org/v2alpha1` + content
	got, err := Convert([]byte(raw), v2alpha1.GroupVersion.String())
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	back, err := Convert(got, v1alpha1.GroupVersion.String())
	if err != nil || string(back) != raw {
		t.Errorf("got back %s, %v, want %s", back, err, raw)
	}
}

func TestATemplateTravelsByteForByte(t *testing.T) {
	t.Parallel()
	const template = `{ "b" : 1.0, "a":[ 12345678901234567890 ,null ],"\u0041":"<&>\u2028" }`
	raw := `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","spec":{"coordinator":{"template":` + template + `}}}`
	got, err := Convert([]byte(raw), v2alpha1.GroupVersion.String())
	if err != nil || !bytes.Contains(got, []byte(template)) {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestAQuantityKeepsTheTextThatItsUserWrote(t *testing.T) {
	t.Parallel()
	for _, written := range []string{`"0.50Ti"`, `"1024Mi"`, `"1000m"`, `"+2"`, `2`, `1.50`, `"1e3"`, `"5E-1"`, `null`} {
		job := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","spec":{"autoscale":{"memory":{"max":` + written +
			`},"pending":{"min":{"cpu":` + written + `}}}},"status":{"scaling":{"resources":[{"task":"a","resources":{"memory":` + written + `}}]}}}`
		seen, err := Convert([]byte(job), v1alpha1.GroupVersion.String())
		expect.NoError(t, err)
		back, err := Convert(seen, v2alpha1.GroupVersion.String())
		if err != nil || bytes.Count(seen, []byte(":"+written+"}")) != 3 || bytes.Count(back, []byte(":"+written+"}")) != 3 {
			t.Errorf("%s became %s and %s, %v", written, seen, back, err)
		}
	}
}

// TestAQuantityThatNobodyCanDecodeIsDropped uses quantities that v1alpha1's schema accepts in extended. To decode
// the second one takes the library hours.
func TestAQuantityThatNobodyCanDecodeIsDropped(t *testing.T) {
	t.Parallel()
	for _, written := range []string{`"much"`, `"1e-1000000000"`, `1e-1000000000`, `"1\u0065-1000000000"`, `true`, `{}`, `[]`, `"` + strings.Repeat("1", 41) + `"`} {
		job := `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","spec":{"coordinator":{},"extended":{"suspend":true,"autoscale":{"memory":{"max":` + written + `}}}}}`
		hub, err := Convert([]byte(job), v2alpha1.GroupVersion.String())
		if err != nil || bytes.Contains(hub, []byte("autoscale")) || !bytes.Contains(hub, []byte("suspend")) {
			t.Errorf("%s became %s, %v", written, hub, err)
		}
		if lost, err := Lost([]byte(job)); err != nil || !slices.Equal(lost, []string{"spec.extended.autoscale"}) {
			t.Errorf("%s: lost are %v, %v", written, lost, err)
		}
	}
}

func TestWhatIsNoObjectOfTheGroupIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ raw, to, want string }{
		"no JSON":         {`{`, "diengine.opendilab.org/v2alpha1", "not valid JSON"},
		"no object":       {`[]`, "diengine.opendilab.org/v2alpha1", "not a JSON object"},
		"another group":   {`{"apiVersion":"a/v1alpha1","kind":"DIJob"}`, "diengine.opendilab.org/v2alpha1", `apiVersion: "a/v1alpha1"`},
		"another kind":    {`{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"Membership"}`, "diengine.opendilab.org/v1alpha1", `kind: "Membership"`},
		"another version": {`{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob"}`, "diengine.opendilab.org/v3", `desired version: "diengine.opendilab.org/v3"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Convert([]byte(tc.raw), tc.to)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
