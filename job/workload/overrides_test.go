// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func resourcesOf(cpu, memory string) v2alpha1.ReplicaResources {
	var found v2alpha1.ReplicaResources
	if cpu != "" {
		found.CPU = ptr.To(resource.MustParse(cpu))
	}
	if memory != "" {
		found.Memory = ptr.To(resource.MustParse(memory))
	}
	return found
}

func overrideFor(task string, index int32, cpu, memory string) v2alpha1.ResourceOverride {
	override := v2alpha1.ResourceOverride{Task: task, Resources: resourcesOf(cpu, memory)}
	if index >= 0 {
		override.Index = &index
	}
	return override
}

func TestALimitKeepsItsRatioToTheRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		template, want string
		cpu, memory    string
	}{
		"request and limit":                  {`{requests: {memory: 1Gi}, limits: {memory: 2Gi}}`, `{requests: {memory: 3Gi}, limits: {memory: 6Gi}}`, "", "3Gi"},
		"only a limit":                       {`{limits: {memory: 2Gi}}`, `{requests: {memory: 3Gi}, limits: {memory: 3Gi}}`, "", "3Gi"},
		"only a request":                     {`{requests: {memory: 1Gi}}`, `{requests: {memory: 3Gi}}`, "", "3Gi"},
		"neither":                            {`{}`, `{requests: {cpu: 500m, memory: 3Gi}}`, "500m", "3Gi"},
		"no template amount but another one": {`{limits: {nvidia.com/gpu: 1}}`, `{requests: {cpu: "2"}, limits: {nvidia.com/gpu: 1}}`, "2", ""},
		"a limit is rounded up to bytes":     {`{requests: {memory: "3"}, limits: {memory: "4"}}`, `{requests: {memory: "5"}, limits: {memory: "7"}}`, "", "5"},
		"CPU is rounded up to thousandths":   {`{requests: {cpu: 300m}, limits: {cpu: 400m}}`, `{requests: {cpu: 500m}, limits: {cpu: 667m}}`, "0.5", ""},
		"other units":                        {`{requests: {memory: 1G}, limits: {memory: 1500M}}`, `{requests: {memory: 2e9}, limits: {memory: 3e9}}`, "", "2G"},
		"a request of 0 has no ratio":        {`{requests: {memory: 0}, limits: {memory: 2Gi}}`, `{requests: {memory: 1Gi}, limits: {memory: 2Gi}}`, "", "1Gi"},
		"a request of 0 and a smaller limit": {`{requests: {memory: 0}, limits: {memory: 2Gi}}`, `{requests: {memory: 4Gi}, limits: {memory: 4Gi}}`, "", "4Gi"},
		"an override of 0 changes nothing":   {`{requests: {memory: 1Gi}}`, `{requests: {memory: 1Gi}}`, "0", "0"},
		"a limit beyond what can be counted": {`{requests: {memory: 1}, limits: {memory: 8Ei}}`, `{requests: {memory: 2Ei}, limits: {memory: "9223372036854775807"}}`, "", "2Ei"},
	} {
		var template, want corev1.ResourceRequirements
		for into, text := range map[*corev1.ResourceRequirements]string{&template: tc.template, &want: tc.want} {
			expect.NoError(t, yaml.Unmarshal([]byte(text), into))
		}
		before := template.DeepCopy()
		expect.Equal(t, name, amounts(want), amounts(WithOverride(template, resourcesOf(tc.cpu, tc.memory))))
		expect.Equal(t, name+": the template", amounts(*before), amounts(template))
	}
}

// amounts returns resources in thousandths.
func amounts(resources corev1.ResourceRequirements) map[string]int64 {
	found := map[string]int64{}
	for kind, list := range map[string]corev1.ResourceList{"request of ": resources.Requests, "limit of ": resources.Limits} {
		for name, quantity := range list {
			found[kind+string(name)] = quantity.ScaledValue(resource.Milli)
		}
	}
	return found
}

func TestAnOverrideOfAReplicaBeatsOneOfItsTask(t *testing.T) {
	overrides := []v2alpha1.ResourceOverride{
		overrideFor("collector", 1, "", "8Gi"), overrideFor("collector", -1, "2", "4Gi"), overrideFor("learner", -1, "", "1Gi"), overrideFor("collector", 2, "0", ""),
	}
	for index, want := range map[int32]string{0: "cpu=2,memory=4Gi", 1: "cpu=2,memory=8Gi", 2: "cpu=2,memory=4Gi"} {
		expect.Equal(t, "resources", want, FormatResources(OverrideOf(overrides, ReplicaID{Task: "collector", Index: index})))
	}
	expect.Equal(t, "another task's", "memory=1Gi", FormatResources(OverrideOf(overrides, ReplicaID{Task: "learner", Index: 1})))
	expect.Equal(t, "an unknown task's", "", FormatResources(OverrideOf(overrides, ReplicaID{Task: "evaluator", Index: 0})))
}

