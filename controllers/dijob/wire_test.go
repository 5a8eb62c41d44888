// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// wireTemplate has a sidecar before the main container, so the tests distinguish the settings of both.
const wireTemplate = `{"spec":{"containers":[{"name":"sidecar","image":"s"},{"name":"di-container","image":"i",` +
	`"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"3","nvidia.com/gpu":"1"}}}]}}`

// submitWire submits a job with a volume and a priority class through v1alpha1. It requests a collector, a
// learner, and learners of 2 and of 10 GPUs.
func (s *space) submitWire(ctx context.Context) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "wire"}, Value: 7}
	Expect(client.IgnoreAlreadyExists(shared.api.Create(ctx, class))).To(Succeed())
	role := v1alpha1.RoleSpec{Template: v1alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(wireTemplate)}}}
	Expect(shared.api.Create(ctx, &v1alpha1.AggregatorConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "aggregator-config"},
		Spec:       v1alpha1.AggregatorConfigSpec{Aggregator: v1alpha1.AggregatorSpec(role)},
	})).To(Succeed())
	Expect(shared.api.Create(ctx, &v1alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"},
		Spec: v1alpha1.DIJobSpec{
			PriorityClassName: "wire",
			Volumes:           []v1alpha1.RawObject{{JSON: apiextensionsv1.JSON{Raw: []byte(`{"name":"data","emptyDir":{}}`)}}},
			Coordinator:       role, Collector: &role, Learner: &role,
		},
	})).To(Succeed())
	Expect(s.settle(ctx)).To(Succeed())
	s.run(ctx)
	s.edit(ctx, func(list *v2alpha1.Membership) {
		four, two, gib := resource.MustParse("4"), resource.MustParse("2"), resource.MustParse("1Gi")
		list.Spec.Members = []v2alpha1.Member{
			{Slot: "a", Task: v2alpha1.TaskTypeCollector, PodName: "job-collector-aaaaa"},
			{
				Slot: "b", Task: v2alpha1.TaskTypeLearner, PodName: "job-learner-bbbbb",
				Resources: v2alpha1.MemberResources{CPUs: &four, GPUs: ptr.To(resource.MustParse("0")), Memory: &gib},
			},
			{
				Slot: "c", Task: v2alpha1.TaskTypeLearner, PodName: "job-aggregator-ccccc",
				Resources: v2alpha1.MemberResources{GPUs: &two}, DDPGPUs: []int32{2},
			},
			{
				Slot: "d", Task: v2alpha1.TaskTypeLearner, PodName: "job-aggregator-ddddd",
				Resources: v2alpha1.MemberResources{CPUs: &four, GPUs: ptr.To(resource.MustParse("10"))}, DDPGPUs: []int32{8, 2},
			},
		}
	})
	Expect(s.settle(ctx)).To(Succeed())
}

// wirePod contains the fields of a pod that users see.
type wirePod struct {
	labels    map[string]string
	env       map[string]string
	ports     map[string]int32
	resources corev1.ResourceRequirements
	volume    bool
	never     bool
	owners    []string
}

func wireForm(pod *corev1.Pod) wirePod {
	form := wirePod{
		labels: maps.Clone(pod.Labels), env: map[string]string{}, ports: map[string]int32{},
		never: pod.Spec.RestartPolicy == corev1.RestartPolicyNever,
	}
	main := pod.Spec.Containers[1]
	for _, variable := range main.Env {
		form.env[variable.Name] = variable.Value
	}
	Expect(pod.Spec.Containers[0].Env).To(Equal(main.Env), "every container has the variables")
	Expect(pod.Spec.Containers[0].Ports).To(BeEmpty())
	Expect(pod.Spec.Containers[0].Resources).To(BeZero())
	Expect(pod.Spec.PriorityClassName).To(Equal("wire"))
	for _, port := range main.Ports {
		form.ports[port.Name] = port.ContainerPort
	}
	form.resources = main.Resources
	form.volume = slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == "data" })
	for _, owner := range pod.OwnerReferences {
		form.owners = append(form.owners, fmt.Sprint(owner.Kind, " ", owner.Name, " ", ptr.Deref(owner.Controller, false)))
	}
	return form
}

