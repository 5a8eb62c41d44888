// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestRequirementsAreTheEffectiveRequestsOfPods(t *testing.T) {
	t.Parallel()
	limits := func(cpus, gpus int64) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: list(cpus, gpus)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := limits(2, 0)
	sidecar.RestartPolicy = &always
	running := &corev1.Pod{Spec: *asking(3, 1)}
	running.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: list(1, 0)[corev1.ResourceCPU]}
	for name, tc := range map[string]struct {
		spec       corev1.PodSpec
		existing   []*corev1.Pod
		cpus, gpus int64
	}{
		"requests":                          {spec: *asking(2, 1), cpus: 2, gpus: 1},
		"limits without requests":           {spec: corev1.PodSpec{Containers: []corev1.Container{limits(2, 1)}}, cpus: 2, gpus: 1},
		"a larger init container":           {spec: corev1.PodSpec{InitContainers: []corev1.Container{limits(5, 0)}, Containers: []corev1.Container{limits(2, 1)}}, cpus: 5, gpus: 1},
		"a sidecar":                         {spec: corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{limits(2, 1)}}, cpus: 4, gpus: 1},
		"overhead":                          {spec: corev1.PodSpec{Containers: []corev1.Container{limits(2, 1)}, Overhead: list(1, 0)}, cpus: 3, gpus: 1},
		"limits of the pod":                 {spec: corev1.PodSpec{Containers: []corev1.Container{{}}, Resources: &corev1.ResourceRequirements{Limits: list(6, 0)}}, cpus: 6},
		"limits of the pod and a container": {spec: corev1.PodSpec{Containers: []corev1.Container{limits(2, 1)}, Resources: &corev1.ResourceRequirements{Limits: list(6, 0)}}, cpus: 2, gpus: 1},
		"an existing pod that has more":     {spec: *asking(2, 1), existing: []*corev1.Pod{running}, cpus: 4, gpus: 1},
		"an existing pod that has less":     {spec: *asking(8, 0), existing: []*corev1.Pod{running}, cpus: 8, gpus: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := NewSnapshot([]*corev1.Node{node("a", 8, 2)})
			want := snapshot.amounts(list(tc.cpus, tc.gpus))
			expect.Equal(t, "amounts", want, snapshot.RequirementsOf(&tc.spec, tc.existing...).amounts)
		})
	}
}

func TestAPodOccupiesItsEffectiveRequests(t *testing.T) {
	t.Parallel()
	overhead := &corev1.Pod{Spec: *asking(3, 1)}
	overhead.Spec.Overhead = list(1, 0)
	resized := &corev1.Pod{Spec: *asking(3, 1)}
	resized.Status.ContainerStatuses = []corev1.ContainerStatus{{AllocatedResources: list(5, 1), Resources: &corev1.ResourceRequirements{Requests: list(5, 1)}}}
	resized.Status.ContainerStatuses[0].Name = resized.Spec.Containers[0].Name
	several := &corev1.Pod{Spec: *asking(1, 1)}
	several.Spec.Containers = append(several.Spec.Containers, asking(2, 0).Containers...)
	foreign := &corev1.Pod{Spec: *asking(1, 0)}
	foreign.Spec.Containers[0].Resources.Requests["example.com/fpga"] = list(1, 0)[corev1.ResourceCPU]
	for name, pod := range map[string]*corev1.Pod{
		"one container": {Spec: *asking(2, 1)}, "several containers": several, "overhead": overhead, "resized in place": resized,
		"no requests": {Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}, "a resource of no node": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := NewSnapshot([]*corev1.Node{node("a", 8, 2)})
			pod.Spec.NodeName = "a"
			want := slices.Clone(snapshot.Nodes[0].Free)
			take(want, snapshot.amounts(snapshot.requestsOf(pod)), 1)
			snapshot.Occupy(pod)
			expect.Equal(t, "free", want, snapshot.Nodes[0].Free)
		})
	}
}

func TestAGPULimitAloneCountsOnTheNodes(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 8, 1), node("b", 8, 1), node("c", 8, 1)})
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: list(0, 1)[gpu]}}}}}
	placed := NewBoard(snapshot.Nodes).Place(collectors(snapshot, "job", 1, 4, spec))
	expect.Equal(t, "nodes", []string{"a", "b", "c"}, placed.Nodes)
}

func TestRequirementsOfEqualSpecsHaveEqualKeys(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 8, 2)})
	bound := func(zone string) *corev1.PodSpec {
		spec := asking(1, 0)
		spec.NodeSelector = map[string]string{"zone": zone, "a": "b", "c": "d"}
		seconds := int64(len(zone))
		spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}},
		}}}
		return spec
	}
	key := func(spec *corev1.PodSpec) string { return snapshot.RequirementsOf(spec).key }
	if first, second := key(bound("east")), key(bound("east")); first != second {
		t.Errorf("keys of equal specs differ: %s and %s", first, second)
	}
	keys := map[string]bool{}
	for _, spec := range []*corev1.PodSpec{asking(1, 0), asking(0, 1), bound("east"), bound("far west")} {
		keys[key(spec)] = true
	}
	if len(keys) != 4 {
		t.Errorf("keys of different specs are equal: %v", keys)
	}
}
