// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Coordinator builds the pod of a job's coordinator.
func (b *Builder) Coordinator() (*corev1.Pod, error) {
	template, err := b.taskOfType(v2alpha1.TaskTypeCoordinator)
	if err != nil {
		return nil, err
	}
	pod := b.replica(template, names.ReplicaTypeCoordinator, names.CoordinatorPod(b.job.Name))
	b.override(pod, CoordinatorID(b.job))
	if pod.Spec.RestartPolicy == "" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	return pod, nil
}

// Replica builds the pod of a plain collector or learner.
func (b *Builder) Replica(member *v2alpha1.Member, name string) (*corev1.Pod, error) {
	template, err := b.taskOfType(member.Task)
	if err != nil {
		return nil, err
	}
	// The roles of plain replicas have the names of their tasks.
	pod := b.replica(template, names.ReplicaType(member.Task), name)
	setAnnotation(pod, names.AnnotationSlot, member.Slot)
	setResources(names.MainContainer(&pod.Spec), member.Resources, b.settings.GPUResource)
	b.override(pod, MemberID(b.job, member))
	return pod, nil
}

// CoordinatorID identifies a job's coordinator for its overrides.
func CoordinatorID(job *v2alpha1.DIJob) ReplicaID {
	return ReplicaID{Task: names.NameOfType(&job.Spec, v2alpha1.TaskTypeCoordinator)}
}

// MemberID identifies a member for its overrides.
func MemberID(job *v2alpha1.DIJob, member *v2alpha1.Member) ReplicaID {
	return ReplicaID{Task: names.NameOfType(&job.Spec, member.Task), Slot: member.Slot, Requested: member.Resources}
}

// Aggregator builds the pod in front of the DDP learners of a learner of several GPUs. It does not
// mount the job's volumes.
func (b *Builder) Aggregator(config *v2alpha1.AggregatorConfig, member *v2alpha1.Member, name string) (*corev1.Pod, error) {
	path := fmt.Sprintf("AggregatorConfig %s/%s spec.aggregator.template", config.Namespace, config.Name)
	template, err := Template(path, config.Spec.Aggregator.Template)
	if err != nil {
		return nil, err
	}
	b.sources[template] = &source{template: config.Spec.Aggregator.Template}
	learner, err := b.taskOfType(v2alpha1.TaskTypeLearner)
	if err != nil {
		return nil, err
	}
	pod := b.replica(template, names.ReplicaTypeAggregator, name)
	setAnnotation(pod, names.AnnotationSlot, member.Slot)
	unit := names.Unit{GPUs: member.DDPGPUs, Port: names.DIPort(&learner.Spec, names.ReplicaTypeDDPLearner)}
	maps.Copy(pod.Annotations, unit.Annotations())
	return pod, nil
}

// replica builds the common part of all pods of a coordinator-led job.
func (b *Builder) replica(template *corev1.PodTemplateSpec, role names.ReplicaType, name string) *corev1.Pod {
	pod := b.newPod(template, name)
	setLabels(pod, names.ReplicaLabels(b.job.Name, role, name))
	annotateContainers(pod, mainOfRole(&pod.Spec, role))
	port := names.DIPort(&pod.Spec, role)
	addPort(&pod.Spec, names.Port, port)
	setEnv(&pod.Spec, b.replicaEnv(role, name, port))
	addToken(&pod.Spec)
	return pod
}

func (b *Builder) replicaEnv(role names.ReplicaType, name string, port int32) []corev1.EnvVar {
	server := b.settings.ServerURLReplica
	if role == names.ReplicaTypeCoordinator {
		server = b.settings.ServerURLCoordinator
	}
	env := []corev1.EnvVar{
		variable(names.EnvPodNamespace, b.job.Namespace),
		variable(names.EnvPodName, name),
		variable(names.EnvServerURL, server),
		number(names.PortVariable(role), port),
	}
	if role == names.ReplicaTypeCoordinator {
		env = append(env, variable(names.EnvCoordinatorURL, names.ReplicaURL(name, b.job.Namespace, port)))
	}
	return env
}

// ReplicaService builds the headless service of a coordinator-led job's pod, built or observed. It
// has the pod's name, and the pod's labels as labels and selector.
func ReplicaService(job *v2alpha1.DIJob, pod *corev1.Pod) *corev1.Service {
	role := names.ReplicaType(pod.Labels[names.LabelReplicaType])
	return headless(job, pod.Name, maps.Clone(pod.Labels), names.DIPort(&pod.Spec, role))
}

func headless(job *v2alpha1.DIJob, name string, labels map[string]string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       job.Namespace,
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{*Owner(job, "")},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  maps.Clone(labels),
			Ports:     []corev1.ServicePort{{Name: names.Port, Port: port, Protocol: corev1.ProtocolTCP}},
		},
	}
}
