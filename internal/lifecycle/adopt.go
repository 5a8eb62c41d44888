// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
)

// adoptWorkers takes over the pods of a worker-led job that an earlier release
// made, which did not say of which attempt they are: they are of this one.
func adoptWorkers(p *pass) outcome {
	for _, pod := range p.Pods {
		if _, told := pod.Annotations[names.AnnotationAttempt]; told {
			continue
		}
		wanted := pod.DeepCopy()
		wanted.OwnerReferences = p.storedReferences(pod)
		status := &p.Job.Status
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationAttempt, strconv.Itoa(int(status.Restarts)))
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationReschedule, strconv.Itoa(int(status.Reschedules)))
		p.decision.AdoptPods = append(p.decision.AdoptPods, wanted)
	}
	if !p.decision.isAdoption() {
		return goOn
	}
	p.requeueAfter(adoptionDelay)
	return settled
}

// adoptionDelay is when a job is looked at again of which something was taken
// over: no watch tells of a change of metadata.
const adoptionDelay = time.Second

// adopt takes over what an earlier release made for a job, and does nothing
// else while there is any. Owner references come to name the stored version, as
// the garbage collector resolves no version that is not served; and the replicas
// of a job that goes on come to name their slots, from which its list is made.
func adopt(p *pass) outcome {
	slots := p.slotsToName()
	for _, pod := range p.Pods {
		if slots[pod.Name] == "" && !p.isEarlier(pod) {
			continue
		}
		wanted := pod.DeepCopy()
		wanted.OwnerReferences = p.storedReferences(pod)
		if slot := slots[pod.Name]; slot != "" {
			metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationSlot, slot)
		}
		p.decision.AdoptPods = append(p.decision.AdoptPods, wanted)
	}
	for _, service := range p.Services {
		if p.isEarlier(service) {
			wanted := service.DeepCopy()
			wanted.OwnerReferences = p.storedReferences(service)
			p.decision.AdoptServices = append(p.decision.AdoptServices, wanted)
		}
	}
	if !p.decision.isAdoption() {
		return goOn
	}
	p.requeueAfter(adoptionDelay)
	return settled
}

// isAdoption tells whether something is to be taken over, and nothing else done.
func (d *Decision) isAdoption() bool {
	return len(d.AdoptPods)+len(d.AdoptServices) > 0
}

// isEarlier tells whether an object names the job in another version than the
// stored one.
func (p *pass) isEarlier(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), p.isEarlierReference)
}

func (p *pass) isEarlierReference(reference metav1.OwnerReference) bool {
	group, version, _ := strings.Cut(reference.APIVersion, "/")
	return reference.UID == p.Job.UID && group == v2alpha1.GroupName && version != v2alpha1.GroupVersion.Version
}

// storedReferences returns an object's owner references, the job's in the stored
// version and the others as they are.
func (p *pass) storedReferences(object metav1.Object) []metav1.OwnerReference {
	references := slices.Clone(object.GetOwnerReferences())
	for i := range references {
		if p.isEarlierReference(references[i]) {
			references[i].APIVersion = v2alpha1.GroupVersion.String()
		}
	}
	return references
}

// slotsToName returns the slots that pods are still to name, by pod. Once there
// is a list, a pod that names none is an unknown one.
func (p *pass) slotsToName() map[string]string {
	if p.Membership != nil || IsSuspended(p.Job) || IsFinished(&p.Job.Status) {
		return nil
	}
	remains := p.remains()
	slots := map[string]string{}
	for _, pod := range p.Pods {
		if slotOf(pod) == "" {
			slots[pod.Name] = p.slotToName(remains, pod)
		}
	}
	return slots
}

// slotToName returns the slot of a pod that names none: the one that its own
// name tells, or that of its aggregator; "" where it stands for no member.
func (p *pass) slotToName(remains membership.Remains, pod *corev1.Pod) string {
	if membership.RoleOf(pod) == names.ReplicaTypeDDPLearner {
		if pod = p.aggregatorOf(pod); pod == nil {
			return ""
		}
	}
	switch {
	case slotOf(pod) != "":
		return slotOf(pod)
	case remains.Stands(pod):
		return slotOfName(p.Job.Name, pod)
	}
	return ""
}

// aggregatorOf returns the aggregator that a DDP learner names as an owner; nil
// where it is gone.
func (p *pass) aggregatorOf(learner *corev1.Pod) *corev1.Pod {
	for _, reference := range learner.OwnerReferences {
		pod := p.pods[reference.Name]
		if pod != nil && pod.UID == reference.UID && membership.RoleOf(pod) == names.ReplicaTypeAggregator {
			return pod
		}
	}
	return nil
}

// slotOfName returns the slot of the replica that was given the pod's name; ""
// where that is no name of its role.
func slotOfName(job string, pod *corev1.Pod) string {
	prefix := names.ReplicaPod(job, membership.RoleOf(pod), "")
	if !strings.HasPrefix(pod.Name, prefix) || !membership.IsReplicaName(job, pod.Name) {
		return ""
	}
	return strings.TrimPrefix(pod.Name, job+"-")
}

// remains are what a list is made from where there is none.
func (p *pass) remains() membership.Remains {
	gpu := p.Settings.Defaults().GPUResource
	return membership.Remains{Job: p.Job.Name, Pods: p.Pods, GPU: gpu, LearnerGPUs: p.learnerGPUs(gpu)}
}

// learnerGPUs returns the GPUs of the job's learner template, 0 where it has
// none that can be read: what is wrong with it is said when it is used.
func (p *pass) learnerGPUs(gpu corev1.ResourceName) int32 {
	for i := range p.Job.Spec.Tasks {
		task := &p.Job.Spec.Tasks[i]
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
