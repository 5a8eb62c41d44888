// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

const plain = `{"spec":{"containers":[{"name":"di-container","image":"image"}]}}`

func raw(text string) v2alpha1.RawObject {
	return jobs.Raw(text)
}

// ledBy returns a coordinator-led job whose tasks have the template.
func ledBy(template string) *v2alpha1.DIJob {
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "uid"},
		Spec: v2alpha1.DIJobSpec{
			Lifecycle:         v2alpha1.LifecycleCoordinatorLed,
			PriorityClassName: "high",
			Volumes:           []v2alpha1.RawObject{raw(`{"name":"data","emptyDir":{}}`)},
			Tasks: []v2alpha1.Task{
				{Type: v2alpha1.TaskTypeCoordinator, Template: raw(template)},
				{Type: v2alpha1.TaskTypeCollector, Template: raw(template)},
				{Type: v2alpha1.TaskTypeLearner, Template: raw(template)},
			},
		},
	}
}

func environment(container *corev1.Container) map[string]string {
	return environmentBy(container, nil)
}

// environmentBy returns the variables of a container's program. As the kubelet does, it reads
// variables from the ConfigMap and expands references to earlier variables.
func environmentBy(container *corev1.Container, configMap *corev1.ConfigMap) map[string]string {
	env := map[string]string{}
	for _, variable := range container.Env {
		value := variable.Value
		for before, known := range env {
			value = strings.ReplaceAll(value, "$("+before+")", known)
		}
		if from := variable.ValueFrom; from != nil && configMap != nil && from.ConfigMapKeyRef.Name == configMap.Name {
			value = configMap.Data[from.ConfigMapKeyRef.Key]
		}
		env[variable.Name] = value
	}
	return env
}

// nodesOf returns the ConfigMap that the pods of an assignment refer to.
func nodesOf(t *testing.T, builder *Builder, assignment *Assignment) *corev1.ConfigMap {
	t.Helper()
	configMap, err := builder.NodesConfigMap(assignment)
	expect.NoError(t, err)
	return configMap
}

func ports(container *corev1.Container) map[string]int32 {
	found := map[string]int32{}
	for _, port := range container.Ports {
		found[port.Name] = port.ContainerPort
	}
	return found
}

