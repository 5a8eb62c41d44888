// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// adoptWorkers adopts the pods of a worker-led job that an earlier release created,
// which do not record their attempt.
func adoptWorkers(p *plan) outcome {
	for _, pod := range p.Pods {
		if _, isRecorded := pod.Annotations[names.AnnotationAttempt]; !isRecorded {
			p.decision.AdoptPods = append(p.decision.AdoptPods, p.adoptedWorker(pod))
		}
	}
	if !p.decision.isAdoption() {
		return goOn
	}
	p.requeueAfter(adoptionDelay)
	return settled
}

// adoptedWorker returns an adopted pod, as one of this attempt and placement. Earlier
// releases count a restart or a reschedule before they replace the pods that caused it:
// those are of the attempt before.
func (in *input) adoptedWorker(pod *corev1.Pod) *corev1.Pod {
	status := &in.Job.Status
	attempt, reschedule := status.Restarts, status.Reschedules
	switch {
	case status.Phase == v2alpha1.JobRestarting && hasFailed(in.Job, pod):
		attempt = max(attempt-1, 0)
	case status.Phase == v2alpha1.JobRescheduling && in.Job.Spec.Preemptible && len(status.Allocation) > 0 && isElsewhere(in.Job, pod):
		reschedule = max(reschedule-1, 0)
	}
	wanted := pod.DeepCopy()
	wanted.OwnerReferences = in.storedReferences(pod)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationAttempt, strconv.Itoa(int(attempt)))
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationReschedule, strconv.Itoa(int(reschedule)))
	in.labelWorker(wanted)
	return wanted
}

// labelWorker adds the labels of its task to a pod, by which pods are counted and
// selected. v1.1.0 and v1.1.1 did not set them.
func (in *input) labelWorker(pod *corev1.Pod) {
	if pod.Labels[names.LabelTaskName] != "" {
		return
	}
	for i := range in.Job.Spec.Tasks {
		task := &in.Job.Spec.Tasks[i]
		if _, isOf := indexOf(in.Job.Name, names.TaskName(task), pod.Name); isOf {
			for key, value := range names.WorkerLabels(in.Job.Name, task.Type, names.TaskName(task), pod.Name) {
				metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
			}
			return
		}
	}
}

// counted returns the job without a total that an earlier release wrote before the spec
// changed. The pods record such a total; any other was asked for.
func (in *input) counted() *v2alpha1.DIJob {
	status := &in.Job.Status
	if status.Scaling != nil || !slices.ContainsFunc(in.Pods, func(pod *corev1.Pod) bool {
		return annotatedNumber(pod, names.AnnotationReplicas, 0) == status.Replicas && workload.IsOfEarlierRelease(pod)
	}) {
		return in.Job
	}
	job := *in.Job
	job.Status.Replicas = 0
	return &job
}

// subdomain returns the subdomain of the pods' addresses: that of active pods of this
// attempt, because pods find each other by it, else the job's service.
func (p *plan) subdomain() string {
	own := names.WorkerService(p.Job.Name)
	for _, pod := range p.Pods {
		if other := pod.Spec.Subdomain; other != "" && other != own && podstate.Active(pod) && !p.isStale(pod) {
			return other
		}
	}
	return own
}

// ensureWorkerService creates the service of a worker-led job, and deletes those of an
// earlier release. These stay, unchanged, while pods exist that need them.
func (p *plan) ensureWorkerService() {
	wanted := workload.WorkerService(p.Job)
	if p.assignment.Subdomain != wanted.Name && len(p.Services) > 0 {
		return
	}
	for _, earlier := range names.EarlierWorkerServices(p.Job.Name) {
		if service := p.services[earlier]; service != nil {
			p.deleteService(service)
		}
	}
	wanted.Name = p.assignment.Subdomain
	if existing := p.services[wanted.Name]; existing != nil && len(p.Pods) == 0 && !isSameService(existing, wanted) {
		p.deleteService(existing)
		p.createService(wanted)
		return
	}
	p.ensureService(wanted)
}

// isSameService reports whether two services select the same pods, ready or not.
func isSameService(a, b *corev1.Service) bool {
	return maps.Equal(a.Spec.Selector, b.Spec.Selector) && a.Spec.PublishNotReadyAddresses == b.Spec.PublishNotReadyAddresses
}

