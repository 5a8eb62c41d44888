// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
)

// Trim drops the fields of a job's pod that no decision reads. Caches hold many pods, and these fields are
// most of a pod: commands, probes, mounts, tolerations, the variables and volumes of users, addresses, and
// conditions that others imply. Package podwire drops the same fields before they are decoded.
func Trim(pod *corev1.Pod) {
	spec := &pod.Spec
	spec.Volumes = kept(spec.Volumes, func(volume *corev1.Volume) bool { return ReadsVolume(volume.Name) })
	spec.EphemeralContainers, spec.Tolerations, spec.HostAliases, spec.ImagePullSecrets = nil, nil, nil, nil
	spec.Affinity, spec.TopologySpreadConstraints, spec.NodeSelector = nil, nil, nil
	spec.SecurityContext, spec.DNSConfig, spec.ReadinessGates = nil, nil, nil
	spec.DNSPolicy, spec.EnableServiceLinks, spec.Hostname = "", nil, ""
	spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.AutomountServiceAccountToken = "", "", nil
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = "", nil, nil
	trimContainers(spec.InitContainers)
	trimContainers(spec.Containers)
	pod.Status.Conditions = kept(pod.Status.Conditions, func(condition *corev1.PodCondition) bool { return ReadsCondition(condition.Type) })
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			statuses[i].ContainerID, statuses[i].ImageID, statuses[i].VolumeMounts = "", "", nil
		}
	}
	pod.Status.EphemeralContainerStatuses = nil
	pod.Status.PodIP, pod.Status.PodIPs, pod.Status.HostIP, pod.Status.HostIPs = "", nil, "", nil
	pod.Status.QOSClass = ""
}

func trimContainers(containers []corev1.Container) {
	for i := range containers {
		whole := &containers[i]
		containers[i] = corev1.Container{
			Name: whole.Name, Image: whole.Image, Resources: whole.Resources, ResizePolicy: whole.ResizePolicy,
			RestartPolicy: whole.RestartPolicy, Ports: whole.Ports,
			Env: kept(whole.Env, func(variable *corev1.EnvVar) bool { return ReadsVariable(variable.Name) }),
		}
	}
}

// kept returns the items that are wanted, in memory of their own.
func kept[T any](items []T, wanted func(*T) bool) []T {
	var some []T
	for i := range items {
		if wanted(&items[i]) {
			some = append(some, items[i])
		}
	}
	return slices.Clip(some)
}

// ReadsVolume reports whether a decision depends on a volume of pods.
func ReadsVolume(volume string) bool { return volume == names.NodesVolume }

// ReadsCondition reports whether a decision depends on a condition of pods.
func ReadsCondition(condition corev1.PodConditionType) bool {
	return condition != corev1.PodInitialized && condition != corev1.ContainersReady
}

// ReadsVariable reports whether a decision depends on a variable of pods.
func ReadsVariable(variable string) bool {
	switch variable {
	case names.EnvDIJobID, names.EnvDIRank, names.EnvDINodes, names.EnvDIReplicaRestart, names.EnvDIJobReplicas, names.EnvTFConfig, names.EnvMPIRole,
		names.EnvStartRank, names.EnvLocalWorldSize, names.EnvWorldSize:
		return true
	}
	return false
}
