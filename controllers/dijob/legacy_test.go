// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"strconv"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
)

// legacy is a job with its objects as v0.2.2 wrote them. The objects are literal, so they do not depend on
// the code under test.
type legacy struct {
	*space
	owner metav1.OwnerReference
}

func legacyTemplate(image, gpus string) v1alpha1.RawObject {
	return v1alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: fmt.Appendf(nil,
		`{"spec":{"containers":[{"name":"di-container","image":%q,"resources":{"limits":{"nvidia.com/gpu":%q},"requests":{"nvidia.com/gpu":%q}}}]}}`,
		image, gpus, gpus)}}
}

// submitLegacy submits a job whose learner template requests the given number of GPUs, with its
// AggregatorConfig.
func (s *space) submitLegacy(ctx context.Context, learnerGPUs string, changes ...func(*v1alpha1.DIJob)) *legacy {
	Expect(shared.api.Create(ctx, &v1alpha1.AggregatorConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "aggregator-config"},
		Spec:       v1alpha1.AggregatorConfigSpec{Aggregator: v1alpha1.AggregatorSpec{Template: legacyTemplate("aggregator:new", "0")}},
	})).To(Succeed())
	job := &v1alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"},
		Spec: v1alpha1.DIJobSpec{
			CleanPodPolicy: v1alpha1.CleanPodPolicyRunning,
			Coordinator:    v1alpha1.RoleSpec{Template: legacyTemplate("coordinator", "0")},
			Collector:      &v1alpha1.RoleSpec{Template: legacyTemplate("collector", "0")},
			Learner:        &v1alpha1.RoleSpec{Template: legacyTemplate("learner", learnerGPUs)},
		},
	}
	for _, change := range changes {
		change(job)
	}
	Expect(shared.api.Create(ctx, job)).To(Succeed())
	return &legacy{space: s, owner: metav1.OwnerReference{
		APIVersion: "diengine.opendilab.org/v1alpha1", Kind: "DIJob", Name: "job", UID: job.UID, Controller: ptr.To(true),
	}}
}

// status records phases as v0.2.2 did. Running ends with the job, and Created never ends.
func (l *legacy) status(ctx context.Context, phases ...v1alpha1.Phase) {
	job := &v1alpha1.DIJob{}
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: l.name, Name: "job"}, job)).To(Succeed())
	at := metav1.Now().Rfc3339Copy()
	job.Status.ReplicaStatus = map[v1alpha1.ReplicaType]*v1alpha1.ReplicaStatus{
		"Coordinator": {Active: 1}, "Collector": {}, "Learner": {}, "Aggregator": {},
	}
	for _, phase := range phases {
		job.Status.Phase = phase
		if phase == v1alpha1.JobSucceeded || phase == v1alpha1.JobFailed {
			for i := range job.Status.Conditions {
				if job.Status.Conditions[i].Type == "Running" {
					job.Status.Conditions[i].Status = corev1.ConditionFalse
				}
			}
		}
		job.Status.Conditions = append(job.Status.Conditions, v1alpha1.DIJobCondition{
			Type: string(phase), Status: corev1.ConditionTrue, Reason: "DIJob" + string(phase), Message: "as v0.2.2 said it",
			LastUpdateTime: &at, LastTransitionTime: &at,
		})
	}
	Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
}

// pod creates a running pod and its service.
func (l *legacy) pod(ctx context.Context, role, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.name, Name: name, OwnerReferences: []metav1.OwnerReference{l.owner},
			Labels: map[string]string{
				"group-name": "diengine.opendilab.org", "dijob-name": "job", "controller-name": "di-operator",
				"replica-type": role, "pod-name": name,
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "di-container", Image: role + ":old", Ports: []corev1.ContainerPort{{Name: "di-port", ContainerPort: 22270}},
			Env: []corev1.EnvVar{{Name: "KUBERNETES_POD_NAME", Value: name}},
		}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "di-container"}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	status := pod.Status
	Expect(shared.api.Create(ctx, pod)).To(Succeed())
	pod.Status = status
	Expect(shared.api.Status().Update(ctx, pod)).To(Succeed())
	l.service(ctx, pod)
	return pod
}