var _ = Describe("The pods of a coordinator-led job, as deployed programs know them", func() {
	It("have the names, labels, ports, variables, resources, volumes and services of their roles", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWire(ctx)
		found := s.replicaPods(ctx)
		aggregators := []string{found[2], found[4]}
		single, master, worker := found[3], found[5], found[6]

		labels := func(role, pod string, more ...string) map[string]string {
			all := map[string]string{
				"group-name": "diengine.opendilab.org", "dijob-name": "job", "controller-name": "di-operator", "replica-type": role, "pod-name": pod,
			}
			for _, kind := range more {
				all["ddp-learner-type"] = kind
			}
			return all
		}
		env := func(server, pod, port, number string, more ...string) map[string]string {
			all := map[string]string{
				"KUBERNETES_POD_NAMESPACE": s.name, "KUBERNETES_POD_NAME": pod, "KUBERNETES_SERVER_URL": server, port: number,
			}
			for i := 0; i < len(more); i += 2 {
				all[more[i]] = more[i+1]
			}
			return all
		}
		const server = "di-server.di-system:8080"
		ddp := func(pod, world, local, start, master string) map[string]string {
			return env(server, pod, "LEARNER_PORT", "22271", "WORLD_SIZE", world, "LOCAL_WORLD_SIZE", local, "START_RANK", start,
				"MASTER_ADDR", master, "MASTER_PORT", "10314")
		}
		resources := func(requested, limit, gpus, memory string) corev1.ResourceRequirements {
			requests := corev1.ResourceList{"cpu": resource.MustParse(requested), "nvidia.com/gpu": resource.MustParse(gpus)}
			limits := corev1.ResourceList{"cpu": resource.MustParse(limit), "nvidia.com/gpu": resource.MustParse(gpus)}
			if memory != "" {
				requests["memory"], limits["memory"] = resource.MustParse(memory), resource.MustParse(memory)
			}
			return corev1.ResourceRequirements{Requests: requests, Limits: limits}
		}
		ofTemplate := resources("1", "3", "1", "")
		gpuPorts := func(gpus int32, more map[string]int32) map[string]int32 {
			all := map[string]int32{"di-port": 22271}
			for gpu := int32(1); gpu < gpus; gpu++ {
				all[fmt.Sprintf("gpu-port-%d", gpu)] = 22271 + gpu
			}
			maps.Copy(all, more)
			return all
		}
		job := []string{"DIJob job true"}
		want := map[string]wirePod{
			"job-coordinator": {
				labels("coordinator", "job-coordinator"),
				env("http://"+server, "job-coordinator", "COORDINATOR_PORT", "22273", "KUBERNETES_COORDINATOR_URL", "job-coordinator."+s.name+":22273"),
				map[string]int32{"di-port": 22273}, ofTemplate, true, true, job,
			},
			"job-collector-aaaaa": {
				labels("collector", "job-collector-aaaaa"), env(server, "job-collector-aaaaa", "COLLECTOR_PORT", "22270"),
				map[string]int32{"di-port": 22270}, ofTemplate, true, false, job,
			},
			"job-learner-bbbbb": {
				labels("learner", "job-learner-bbbbb"), env(server, "job-learner-bbbbb", "LEARNER_PORT", "22271"),
				map[string]int32{"di-port": 22271}, resources("4", "4", "1", "1Gi"), true, false, job,
			},
			single: {
				labels("ddp-learner", single), ddp(single, "2", "2", "0", "localhost"), gpuPorts(2, nil),
				resources("1", "3", "2", ""), true, false, append(job, "Pod "+aggregators[0]+" false"),
			},
			master: {
				labels("ddp-learner", master, "ddp-learner-master"), ddp(master, "10", "8", "0", "localhost"), gpuPorts(8, map[string]int32{"master-port": 10314}),
				resources("4", "4", "8", ""), true, false, append(job, "Pod "+aggregators[1]+" false"),
			},
			worker: {
				labels("ddp-learner", worker, "ddp-learner-worker"), ddp(worker, "10", "2", "8", master), gpuPorts(2, nil),
				resources("4", "4", "2", ""), true, false, append(job, "Pod "+aggregators[1]+" false"),
			},
		}
		for _, name := range aggregators {
			want[name] = wirePod{
				labels("aggregator", name), env(server, name, "AGGREGATOR_PORT", "22272"),
				map[string]int32{"di-port": 22272}, ofTemplate, false, false, job,
			}
		}
		pods := s.pods(ctx)
		Expect(pods).To(HaveLen(len(want)))
		for i := range pods {
			got, expected := wireForm(&pods[i]), want[pods[i].Name]
			Expect(got.labels).To(Equal(expected.labels), pods[i].Name)
			Expect(got.env).To(Equal(expected.env), pods[i].Name)
			Expect(got.ports).To(Equal(expected.ports), pods[i].Name)
			Expect(got.owners).To(Equal(expected.owners), pods[i].Name)
			Expect([]bool{got.volume, got.never}).To(Equal([]bool{expected.volume, expected.never}), pods[i].Name)
			for list, pair := range map[string][2]corev1.ResourceList{
				"requests": {got.resources.Requests, expected.resources.Requests}, "limits": {got.resources.Limits, expected.resources.Limits},
			} {
				Expect(quantities(pair[0])).To(Equal(quantities(pair[1])), "%s of %s", list, pods[i].Name)
			}
			var service corev1.Service
			Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(&pods[i]), &service)).To(Succeed())
			Expect(service.Labels).To(Equal(expected.labels))
			Expect(service.Spec.Selector).To(Equal(expected.labels))
			Expect(service.Spec.ClusterIP).To(Equal("None"))
			Expect(service.Spec.Ports).To(HaveExactElements(And(HaveField("Name", "di-port"), HaveField("Port", expected.ports["di-port"]))))
		}
	})

	It("are recreated with an evicted coordinator, which does not end the job", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWire(ctx)
		s.run(ctx)
		coordinator := &corev1.Pod{}
		key := client.ObjectKey{Namespace: s.name, Name: "job-coordinator"}
		Expect(shared.api.Get(ctx, key, coordinator)).To(Succeed())
		before, names := coordinator.UID, s.podNames(ctx)
		coordinator.Status.Phase, coordinator.Status.Reason = corev1.PodFailed, "Evicted"
		Expect(shared.api.Status().Update(ctx, coordinator)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(shared.api.Get(ctx, key, coordinator)).To(Succeed())
		Expect(coordinator.UID).NotTo(Equal(before))
		Expect(s.podNames(ctx)).To(ConsistOf(names))
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phaseInV1(ctx)).To(Equal(v1alpha1.JobRunning))
	})

	It("that have finished are kept by policy Running", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submitWire(ctx)
		s.run(ctx)
		name := s.replicaPods(ctx)[0]
		pod := specs.Get[corev1.Pod](ctx, shared.api, s.name, name)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar"}, {Name: "di-container", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
		Expect(shared.api.Status().Update(ctx, pod)).To(Succeed())
		s.end(ctx, "job-coordinator", 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phaseInV1(ctx)).To(Equal(v1alpha1.JobSucceeded))
		Expect(s.podNames(ctx)).To(ConsistOf("job-coordinator", name))
		Expect(s.services(ctx)).To(BeEmpty())
	})

	It("decide the end of the job by the coordinator's main container", func(ctx SpecContext) {
		s := newSpace(ctx)
		template := []byte(`{"spec":{"containers":[{"name":"sidecar","image":"s"},{"name":"di-container","image":"i"}]}}`)
		Expect(shared.api.Create(ctx, &v1alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"},
			Spec: v1alpha1.DIJobSpec{
				Coordinator: v1alpha1.RoleSpec{Template: v1alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: template}}},
			},
		})).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phaseInV1(ctx)).To(Equal(v1alpha1.JobCreated))
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phaseInV1(ctx)).To(Equal(v1alpha1.JobRunning))
		pod := &s.pods(ctx)[0]
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "di-container", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}},
		}
		Expect(shared.api.Status().Update(ctx, pod)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.phaseInV1(ctx)).To(Equal(v1alpha1.JobFailed))
		Expect(s.podNames(ctx)).To(ConsistOf("job-coordinator"))
	})
})

func (s *space) phaseInV1(ctx context.Context) v1alpha1.Phase {
	job := specs.Get[v1alpha1.DIJob](ctx, shared.api, s.name, "job")
	return job.Status.Phase
}

// quantities converts quantities to comparable values.
func quantities(list corev1.ResourceList) map[corev1.ResourceName]string {
	all := map[corev1.ResourceName]string{}
	for name, quantity := range list {
		all[name] = quantity.String()
	}
	return all
}
