// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/internal/names"
)

// newPod builds a pod from the template. The operator's labels and annotations override the user's,
// and it sets name and owner. Finalizers are left out: nothing removes them, and a pod that stays
// blocks the name of its replacement. What the job's spec sets for all its pods overrides the
// template, except the PriorityClass of the job's coarse priority.
func (b *Builder) newPod(template *corev1.PodTemplateSpec, name string) *corev1.Pod {
	job := b.job
	b.keepNewer(template, name)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       job.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*Owner(job, b.settings.JobVersion)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	explainFailures(pod.Spec.InitContainers)
	explainFailures(pod.Spec.Containers)
	resolveServices(&pod.Spec)
	pod.Spec.PriorityClassName = b.priorityClass(&pod.Spec)
	if job.Spec.Scheduling != nil && job.Spec.Scheduling.SchedulerName != "" {
		pod.Spec.SchedulerName = job.Spec.Scheduling.SchedulerName
	}
	return pod
}

// resolveServices lets a pod in its host's network resolve the names of Services. With ClusterFirst, the
// default, such a pod asks the host's name servers, which know neither its peers nor di-server.
func resolveServices(spec *corev1.PodSpec) {
	if spec.HostNetwork && (spec.DNSPolicy == "" || spec.DNSPolicy == corev1.DNSClusterFirst) {
		spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
}

// explainFailures makes the kubelet report the last lines of a failed container's log, unless the
// container writes its own termination message or its template decides otherwise.
func explainFailures(containers []corev1.Container) {
	for i := range containers {
		if containers[i].TerminationMessagePolicy == "" {
			containers[i].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}
	}
}

// setLabels sets the operator's labels, which override the template's.
func setLabels(pod *corev1.Pod, ours map[string]string) {
	if pod.Labels == nil {
		pod.Labels = make(map[string]string, len(ours))
	}
	maps.Copy(pod.Labels, ours)
}

func setAnnotation(pod *corev1.Pod, key, value string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
}

// SetRank gives a pod of a coordinator-led job a rank among the members of its job.
func SetRank(pod *corev1.Pod, rank int32) {
	setAnnotation(pod, names.AnnotationRank, strconv.Itoa(int(rank)))
}

// annotateContainers records the containers that a pod is created with, and which of them is the
// main one. Admission may insert others, even before the main one.
func annotateContainers(pod *corev1.Pod, main *corev1.Container) {
	delete(pod.Annotations, names.AnnotationContainers)
	if main != nil {
		setAnnotation(pod, names.AnnotationContainers, ownContainers(&pod.Spec, main))
	}
}

func ownContainers(spec *corev1.PodSpec, main *corev1.Container) string {
	own := []string{main.Name}
	for i := range spec.Containers {
		if name := spec.Containers[i].Name; name != main.Name {
			own = append(own, name)
		}
	}
	return strings.Join(own, ",")
}

// OwnContainers returns the annotation of a task's workers that lists their containers; "" if their template has
// none.
func (b *Builder) OwnContainers(task int) string {
	template, err := b.task(task)
	if err != nil || len(template.Spec.Containers) == 0 {
		return ""
	}
	return ownContainers(&template.Spec, names.MainContainer(&template.Spec))
}

// ToldContainers returns the annotation that lists the containers of a coordinator-led job's pod, by their variables,
// which no one can change: admission adds containers that have none. It returns "" for a pod of an earlier release,
// which has no token, and for a pod without a main container.
func ToldContainers(pod *corev1.Pod, role names.ReplicaType) string {
	if !slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == names.TokenVolume }) {
		return ""
	}
	var built corev1.PodSpec
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		if slices.Contains(container.Env, variable(names.EnvPodName, pod.Name)) {
			built.Containers = append(built.Containers, *container)
		}
	}
	main := mainOfRole(&built, role)
	if main == nil {
		return ""
	}
	return ownContainers(&built, main)
}

// mainOfRole returns the container that a role runs in: the one named as the main container or
// after the role, else the only one. It returns nil if there is none, because deployed clients then
// know none.
func mainOfRole(spec *corev1.PodSpec, role names.ReplicaType) *corev1.Container {
	for _, name := range []string{names.Container, string(role)} {
		for i := range spec.Containers {
			if spec.Containers[i].Name == name {
				return &spec.Containers[i]
			}
		}
	}
	if len(spec.Containers) == 1 {
		return &spec.Containers[0]
	}
	return nil
}

// setEnv sets the operator's variables in every container. They replace the user's variables of the
// same name. They come first, so that the user's may refer to them as $(NAME).
func setEnv(spec *corev1.PodSpec, ours []corev1.EnvVar) {
	set := func(containers []corev1.Container) {
		for i := range containers {
			users := slices.DeleteFunc(containers[i].Env, func(variable corev1.EnvVar) bool {
				return slices.ContainsFunc(ours, func(our corev1.EnvVar) bool { return our.Name == variable.Name })
			})
			containers[i].Env = slices.Concat(ours, users)
		}
	}
	set(spec.InitContainers)
	set(spec.Containers)
}

// dropEnv removes variables from every container. The operator sets them on some pods only, and trusts them.
func dropEnv(spec *corev1.PodSpec, dropped ...string) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Env = slices.DeleteFunc(containers[i].Env, func(variable corev1.EnvVar) bool { return slices.Contains(dropped, variable.Name) })
		}
	}
}

// addPort adds a named port to the main container if the container has none of that name.
func addPort(spec *corev1.PodSpec, name string, number int32) {
	container := names.MainContainer(spec)
	if slices.ContainsFunc(container.Ports, func(port corev1.ContainerPort) bool { return port.Name == name }) {
		return
	}
	container.Ports = append(container.Ports, corev1.ContainerPort{
		Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP,
	})
}

func variable(name, value string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, Value: value}
}

func number(name string, value int32) corev1.EnvVar {
	return corev1.EnvVar{Name: name, Value: strconv.Itoa(int(value))}
}