func TestACoordinatorIsToldWhereItIs(t *testing.T) {
	pod, err := NewBuilder(ledBy(plain), Settings{}).Coordinator()
	expect.NoError(t, err)
	wantEnv := map[string]string{
		"KUBERNETES_POD_NAMESPACE":   "space",
		"KUBERNETES_POD_NAME":        "job-coordinator",
		"KUBERNETES_SERVER_URL":      "http://di-server.di-system:8080",
		"COORDINATOR_PORT":           "22273",
		"KUBERNETES_COORDINATOR_URL": "job-coordinator.space:22273",
	}
	expect.Equal(t, "environment", wantEnv, environment(&pod.Spec.Containers[0]))
	wantLabels := map[string]string{
		"group-name": "diengine.opendilab.org", "dijob-name": "job", "controller-name": "di-operator",
		"replica-type": "coordinator", "pod-name": "job-coordinator",
	}
	expect.Equal(t, "labels", wantLabels, pod.Labels)
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever || pod.Spec.PriorityClassName != "high" {
		t.Errorf("restart policy is %s, priority class %s, want Never and high", pod.Spec.RestartPolicy, pod.Spec.PriorityClassName)
	}
	expect.Equal(t, "volumes", []string{"data", "di-server-token"}, volumes(pod))
	want := metav1.OwnerReference{
		APIVersion: "diengine.opendilab.org/v2alpha1", Kind: "DIJob", Name: "job", UID: "uid",
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
	expect.Equal(t, "owners", []metav1.OwnerReference{want}, pod.OwnerReferences)
}

func TestTheServiceOfAReplicaSelectsItsPod(t *testing.T) {
	job := ledBy(`{"metadata":{"labels":{"team":"blue","replica-type":"mine"}},"spec":{"containers":[
		{"name":"other"},{"name":"di-container","ports":[{"name":"di-port","containerPort":4000}]}]}}`)
	pod, err := NewBuilder(job, Settings{}).Replica(&v2alpha1.Member{Slot: "a", Task: v2alpha1.TaskTypeCollector}, "job-collector-abcde")
	expect.NoError(t, err)
	if pod.Labels["team"] != "blue" || pod.Labels["replica-type"] != "collector" {
		t.Errorf("labels are %v, want the user's beneath ours", pod.Labels)
	}
	service := ReplicaService(job, pod)
	expect.Equal(t, "labels of the service against the pod's", pod.Labels, service.Labels)
	expect.Equal(t, "selector against the pod's labels", pod.Labels, service.Spec.Selector)
	if service.Name != pod.Name || service.Spec.ClusterIP != corev1.ClusterIPNone || service.Spec.Ports[0].Port != 4000 {
		t.Errorf("service is %+v, want a headless one of the pod's name at port 4000", service)
	}
	for i := range pod.Spec.Containers {
		if env := environment(&pod.Spec.Containers[i]); env["COLLECTOR_PORT"] != "4000" || env["KUBERNETES_SERVER_URL"] != "di-server.di-system:8080" {
			t.Errorf("container %s has environment %v, want port 4000 and the server", pod.Spec.Containers[i].Name, env)
		}
	}
}

func TestOurVariablesTakeThePlaceOfTheUsers(t *testing.T) {
	job := ledBy(`{"spec":{"containers":[{"name":"di-container","env":[
		{"name":"MINE","value":"$(COORDINATOR_PORT)"},{"name":"KUBERNETES_POD_NAME","value":"wrong"}]}]}}`)
	pod, err := NewBuilder(job, Settings{}).Coordinator()
	expect.NoError(t, err)
	var order []string
	for _, variable := range pod.Spec.Containers[0].Env {
		order = append(order, variable.Name)
	}
	want := []string{
		"KUBERNETES_POD_NAMESPACE", "KUBERNETES_POD_NAME", "KUBERNETES_SERVER_URL", "COORDINATOR_PORT", "KUBERNETES_COORDINATOR_URL", "MINE",
	}
	expect.Equal(t, "variables", want, order)
}

func TestWhatAMemberAsksForIsSet(t *testing.T) {
	template := `{"spec":{"containers":[{"name":"di-container","resources":{"limits":{"nvidia.com/gpu":"1","memory":"1Gi"}}}]}}`
	tests := map[string]struct {
		asked v2alpha1.MemberResources
		want  corev1.ResourceList
	}{
		"nothing keeps the template's": {
			want: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
		},
		"no GPUs keeps the template's": {
			asked: v2alpha1.MemberResources{GPUs: ptr.To(resource.MustParse("0"))},
			want:  corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
		},
		"all": {
			asked: v2alpha1.MemberResources{
				CPUs: ptr.To(resource.MustParse("2")), GPUs: ptr.To(resource.MustParse("4")), Memory: ptr.To(resource.MustParse("3Gi")),
			},
			want: corev1.ResourceList{
				"cpu": resource.MustParse("2"), "nvidia.com/gpu": resource.MustParse("4"), "memory": resource.MustParse("3Gi"),
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			member := &v2alpha1.Member{Slot: "a", Task: v2alpha1.TaskTypeLearner, Resources: tc.asked}
			pod, err := NewBuilder(ledBy(template), Settings{}).Replica(member, "job-learner-abcde")
			expect.NoError(t, err)
			expect.Equal(t, "limits", tc.want, pod.Spec.Containers[0].Resources.Limits)
		})
	}
}

func TestDDPLearnersKnowTheirPlace(t *testing.T) {
	tests := map[string]struct {
		gpus      []int32
		index     int
		wantEnv   map[string]string
		wantPorts map[string]int32
		wantKind  string
	}{
		"the only one": {
			gpus: []int32{2}, index: 0,
			wantEnv:   map[string]string{"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "START_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "10314"},
			wantPorts: map[string]int32{"di-port": 22271, "gpu-port-1": 22272},
		},
		"the master": {
			gpus: []int32{3, 2}, index: 0,
			wantEnv:   map[string]string{"WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "3", "START_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "10314"},
			wantPorts: map[string]int32{"di-port": 22271, "gpu-port-1": 22272, "gpu-port-2": 22273, "master-port": 10314},
			wantKind:  "ddp-learner-master",
		},
		"a worker": {
			gpus: []int32{3, 2}, index: 1,
			wantEnv:   map[string]string{"WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "2", "START_RANK": "3", "MASTER_ADDR": "job-ddp-learner-aaaaa", "MASTER_PORT": "10314"},
			wantPorts: map[string]int32{"di-port": 22271, "gpu-port-1": 22272},
			wantKind:  "ddp-learner-worker",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregator := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-aggregator-abcde", UID: "aggregator-uid"}}
			member := &v2alpha1.Member{Slot: "a", Task: v2alpha1.TaskTypeLearner, DDPGPUs: tc.gpus}
			pod, err := NewBuilder(ledBy(plain), Settings{}).DDPLearner(member, aggregator, []string{"job-ddp-learner-aaaaa", "job-ddp-learner-bbbbb"}, tc.index)
			expect.NoError(t, err)
			env := environment(&pod.Spec.Containers[0])
			for key, want := range tc.wantEnv {
				expect.Equal(t, key, want, env[key])
			}
			expect.Equal(t, "ports", tc.wantPorts, ports(&pod.Spec.Containers[0]))
			expect.Equal(t, "ddp-learner-type", tc.wantKind, pod.Labels["ddp-learner-type"])
			if gpus := pod.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]; gpus.Value() != int64(tc.gpus[tc.index]) {
				t.Errorf("GPUs are %s, want %d", gpus.String(), tc.gpus[tc.index])
			}
			want := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "job-aggregator-abcde", UID: "aggregator-uid"}
			expect.Equal(t, "second owner", want, pod.OwnerReferences[1])
		})
	}
}

