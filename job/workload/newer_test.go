// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// newerTemplate has fields of a future Kubernetes wherever the operator adds items of its own, and
// in objects that have no other fields.
const newerTemplate = `{"metadata":{"newer":1},"spec":{
	"newer":{"deep":[{"a":9007199254740993}]},"newerNull":null,
	"securityContext":{"newer":1},
	"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"newer":1}]}}},
	"initContainers":[{"name":"i","newer":1}],
	"containers":[
		{"name":"a","newer":1,"resources":{"newer":1},"lifecycle":{"newer":1},
			"ports":[{"containerPort":80,"newer":1}],
			"volumeMounts":[{"name":"v","mountPath":"/v","newer":1}],
			"env":[{"name":"DI_RANK","newer":"of ours"},{"name":"A","value":"a","newer":1},{"name":"B","valueFrom":{"newer":{}}}]},
		{"name":"b","newer":2}],
	"volumes":[{"name":"v","newer":{"b":true}},{"name":"w","emptyDir":{"newer":1}}]}}`

func newerJob(template string) *v2alpha1.DIJob {
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "uid"},
		Spec: v2alpha1.DIJobSpec{
			Volumes: []v2alpha1.RawObject{raw(`{"name":"x","newer":{"c":1}}`)},
			Tasks:   []v2alpha1.Task{{Type: v2alpha1.TaskTypeNone, Name: "task", Template: raw(template)}},
		},
	}
}

func TestAPodHasTheFieldsThatItsTypeDoesNotKnow(t *testing.T) {
	assignment := &Assignment{Replicas: []Replica{{Pod: "job-task-0"}}, Nodes: []string{"job-task-0"}}
	builder := NewBuilder(newerJob(newerTemplate), Settings{})
	pod, err := builder.Worker(assignment, &assignment.Replicas[0])
	expect.NoError(t, err)
	whole, err := builder.NewerFields(pod).Over(pod)
	expect.NoError(t, err)
	var again corev1.Pod
	expect.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(whole, &again))
	expect.Equal(t, "what the type knows of the pod is another", pod, &again)
	want := map[string]any{
		"newer": map[string]any{"deep": []any{map[string]any{"a": int64(9007199254740993)}}}, "newerNull": nil,
		"securityContext": map[string]any{"newer": int64(1)},
		"affinity": map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
			"nodeSelectorTerms": []any{map[string]any{"newer": int64(1)}}}}},
		"initContainers": []any{map[string]any{"newer": int64(1)}},
		"containers": []any{
			map[string]any{
				"newer": int64(1), "resources": map[string]any{"newer": int64(1)}, "lifecycle": map[string]any{"newer": int64(1)},
				"ports": []any{map[string]any{"newer": int64(1)}}, "volumeMounts": []any{map[string]any{"newer": int64(1)}},
				"env": []any{map[string]any{"newer": int64(1)}, map[string]any{"valueFrom": map[string]any{"newer": map[string]any{}}}},
			},
			map[string]any{"newer": int64(2)},
		},
		"volumes": []any{
			map[string]any{"newer": map[string]any{"b": true}}, map[string]any{"emptyDir": map[string]any{"newer": int64(1)}},
			map[string]any{"newer": map[string]any{"c": int64(1)}},
		},
	}
	typed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	expect.NoError(t, err)
	expect.Equal(t, "what is added to the pod", any(want), added(whole["spec"], typed["spec"]))
}

// added returns the fields of a value that another value does not have. It leaves out items without
// such fields.
func added(value, before any) any {
	switch value := value.(type) {
	case map[string]any:
		beforeValue, _ := before.(map[string]any)
		rest := map[string]any{}
		for key, member := range value {
			if old, ok := beforeValue[key]; !ok {
				rest[key] = member
			} else if more := added(member, old); more != nil {
				rest[key] = more
			}
		}
		if len(rest) > 0 {
			return rest
		}
	case []any:
		var rest []any
		beforeItems, _ := before.([]any)
		for i, item := range value {
			if more := added(item, beforeItems[i]); more != nil {
				rest = append(rest, more)
			}
		}
		if len(rest) > 0 {
			return rest
		}
	}
	return nil
}

