// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
	"opendilab.org/di-orchestrator/webhook/validation/semantic"
)

const (
	goodTask = `{type: learner, name: learner, replicas: 1, template: {spec: {containers: [{name: a}]}}}`
	badTask  = `{type: none, replicas: 1, template: {spec: {containers: [{name: a}]}}}`
)

// rawJob returns a job of a version.
func rawJob(t *testing.T, version, spec string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte("apiVersion: diengine.opendilab.org/" + version + "\nkind: DIJob\nmetadata: {name: j}\n" + spec))
	expect.NoError(t, err)
	return raw
}

// requestOf returns the request for a new job, or for an update if there is an old job.
func requestOf(t *testing.T, version, spec, old string) *Request {
	t.Helper()
	request := &Request{Create: old == "", Raw: rawJob(t, version, spec)}
	if old != "" {
		request.OldRaw = rawJob(t, version, old)
	}
	return request
}

// answer is the response to the author of a job.
type answer struct {
	errors, warnings []string
}

func (a *answer) allowed() bool { return len(a.errors) == 0 }

// ask validates a job as the webhooks do, without the schema.
func ask(t *testing.T, validate func(*Request) field.ErrorList, version, spec, old string) *answer {
	t.Helper()
	request := requestOf(t, version, spec, old)
	var errs field.ErrorList
	if err := request.Decode(); err != nil {
		if errs = Mistyped(request.Raw); len(errs) == 0 {
			t.Fatal(err)
		}
		return &answer{errors: textOf(errs)}
	}
	if errs = CheckLists(request); len(errs) > 0 {
		return &answer{errors: textOf(errs)}
	}
	answer := &answer{errors: textOf(validate(request))}
	for _, unknown := range UnknownFields(request, nil) {
		answer.warnings = append(answer.warnings, fmt.Sprintf("unknown field %q", unknown.Field))
	}
	answer.warnings = append(answer.warnings, Warnings(request)...)
	return answer
}

func textOf(errs field.ErrorList) []string {
	var text []string
	for _, err := range errs {
		text = append(text, err.Error())
	}
	return text
}

func TestAnUpdateIsNotRefusedForWhatWasAlreadySo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ spec, old, want string }{
		"a new fault":               {spec: `spec: {tasks: [` + badTask + `]}`, old: `spec: {tasks: [` + goodTask + `]}`, want: "spec.tasks[0].name"},
		"an old fault":              {spec: `spec: {group: a, tasks: [` + badTask + `]}`, old: `spec: {tasks: [` + badTask + `]}`},
		"an old fault, and another": {spec: `spec: {cleanPodPolicy: x, tasks: [` + badTask + `]}`, old: `spec: {tasks: [` + badTask + `]}`, want: "spec.cleanPodPolicy"},
		"a fault that is fixed":     {spec: `spec: {tasks: [` + goodTask + `]}`, old: `spec: {tasks: [` + badTask + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := ask(t, validateV2, "v2alpha1", tc.spec, tc.old)
			if answer.allowed() != (tc.want == "") {
				t.Fatalf("errors: %v, want one at %q", answer.errors, tc.want)
			}
			if tc.want != "" && (len(answer.errors) != 1 || !strings.HasPrefix(answer.errors[0], tc.want+": ")) {
				t.Errorf("errors: %v, want one at %s", answer.errors, tc.want)
			}
		})
	}
}

func TestNoValidationFollowsOnceTheCallerHasGone(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	first := func(*Request) field.ErrorList { leave(); return nil }
	second := func(*Request) field.ErrorList { t.Error("a validation runs although the caller has gone"); return nil }
	if errs := inTurn(first, second)(&Request{Left: ctx.Err}); len(errs) > 0 {
		t.Errorf("got %v", errs)
	}
}

const mebi = 1 << 20

// listOf returns a list of equal items with this number of bytes.
func listOf(item string, size int) string {
	return "[" + strings.Repeat(item+",", size/(len(item)+1)) + item + "]"
}

// allocated returns how many bytes a function allocates. Nothing else may run.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

//nolint:paralleltest // It measures what the process allocates.
func TestAListThatDecodesLargeIsRefusedBeforeItIsDecoded(t *testing.T) {
	raw := []byte(`{"spec":{"containers":` + listOf(`{}`, mebi/2) + `}}`)
	var errs field.ErrorList
	if bytes := allocated(func() { errs = validateTemplate(raw, field.NewPath("template")) }); bytes > 64*mebi {
		t.Errorf("%d MiB are allocated", bytes/mebi)
	}
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeTooMany || errs[0].Field != "template.spec.containers" {
		t.Errorf("got %v", errs)
	}
	task := &v2alpha1.Task{}
	task.Template.Raw = raw
	if bytes := allocated(func() { semantic.SameTemplate(&v2alpha1.DIJobSpec{}, task, &v2alpha1.Task{}) }); bytes > 128*mebi {
		t.Errorf("%d MiB are allocated to compare it", bytes/mebi)
	}
}

func TestErrorsAreBoundedWhileTheyAreCollected(t *testing.T) {
	t.Parallel()
	spec := &v2alpha1.DIJobSpec{Tasks: make([]v2alpha1.Task, 100_000), Volumes: make([]v2alpha1.RawObject, 100_000)}
	spec.SuccessPolicy = &v2alpha1.SuccessPolicy{TargetTasks: make([]string, 100_000)}
	for i := range spec.Tasks {
		spec.Tasks[i].Type = v2alpha1.TaskTypeCoordinator
		spec.Tasks[i].Name = strings.Repeat("x", 64)
	}
	for _, lifecycle := range []v2alpha1.Lifecycle{"", v2alpha1.LifecycleCoordinatorLed} {
		spec.Lifecycle = lifecycle
		if errs := validateContent(&v2alpha1.DIJob{Spec: *spec}, hubPaths{}); len(errs) < 20 || len(errs) > 10*jsontype.MaxFindings {
			t.Errorf("%q: %d errors are collected", lifecycle, len(errs))
		}
	}
	if found := jsontype.Compare([]byte(`{"args":`+listOf(`1`, 100_000)+`}`), reflect.TypeFor[corev1.Container](), nil); len(found.Mistyped) != jsontype.MaxFindings {
		t.Errorf("%d values of the wrong type are found", len(found.Mistyped))
	}
}