func (l *legacy) service(ctx context.Context, pod *corev1.Pod) {
	Expect(shared.api.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.name, Name: pod.Name, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "None", Selector: pod.Labels, Ports: []corev1.ServicePort{{Name: "di-port", Port: 22270}},
		},
	})).To(Succeed())
}

func (l *legacy) coordinator(ctx context.Context, changes ...func(*corev1.Pod)) *corev1.Pod {
	never := func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }
	return l.pod(ctx, "coordinator", "job-coordinator", append([]func(*corev1.Pod){never}, changes...)...)
}

// ddp creates a DDP learner of an aggregator.
func (l *legacy) ddp(ctx context.Context, aggregator *corev1.Pod, name string, start, gpus, world int, changes ...func(*corev1.Pod)) {
	l.pod(ctx, "ddp-learner", name, append(changes, func(pod *corev1.Pod) {
		pod.Labels["ddp-learner-type"] = "ddp-learner-worker"
		if start == 0 {
			pod.Labels["ddp-learner-type"] = "ddp-learner-master"
		}
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "Pod", Name: aggregator.Name, UID: aggregator.UID, Controller: ptr.To(false),
		})
		container := &pod.Spec.Containers[0]
		for key, value := range map[string]int{"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": gpus, "START_RANK": start} {
			container.Env = append(container.Env, corev1.EnvVar{Name: key, Value: strconv.Itoa(value)})
		}
	})...)
}

// team creates the replicas that a coordinator requested: two collectors, a learner, and a learner of 10
// GPUs. The names of the pods of the latter are not in rank order.
func (l *legacy) team(ctx context.Context) {
	l.coordinator(ctx)
	l.pod(ctx, "collector", "job-collector-rz8jc")
	l.pod(ctx, "collector", "job-collector-2csfx")
	l.pod(ctx, "learner", "job-learner-r8xbt")
	aggregator := l.pod(ctx, "aggregator", "job-aggregator-7hc88")
	l.ddp(ctx, aggregator, "job-ddp-learner-zzzzz", 0, 8, 10)
	l.ddp(ctx, aggregator, "job-ddp-learner-bbbbb", 8, 2, 10)
	l.status(ctx, "Created", "Running")
}

// identities returns the UIDs of all pods by name.
func (s *space) identities(ctx context.Context) map[string]types.UID {
	found := map[string]types.UID{}
	for _, pod := range s.pods(ctx) {
		found[pod.Name] = pod.UID
	}
	return found
}

// versions returns the resource versions of all objects by kind and name.
func (s *space) versions(ctx context.Context) map[string]string {
	found := map[string]string{"job": s.job(ctx).ResourceVersion}
	for _, pod := range s.pods(ctx) {
		found["pod "+pod.Name] = pod.ResourceVersion
	}
	var services corev1.ServiceList
	Expect(shared.api.List(ctx, &services, client.InNamespace(s.name))).To(Succeed())
	for i := range services.Items {
		found["service "+services.Items[i].Name] = services.Items[i].ResourceVersion
	}
	return found
}

// expectStoredOwners expects that every pod and service names the job in the stored version as its
// controller, and that DDP learners still name their aggregators.
func (s *space) expectStoredOwners(ctx context.Context) {
	var services corev1.ServiceList
	Expect(shared.api.List(ctx, &services, client.InNamespace(s.name))).To(Succeed())
	owned := toObjects(pointers(services.Items))
	for _, object := range append(owned, toObjects(pointers(s.pods(ctx)))...) {
		references := object.GetOwnerReferences()
		Expect(references[0].APIVersion).To(Equal("diengine.opendilab.org/v2alpha1"), object.GetName())
		Expect(metav1.IsControlledBy(object, s.job(ctx))).To(BeTrue(), object.GetName())
		for _, reference := range references[1:] {
			Expect(reference.APIVersion).To(Equal("v1"), object.GetName())
		}
	}
}

func pointers[T any](items []T) []*T {
	var all []*T
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}