func TestAPodWhoseTypeKnowsAllItsFieldsIsBuiltAsItIs(t *testing.T) {
	for name, template := range map[string]string{
		"plain":          plain,
		"in metadata":    `{"metadata":{"creationTimestamp":null,"labels":{"newer":"a"}},"spec":{"containers":[{"name":"a","resources":{"limits":{"newer":1}}}]}}`,
		"empty and null": `{"spec":{"nodeSelector":{},"tolerations":null,"containers":[{"name":"a","env":[]}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			job := newerJob(template)
			job.Spec.Volumes = nil
			assignment := &Assignment{Replicas: []Replica{{Pod: "job-task-0"}}, Nodes: []string{"job-task-0"}}
			builder := NewBuilder(job, Settings{})
			pod, err := builder.Worker(assignment, &assignment.Replicas[0])
			expect.NoError(t, err)
			if newer := builder.NewerFields(pod); newer != nil {
				t.Errorf("the pod is to have %v besides", newer)
			}
		})
	}
}

func TestEveryPodOfACoordinatorLedJobHasNewerFields(t *testing.T) {
	const template = `{"spec":{"newer":1,"containers":[{"name":"di-container"}]}}`
	job := newerJob(template)
	job.Spec.Lifecycle, job.Spec.Volumes = v2alpha1.LifecycleCoordinatorLed, nil
	job.Spec.Tasks = []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeCoordinator, Template: raw(template)}, {Type: v2alpha1.TaskTypeLearner, Template: raw(template)},
	}
	config := &v2alpha1.AggregatorConfig{}
	config.Spec.Aggregator.Template = raw(template)
	builder := NewBuilder(job, Settings{})
	plain := &v2alpha1.Member{Task: v2alpha1.TaskTypeLearner, Slot: "s"}
	spread := &v2alpha1.Member{Task: v2alpha1.TaskTypeLearner, Slot: "d", DDPGPUs: []int32{2}}
	aggregator := &corev1.Pod{}
	for role, build := range map[string]func() (*corev1.Pod, error){
		"coordinator": builder.Coordinator,
		"learner":     func() (*corev1.Pod, error) { return builder.Replica(plain, "learner") },
		"aggregator":  func() (*corev1.Pod, error) { return builder.Aggregator(config, spread, "aggregator") },
		"DDP learner": func() (*corev1.Pod, error) { return builder.DDPLearner(spread, aggregator, []string{"ddp"}, 0) },
	} {
		pod, err := build()
		expect.NoError(t, err)
		if newer := builder.NewerFields(pod); newer["newer"] != int64(1) {
			t.Errorf("%s: got %v, want the newer field", role, newer)
		}
	}
}

func TestATemplateLaidOverWhatIsKnownOfItIsTheTemplate(t *testing.T) {
	var written struct {
		Spec map[string]any `json:"spec"`
	}
	expect.NoError(t, json.Unmarshal([]byte(newerTemplate), &written))
	spec := written.Spec
	built, isObject := dropNewer(spec).(map[string]any)
	if !isObject {
		t.Fatal("the spec is no object")
	}
	overlayStruct(built, spec, reflect.TypeFor[corev1.PodSpec]())
	expect.Equal(t, "a template laid over itself is another", spec, built)
}

// dropNewer returns a value without the fields that no type knows.
func dropNewer(value any) any {
	switch value := value.(type) {
	case map[string]any:
		rest := map[string]any{}
		for key, member := range value {
			if key != "newer" && key != "newerNull" {
				rest[key] = dropNewer(member)
			}
		}
		return rest
	case []any:
		rest := make([]any, len(value))
		for i := range value {
			rest[i] = dropNewer(value[i])
		}
		return rest
	}
	return value
}
