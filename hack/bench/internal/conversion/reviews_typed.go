// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// The types that a project of kubebuilder's would have for the two versions,
// as the releases before this one had: pod templates are decoded.

type typedV1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              typedV1Spec   `json:"spec,omitempty"`
	Status            typedV1Status `json:"status,omitempty"`
}

type typedV1Spec struct {
	Group             string          `json:"group,omitempty"`
	PriorityClassName string          `json:"priorityClassName,omitempty"`
	CleanPodPolicy    string          `json:"cleanPodPolicy,omitempty"`
	Volumes           []corev1.Volume `json:"volumes,omitempty"`
	Coordinator       typedRole       `json:"coordinator"`
	Collector         *typedRole      `json:"collector,omitempty"`
	Learner           *typedRole      `json:"learner,omitempty"`
}

type typedRole struct {
	Template corev1.PodTemplateSpec `json:"template"`
}

type typedV1Status struct {
	Phase         string                       `json:"phase,omitempty"`
	Conditions    []metav1.Condition           `json:"conditions,omitempty"`
	ReplicaStatus map[string]typedReplicaCount `json:"replicaStatus,omitempty"`
}

type typedReplicaCount struct {
	Active    int32 `json:"active,omitempty"`
	Succeeded int32 `json:"succeeded,omitempty"`
	Failed    int32 `json:"failed,omitempty"`
}

type typedV2 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              typedV2Spec   `json:"spec,omitempty"`
	Status            typedV2Status `json:"status,omitempty"`
}

type typedV2Spec struct {
	Lifecycle         string          `json:"lifecycle,omitempty"`
	Group             string          `json:"group,omitempty"`
	PriorityClassName string          `json:"priorityClassName,omitempty"`
	CleanPodPolicy    string          `json:"cleanPodPolicy,omitempty"`
	BackoffLimit      *int32          `json:"backoffLimit,omitempty"`
	Volumes           []corev1.Volume `json:"volumes,omitempty"`
	Tasks             []typedTask     `json:"tasks,omitempty"`
}

type typedTask struct {
	Replicas int32                  `json:"replicas"`
	Type     string                 `json:"type"`
	Name     string                 `json:"name"`
	Template corev1.PodTemplateSpec `json:"template"`
}

type typedV2Status struct {
	Phase      string                      `json:"phase,omitempty"`
	Conditions []metav1.Condition          `json:"conditions,omitempty"`
	TaskStatus map[string]map[string]int32 `json:"taskStatus,omitempty"`
}

// DeepCopyObject makes the type an object of a scheme; the endpoint copies none.
func (in *typedV1) DeepCopyObject() runtime.Object {
	out := *in
	return &out
}

// DeepCopyObject makes the type an object of a scheme; the endpoint copies none.
func (in *typedV2) DeepCopyObject() runtime.Object {
	out := *in
	return &out
}

// newReference returns controller-runtime's conversion endpoint for the types.
func newReference() (http.Handler, error) {
	scheme := runtime.NewScheme()
	kind := schema.GroupKind{Group: v2alpha1.GroupName, Kind: "DIJob"}
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(kind.Kind), &typedV1{})
	scheme.AddKnownTypeWithName(v2alpha1.GroupVersion.WithKind(kind.Kind), &typedV2{})
	converter, err := conversion.NewHubSpokeConverter(&typedV2{},
		conversion.NewSpokeConverter(&typedV1{}, typedFromHub, typedToHub))(scheme)
	if err != nil {
		return nil, fmt.Errorf("making the reference: %w", err)
	}
	registry := conversion.NewRegistry()
	if err := registry.RegisterConverter(kind, converter); err != nil {
		return nil, fmt.Errorf("making the reference: %w", err)
	}
	return conversion.NewWebhookHandler(scheme, registry), nil
}

func typedToHub(_ context.Context, v1 *typedV1, hub *typedV2) error {
	limit := int32(0)
	hub.ObjectMeta = v1.ObjectMeta
	hub.Spec = typedV2Spec{
		Lifecycle: string(v2alpha1.LifecycleCoordinatorLed), Group: v1.Spec.Group, PriorityClassName: v1.Spec.PriorityClassName,
		CleanPodPolicy: v1.Spec.CleanPodPolicy, BackoffLimit: &limit, Volumes: v1.Spec.Volumes,
		Tasks: []typedTask{{Replicas: 1, Type: "coordinator", Name: "coordinator", Template: v1.Spec.Coordinator.Template}},
	}
	if v1.Spec.Collector != nil {
		hub.Spec.Tasks = append(hub.Spec.Tasks, typedTask{Type: "collector", Name: "collector", Template: v1.Spec.Collector.Template})
	}
	if v1.Spec.Learner != nil {
		hub.Spec.Tasks = append(hub.Spec.Tasks, typedTask{Type: "learner", Name: "learner", Template: v1.Spec.Learner.Template})
	}
	hub.Status = typedV2Status{Phase: v1.Status.Phase, Conditions: v1.Status.Conditions, TaskStatus: map[string]map[string]int32{}}
	for role, count := range v1.Status.ReplicaStatus {
		hub.Status.TaskStatus[role] = map[string]int32{
			string(corev1.PodRunning): count.Active, string(corev1.PodSucceeded): count.Succeeded, string(corev1.PodFailed): count.Failed,
		}
	}
	return nil
}

func typedFromHub(_ context.Context, hub *typedV2, v1 *typedV1) error {
	v1.ObjectMeta = hub.ObjectMeta
	v1.Spec = typedV1Spec{
		Group: hub.Spec.Group, PriorityClassName: hub.Spec.PriorityClassName,
		CleanPodPolicy: hub.Spec.CleanPodPolicy, Volumes: hub.Spec.Volumes,
	}
	for i := range hub.Spec.Tasks {
		role := typedRole{Template: hub.Spec.Tasks[i].Template}
		switch hub.Spec.Tasks[i].Type {
		case "coordinator":
			v1.Spec.Coordinator = role
		case "collector":
			v1.Spec.Collector = &role
		case "learner":
			v1.Spec.Learner = &role
		default:
			return fmt.Errorf("v1alpha1 has no place for task %s", hub.Spec.Tasks[i].Name)
		}
	}
	v1.Status = typedV1Status{Phase: hub.Status.Phase, Conditions: hub.Status.Conditions, ReplicaStatus: map[string]typedReplicaCount{}}
	for role, count := range hub.Status.TaskStatus {
		v1.Status.ReplicaStatus[role] = typedReplicaCount{
			Active: count[string(corev1.PodRunning)], Succeeded: count[string(corev1.PodSucceeded)], Failed: count[string(corev1.PodFailed)],
		}
	}
	return nil
}