// selector returns the labels by which services select the existing pods.
func (p *plan) selector() map[string]string {
	selector := map[string]string{}
	if len(p.Pods) == 0 {
		return selector
	}
	for _, service := range p.Services {
		maps.Copy(selector, service.Spec.Selector)
	}
	return selector
}

// adoptionDelay is after how long a job is reconciled after an adoption: no watch event
// follows a change of metadata.
const adoptionDelay = time.Second

// adopt adopts what an earlier release created for a job, and decides nothing else while
// there is any. Owner references must name the stored version, because the garbage
// collector resolves no version that is not served; and the replicas of a running job
// must name their slots, from which its Membership is built.
func adopt(p *plan) outcome {
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

// isAdoption reports whether something is adopted, so that nothing else is decided.
func (d *Decision) isAdoption() bool {
	return len(d.AdoptPods)+len(d.AdoptServices) > 0
}

// isEarlier reports whether an object names a job in another version than the stored
// one.
func (in *input) isEarlier(object metav1.Object) bool {
	_, is := workload.WithOwnersAt(object.GetOwnerReferences(), in.Settings.JobVersion, in.Job.UID)
	return is
}

// storedReferences returns an object's owner references, those to jobs in the stored
// version and the others unchanged.
func (in *input) storedReferences(object metav1.Object) []metav1.OwnerReference {
	references, _ := workload.WithOwnersAt(object.GetOwnerReferences(), in.Settings.JobVersion, in.Job.UID)
	return references
}

// slotsToName returns the slots that pods do not name yet, by pod. Once there is a
// Membership, a pod without a slot is foreign.
func (in *input) slotsToName() map[string]string {
	if in.Membership != nil || IsSuspended(in.Job) || IsFinished(&in.Job.Status) {
		return nil
	}
	remains := in.remains()
	slots := map[string]string{}
	for _, pod := range in.Pods {
		if slotOf(pod) == "" {
			slots[pod.Name] = in.slotToName(remains, pod)
		}
	}
	return slots
}

// slotToName returns the slot of a pod that names none: that of its own name, or that of
// its aggregator; "" if the pod is no member.
func (in *input) slotToName(remains membership.Remains, pod *corev1.Pod) string {
	if names.RoleOf(pod) == names.ReplicaTypeDDPLearner {
		if pod = in.aggregatorOf(pod); pod == nil {
			return ""
		}
	}
	switch {
	case slotOf(pod) != "":
		return slotOf(pod)
	case remains.Stands(pod):
		return slotOfName(in.Job.Name, pod)
	}
	return ""
}

// aggregatorOf returns the aggregator that owns a DDP learner; nil if it is gone.
func (in *input) aggregatorOf(learner *corev1.Pod) *corev1.Pod {
	for _, reference := range learner.OwnerReferences {
		pod := in.pods[reference.Name]
		if pod != nil && pod.UID == reference.UID && names.RoleOf(pod) == names.ReplicaTypeAggregator {
			return pod
		}
	}
	return nil
}

// slotOfName returns the slot of the replica with the pod's name; "" if its role has no
// such name.
func slotOfName(job string, pod *corev1.Pod) string {
	prefix := names.ReplicaPod(job, names.RoleOf(pod), "")
	if !strings.HasPrefix(pod.Name, prefix) || !membership.IsReplicaName(job, pod.Name) {
		return ""
	}
	return strings.TrimPrefix(pod.Name, job+"-")
}

// remains is what a Membership is rebuilt from if there is none.
func (in *input) remains() membership.Remains {
	gpu := in.Settings.Defaults().GPUResource
	return membership.Remains{Job: in.Job.Name, Pods: in.Pods, GPU: gpu, LearnerGPUs: in.learnerGPUs(gpu)}
}

// learnerGPUs returns the GPUs of the job's learner template, 0 if there is none that
// decodes: the error is reported when the template is used.
func (in *input) learnerGPUs(gpu corev1.ResourceName) int32 {
	for i := range in.Job.Spec.Tasks {
		task := &in.Job.Spec.Tasks[i]
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