func TestAnAggregatorHasNoVolumesOfTheJob(t *testing.T) {
	config := &v2alpha1.AggregatorConfig{
		Spec: v2alpha1.AggregatorConfigSpec{Aggregator: v2alpha1.AggregatorSpec{Template: raw(plain)}},
	}
	pod, err := NewBuilder(ledBy(plain), Settings{}).Aggregator(config, &v2alpha1.Member{Slot: "a"}, "job-aggregator-abcde")
	expect.NoError(t, err)
	expect.Equal(t, "volumes", []string{"di-server-token"}, volumes(pod))
	if env := environment(&pod.Spec.Containers[0]); env["AGGREGATOR_PORT"] != "22272" {
		t.Errorf("environment is %v, want AGGREGATOR_PORT 22272", env)
	}
	expect.Equal(t, fmt.Sprintf("annotations are %v", pod.Annotations), "a", pod.Annotations["diengine/slot"])
}

func TestATemplateThatDoesNotDecodeIsNamed(t *testing.T) {
	tests := map[string]struct{ template, want string }{
		"missing":       {"", "spec.tasks[0].template: is missing"},
		"of wrong type": {`{"spec":{"containers":"none"}}`, "spec.tasks[0].template: does not decode"},
		"without pods":  {`{"spec":{}}`, "spec.tasks[0].template.spec.containers: is empty"},
		"with a quantity that takes hours to decode": {
			`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-2000000000"}}}]}}`,
			"spec.tasks[0].template.spec.containers[0].resources.limits[cpu]: 1e-2000000000: the exponent of a quantity must be from -18 to 18",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewBuilder(ledBy(tc.template), Settings{}).Coordinator()
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error is %v, want one that starts with %q", err, tc.want)
			}
		})
	}
}

func TestAVolumeWhoseQuantityTakesHoursToDecodeIsNamed(t *testing.T) {
	job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Volumes: []v2alpha1.RawObject{raw(`{"name":"v","emptyDir":{"sizeLimit":"1e-2000000000"}}`)}}}
	want := "spec.volumes[0].emptyDir.sizeLimit: 1e-2000000000: the exponent of a quantity"
	if _, err := Volumes(job); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error is %v, want one that starts with %q", err, want)
	}
}

