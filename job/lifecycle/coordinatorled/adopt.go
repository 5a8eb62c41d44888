// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package coordinatorled

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/workload"
)

// adopt adopts the objects that an earlier release created for a job. While there are any, nothing
// else is decided. Owner references must name the stored version, because the garbage collector
// resolves no version that is not served. The replicas of a running job must name their slots,
// because its Membership is built from them.
func (p *Plan) adopt() state.Result {
	slots := p.slotsToName()
	for _, pod := range p.in.Pods {
		if slots[pod.Name] == "" && !p.in.IsEarlier(pod) {
			continue
		}
		wanted := pod.DeepCopy()
		wanted.OwnerReferences = p.in.StoredReferences(pod)
		if slot := slots[pod.Name]; slot != "" {
			metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationSlot, slot)
		}
		p.out.Decision.AdoptPods = append(p.out.Decision.AdoptPods, wanted)
	}
	for _, service := range p.in.Services {
		if p.in.IsEarlier(service) {
			wanted := service.DeepCopy()
			wanted.OwnerReferences = p.in.StoredReferences(service)
			p.out.Decision.AdoptServices = append(p.out.Decision.AdoptServices, wanted)
		}
	}
	if !p.out.Decision.IsAdoption() {
		return state.Continue
	}
	p.out.RequeueAfter(state.AdoptionDelay)
	return state.Settled
}

// slotsToName returns the slots that pods do not name yet, by pod. Once there is a
// Membership, a pod without a slot is foreign.
func (p *Plan) slotsToName() map[string]string {
	if p.in.Membership != nil || state.IsSuspended(p.in.Job) || state.IsFinished(&p.in.Job.Status) {
		return nil
	}
	remains := p.remains()
	slots := map[string]string{}
	for _, pod := range p.in.Pods {
		if slotOf(pod) == "" {
			slots[pod.Name] = p.slotToName(remains, pod)
		}
	}
	return slots
}

// slotToName returns the slot of a pod that names none: the slot of its own name or of its
// aggregator; "" if the pod is no member.
func (p *Plan) slotToName(remains membership.Remains, pod *corev1.Pod) string {
	if names.RoleOf(pod) == names.ReplicaTypeDDPLearner {
		if pod = p.aggregatorOf(pod); pod == nil {
			return ""
		}
	}
	switch {
	case slotOf(pod) != "":
		return slotOf(pod)
	case remains.Stands(pod):
		return slotOfName(p.in.Job.Name, pod)
	}
	return ""
}

// aggregatorOf returns the aggregator that owns a DDP learner; nil if it is gone.
func (p *Plan) aggregatorOf(learner *corev1.Pod) *corev1.Pod {
	for _, reference := range learner.OwnerReferences {
		pod := p.in.PodNamed[reference.Name]
		if pod != nil && pod.UID == reference.UID && names.RoleOf(pod) == names.ReplicaTypeAggregator {
			return pod
		}
	}
	return nil
}

// slotOfName returns the slot of the replica with the pod's name; "" if its role has no such names.
func slotOfName(job string, pod *corev1.Pod) string {
	prefix := names.ReplicaPod(job, names.RoleOf(pod), "")
	if !strings.HasPrefix(pod.Name, prefix) || !membership.IsReplicaName(job, pod.Name) {
		return ""
	}
	return strings.TrimPrefix(pod.Name, job+"-")
}

// remains returns the pods and settings from which a missing Membership is rebuilt.
func (p *Plan) remains() membership.Remains {
	gpu := p.in.Settings.Defaults().GPUResource
	return membership.Remains{Job: p.in.Job.Name, Pods: p.in.Pods, GPU: gpu, LearnerGPUs: p.learnerGPUs(gpu)}
}

// learnerGPUs returns the GPUs of the job's learner template, 0 if there is none that decodes. The
// error is reported when the template is used.
func (p *Plan) learnerGPUs(gpu corev1.ResourceName) int32 {
	for i := range p.in.Job.Spec.Tasks {
		task := &p.in.Job.Spec.Tasks[i]
		if task.Type != v2alpha1.TaskTypeLearner {
			continue
		}
		template, err := workload.Template("", task.Template)
		if err != nil {
			return 0
		}
		return membership.LearnerGPUs(v2alpha1.MemberResources{}, &template.Spec, gpu)
	}
	return 0
}
