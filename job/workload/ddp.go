// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// DDPLearner builds one of the DDP learner pods of a learner of several GPUs. Their names are given
// in rank order. Their aggregator must exist, because the pod names it as an owner.
func (b *Builder) DDPLearner(member *v2alpha1.Member, aggregator *corev1.Pod, learners []string, index int) (*corev1.Pod, error) {
	template, err := b.taskOfType(member.Task)
	if err != nil {
		return nil, err
	}
	pod := b.replica(template, names.ReplicaTypeDDPLearner, learners[index])
	setAnnotation(pod, names.AnnotationSlot, member.Slot)
	pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: aggregator.Name, UID: aggregator.UID,
	})

	asked := member.Resources
	asked.GPUs = resource.NewQuantity(int64(member.DDPGPUs[index]), resource.DecimalSI)
	setResources(names.MainContainer(&pod.Spec), asked, b.settings.GPUResource)
	b.override(pod, MemberID(b.job, member))

	b.setDDP(pod, member.DDPGPUs, learners[0], index)
	return pod, nil
}

// setDDP sets ports, ranks and master address of a DDP learner pod. The first pod is the master.
func (b *Builder) setDDP(pod *corev1.Pod, gpus []int32, first string, index int) {
	port := names.DIPort(&pod.Spec, names.ReplicaTypeDDPLearner)
	for gpu := int32(1); gpu < gpus[index]; gpu++ {
		addPort(&pod.Spec, names.GPUPortPrefix+strconv.Itoa(int(gpu)), port+gpu)
	}

	master := "localhost"
	if len(gpus) > 1 {
		if index == 0 {
			addPort(&pod.Spec, names.MasterPort, names.DefaultMasterPort)
		} else {
			master = first
		}
		setLabels(pod, map[string]string{names.LabelDDPLearnerType: string(names.DDPKind(index))})
	}

	var world, start int32
	for i, count := range gpus {
		if i < index {
			start += count
		}
		world += count
	}
	env := b.replicaEnv(names.ReplicaTypeDDPLearner, pod.Name, port)
	setEnv(&pod.Spec, append(env,
		number(names.EnvWorldSize, world),
		number(names.EnvLocalWorldSize, gpus[index]),
		number(names.EnvStartRank, start),
		variable(names.EnvMasterAddr, master),
		// All DDP learners share a template.
		number(names.EnvMasterPort, names.NamedPort(&pod.Spec, names.MasterPort, names.DefaultMasterPort)),
	))
}