func volumes(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		names = append(names, pod.Spec.Volumes[i].Name)
	}
	return names
}

func TestThePriorityClassOfAPodIsTheJobsElseTheTemplatesElseThatOfItsPriority(t *testing.T) {
	settings := Settings{PriorityClasses: map[v2alpha1.Priority]string{v2alpha1.PriorityNormal: "usual", v2alpha1.PriorityHigh: "urgent"}}
	tests := map[string]struct {
		priority             v2alpha1.Priority
		ofJob, ofPod, wanted string
	}{
		"nothing is said":        {"", "", "", "usual"},
		"the priority is said":   {v2alpha1.PriorityHigh, "", "", "urgent"},
		"the template says it":   {v2alpha1.PriorityHigh, "", "own", "own"},
		"the job says it itself": {v2alpha1.PriorityHigh, "theirs", "own", "theirs"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Priority: tc.priority, PriorityClassName: tc.ofJob}}
			template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{PriorityClassName: tc.ofPod}}
			expect.Equal(t, "result", tc.wanted, NewBuilder(job, settings).newPod(template, "pod").Spec.PriorityClassName)
		})
	}
}

func TestTheSchedulerOfTheJobIsThatOfItsPods(t *testing.T) {
	job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Scheduling: &v2alpha1.Scheduling{SchedulerName: "volcano"}}}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulerName: "own"}}
	expect.Equal(t, "result", "volcano", NewBuilder(job, Settings{}).newPod(template, "pod").Spec.SchedulerName)
}

func TestAPodSaysWhichContainersItWasMadeWithAndNobodyElseDoes(t *testing.T) {
	template := func(containers string) string {
		return `{"metadata":{"annotations":{"diengine/containers":"forged"},"finalizers":["user/keep"]},"spec":{"containers":[` + containers + `]}}`
	}
	for name, tc := range map[string]struct{ template, worker, coordinator string }{
		"the only one":          {template(`{"name":"trainer"}`), "trainer", "trainer"},
		"the known one first":   {template(`{"name":"log"},{"name":"di-container"}`), "di-container,log", "di-container,log"},
		"none that is known":    {template(`{"name":"trainer"},{"name":"log"}`), "trainer,log", ""},
		"one named as the role": {template(`{"name":"log"},{"name":"coordinator"}`), "log,coordinator", "coordinator,log"},
	} {
		t.Run(name, func(t *testing.T) {
			coordinator, err := NewBuilder(ledBy(tc.template), Settings{}).Coordinator()
			expect.NoError(t, err)
			assignment := &Assignment{Replicas: []Replica{{Pod: "job-learner-0"}}, Nodes: []string{"job-learner-0"}}
			worker, err := NewBuilder(ledBy(tc.template), Settings{}).Worker(assignment, &assignment.Replicas[0])
			expect.NoError(t, err)
			for pod, want := range map[*corev1.Pod]string{coordinator: tc.coordinator, worker: tc.worker} {
				expect.Equal(t, pod.Name, want, pod.Annotations["diengine/containers"])
				if len(pod.Finalizers) > 0 {
					t.Errorf("%s has finalizers %v, by which its name is taken for ever", pod.Name, pod.Finalizers)
				}
			}
		})
	}
}

func TestTheLastLinesOfAFailedContainerAreReportedUnlessItsTemplateDecides(t *testing.T) {
	const logs, file = corev1.TerminationMessageFallbackToLogsOnError, corev1.TerminationMessageReadFile
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "setup"}},
		Containers:     []corev1.Container{{Name: "di-container"}, {Name: "own", TerminationMessagePolicy: file}},
	}}
	spec := NewBuilder(&v2alpha1.DIJob{}, Settings{}).newPod(template, "pod").Spec
	expect.Equal(t, "policy of an init container", logs, spec.InitContainers[0].TerminationMessagePolicy)
	expect.Equal(t, "policy of a container", logs, spec.Containers[0].TerminationMessagePolicy)
	expect.Equal(t, "policy of the template", file, spec.Containers[1].TerminationMessagePolicy)
}