func TestEqualAmountsHaveEqualTextsAndAreReadBack(t *testing.T) {
	for _, same := range [][]v2alpha1.ReplicaResources{
		{resourcesOf("1", "4Gi"), resourcesOf("1000m", "4294967296"), resourcesOf("1e0", "4194304Ki")},
		{resourcesOf("", "1500M"), resourcesOf("", "1500000000")},
		{{}, resourcesOf("0", "0")},
	} {
		want := FormatResources(same[0])
		for _, each := range same {
			expect.Equal(t, "text", want, FormatResources(each))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"diengine/resources": want}}}
			expect.Equal(t, "read back", want, FormatResources(ReadResources(pod)))
		}
	}
	for _, garbage := range []string{"", "memory", "memory=", "memory=-1Gi", "cpu=many,memory=0", "memory=1e99999999999"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"diengine/resources": garbage}}}
		expect.Equal(t, "resources of "+garbage, "", FormatResources(ReadResources(pod)))
	}
}

func TestAnOverrideReplacesOnlyItsOwnAmounts(t *testing.T) {
	first := overrideFor("collector", 0, "2", "4Gi")
	first.Reason = v2alpha1.OverrideUnschedulable
	second := overrideFor("collector", 0, "", "8Gi")
	second.Reason = v2alpha1.OverrideOutOfMemory
	overrides := SetOverride([]v2alpha1.ResourceOverride{first, overrideFor("collector", -1, "", "1Gi")}, second)
	expect.Equal(t, "overrides", 3, len(overrides))
	expect.Equal(t, "the first one's", "cpu=2", FormatResources(overrides[0].Resources))
	expect.Equal(t, "the replica's", "cpu=2,memory=8Gi", FormatResources(OverrideOf(overrides, ReplicaID{Task: "collector", Index: 0})))
	expect.Equal(t, "its task's", "memory=1Gi", FormatResources(OverrideOf(overrides, ReplicaID{Task: "collector", Index: 1})))
	overrides = SetOverride(overrides, overrideFor("collector", 0, "1", "2Gi"))
	expect.Equal(t, "overrides without amounts are removed", 2, len(overrides))
}

func TestAWorkerIsBuiltWithItsRecordedResources(t *testing.T) {
	const template = `{"metadata":{"annotations":{"diengine/resources":"cpu=7"}},"spec":{"containers":[{"name":"proxy","image":"image"},
		{"name":"di-container","image":"image","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"memory":"2Gi"}}}]}}`
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space"},
		Spec:       v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Name: "collector", Template: raw(template)}}},
		Status:     v2alpha1.DIJobStatus{Scaling: &v2alpha1.ScalingStatus{Resources: []v2alpha1.ResourceOverride{overrideFor("collector", 1, "", "2Gi")}}},
	}
	assignment := &Assignment{Replicas: []Replica{{Rank: 0, Pod: "job-collector-0"}, {Index: 1, Rank: 1, Pod: "job-collector-1"}}, Nodes: []string{"job-collector-0", "job-collector-1"}}
	builder := NewBuilder(job, Settings{})
	gib := int64(1) << 30 * 1000
	for i, want := range []map[string]int64{
		{"request of cpu": 1000, "request of memory": gib, "limit of memory": 2 * gib},
		{"request of cpu": 1000, "request of memory": 2 * gib, "limit of memory": 4 * gib},
	} {
		pod, err := builder.Worker(assignment, &assignment.Replicas[i])
		expect.NoError(t, err)
		expect.Equal(t, pod.Name, want, amounts(pod.Spec.Containers[1].Resources))
		expect.Equal(t, "the sidecar", map[string]int64{}, amounts(pod.Spec.Containers[0].Resources))
		expect.Equal(t, "the annotation", []string{"", "memory=2Gi"}[i], pod.Annotations["diengine/resources"])
	}
	demand, err := builder.Demand(assignment.Replicas)
	expect.NoError(t, err)
	expect.Equal(t, "demand of CPU", 2000, demand.Resources.Cpu().MilliValue())
	expect.Equal(t, "demand of memory", 3<<30, demand.Resources.Memory().Value())
}

func TestScalingNeverOverflows(t *testing.T) {
	for want, given := range map[int64][3]int64{
		4: {7, 1, 2}, 0: {0, 5, 7}, math.MaxInt64: {math.MaxInt64, math.MaxInt64, 1}, math.MaxInt64 - 1: {math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64}, 9: {9, 5, 0},
	} {
		expect.Equal(t, "result", want, Scale(given[0], given[1], given[2]))
	}
}
