// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	own    = `coordinator: {template: {spec: {containers: [{name: c}]}}}, learner: {template: {spec: {containers: [{name: a}]}}}`
	worker = `lifecycle: WorkerLed, tasks: [{type: none, name: main, replicas: 1, template: {spec: {containers: [{name: a}]}}}]`
)

func TestExtendedIsHeldToTheSchemaOfV2alpha1ByItsPath(t *testing.T) {
	t.Parallel()
	handler := quietHandler(t)
	for name, tc := range map[string]struct {
		spec, old string
		status    bool
		want      []string
	}{
		"nothing wrong": {spec: `spec: {` + own + `, extended: {suspend: true, ttlSecondsAfterFinished: 0}}`},
		"nulls":         {spec: `spec: {` + own + `, extended: {suspend: null, elastic: null, aggregatorConfig: {name: a, namespace: null}}}`},
		"a type": {spec: `spec: {` + own + `, extended: {suspend: "yes"}}`,
			want: []string{`spec.extended.suspend: Invalid value: "yes": must be true or false`}},
		"an unknown field": {spec: `spec: {` + own + `, extended: {scheduling: {que: a}}}`,
			want: []string{`spec.extended.scheduling.que: Invalid value: unknown field: spec.extended has only fields of v2alpha1`}},
		"a minimum": {spec: `spec: {` + own + `, extended: {activeDeadlineSeconds: 0}}`,
			want: []string{`spec.extended.activeDeadlineSeconds: Invalid value: 0: spec.extended.activeDeadlineSeconds in body should be greater than or equal to 1`}},
		"an enumeration": {spec: `spec: {` + own + `, extended: {priority: low}}`,
			want: []string{`spec.extended.priority: Unsupported value: "low": supported values: "normal", "high"`}},
		"an enumeration of a task": {spec: `spec: {coordinator: {}, extended: {lifecycle: WorkerLed, tasks: [{type: learnr, template: {spec: {containers: [{name: a}]}}}]}}`,
			want: []string{`spec.extended.tasks[0].type: Unsupported value: "learnr": supported values: "coordinator", "learner", "collector", "evaluator", "none"`}},
		"a lifecycle that there is not": {spec: `spec: {` + own + `, extended: {lifecycle: SelfLed}}`,
			want: []string{`spec.extended.lifecycle: Unsupported value: "SelfLed": supported values: "WorkerLed", "CoordinatorLed"`}},
		"a length": {spec: `spec: {` + own + `, extended: {managedBy: "a0123456789012345678901234567890123456789012345678901234567890/123"}}`,
			want: []string{`spec.extended.managedBy: Too long: may not be more than 63 bytes`}},
		"what is required": {spec: `spec: {` + own + `, extended: {aggregatorConfig: {namespace: a}}}`,
			want: []string{`spec.extended.aggregatorConfig.name: Required value`}},
		"a set": {spec: `spec: {coordinator: {}, extended: {` + worker + `, clusterSpec: [Torch, Torch]}}`,
			want: []string{`spec.extended.clusterSpec[1]: Duplicate value: "Torch"`}},
		"too many": {spec: `spec: {coordinator: {}, extended: {` + worker + `, clusterSpec: [Torch, Torch, Torch, Torch, Torch, Torch, Torch, Torch, Torch]}}`,
			want: []string{`spec.extended.clusterSpec: Too many: 9: must have at most 8 items`, `spec.extended.clusterSpec[1]: Duplicate value: "Torch"`}},
		"a status": {status: true, spec: `status: {extended: {restarts: two, other: 1}}`, old: `status: {}`,
			want: []string{`status.extended.restarts: Invalid value: "two": must be an integer`,
				`status.extended.other: Invalid value: unknown field: status.extended has only fields of v2alpha1`}},

		"what one of both leaders has": {spec: `spec: {` + own + `, extended: {` + worker + `}}`,
			want: []string{
				`spec.coordinator.template.spec.containers: Forbidden: would be lost: spec.extended.lifecycle makes the job worker-led, so its tasks exist only in v2alpha1: write the job in that version`,
				`spec.learner: Forbidden: would be lost: spec.extended.lifecycle makes the job worker-led, so its tasks exist only in v2alpha1: write the job in that version`,
			}},
		"what v1alpha1 says itself": {spec: `spec: {` + own + `, extended: {group: a}}`,
			want: []string{`spec.extended.group: Forbidden: would be lost: v1alpha1 has it in spec.group`}},
		"a template that v1alpha1 says itself": {spec: `spec: {` + own + `, extended: {tasks: [{type: learner, name: l, template: {spec: {hostNetwork: true}}}]}}`,
			want: []string{`spec.extended.tasks[0].template.spec.hostNetwork: Forbidden: would be lost: v1alpha1 has one field for each role: spec.coordinator, spec.collector and spec.learner`}},
		"a template that v1alpha1 says as well": {spec: `spec: {` + own + `, extended: {tasks: [{type: learner, name: l, template: {spec: {containers: [{name: a}]}}}]}}`},
		"a typed client's view of worker-led jobs": {spec: `spec: {group: "", coordinator: {template: {metadata: {creationTimestamp: null}, spec: {containers: null}}}, extended: {` + worker + `}}`,
			old: `spec: {coordinator: {}, extended: {` + worker + `}}`},
		"a name that v1alpha1 cannot say":  {spec: `spec: {` + own + `, extended: {tasks: [{type: learner, name: l}]}}`},
		"a role that is edited away":       {spec: `spec: {coordinator: {template: {spec: {containers: [{name: a}]}}}, extended: {tasks: [{type: learner, name: l}]}}`, old: `spec: {` + own + `, extended: {tasks: [{type: learner, name: l}]}}`},
		"what is stored already":           {spec: `spec: {group: a, ` + own + `, extended: {activeDeadlineSeconds: 0}}`, old: `spec: {` + own + `, extended: {activeDeadlineSeconds: 0}}`},
		"a worker-led job":                 {spec: `spec: {coordinator: {}, extended: {` + worker + `}}`},
		"a worker-led job as it was shown": {spec: `spec: {coordinator: {template: {spec: {containers: [{name: a}]}}}, extended: {` + worker + `}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, old := jobInV1(t, tc.spec), ""
			if tc.old != "" {
				old = jobInV1(t, tc.old)
			}
			review := reviewOf(t, job, old)
			if tc.status {
				review = reviewOfStatus(t, job, old)
			}
			answer := ask(t, handler, PathValidateV1, review)
			if diff := cmp.Diff(tc.want, causes(answer)); diff != "" || answer.Allowed != (len(tc.want) == 0) {
				t.Errorf("allowed: %v, errors (-want +got):\n%s", answer.Allowed, diff)
			}
		})
	}
}

// jobInV1 returns a job of v1alpha1.
func jobInV1(t *testing.T, spec string) string {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte("apiVersion: diengine.opendilab.org/v1alpha1\nkind: DIJob\nmetadata: {name: j}\n" + spec))
	expect.NoError(t, err)
	return string(raw)
}

// causes returns the errors of a response, each with its path.
func causes(answer *admissionv1.AdmissionResponse) []string {
	if answer.Result == nil || answer.Result.Details == nil {
		return nil
	}
	var causes []string
	for _, cause := range answer.Result.Details.Causes {
		causes = append(causes, cause.Field+": "+cause.Message)
	}
	return causes
}
