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

// adoptWorkers takes over the pods of a worker-led job that an earlier release
// made, which did not say of which attempt they are.
func adoptWorkers(p *pass) outcome {
	for _, pod := range p.Pods {
		if _, told := pod.Annotations[names.AnnotationAttempt]; !told {
			p.decision.AdoptPods = append(p.decision.AdoptPods, p.adoptedWorker(pod))
		}
	}
	if !p.decision.isAdoption() {
		return goOn
	}
	p.requeueAfter(adoptionDelay)
	return settled
}

// adoptedWorker returns a pod as it is to be taken over: as one of this attempt
// and placement. Earlier releases count a restart, or that a job is placed anew,
// before they replace what it is about: that is of the one before.
func (p *pass) adoptedWorker(pod *corev1.Pod) *corev1.Pod {
	status := &p.Job.Status
	attempt, reschedule := status.Restarts, status.Reschedules
	switch {
	case status.Phase == v2alpha1.JobRestarting && hasFailed(p.Job, pod):
		attempt = max(attempt-1, 0)
	case status.Phase == v2alpha1.JobRescheduling && p.Job.Spec.Preemptible && len(status.Allocation) > 0 && isElsewhere(p.Job, pod):
		reschedule = max(reschedule-1, 0)
	}
	wanted := pod.DeepCopy()
	wanted.OwnerReferences = p.storedReferences(pod)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationAttempt, strconv.Itoa(int(attempt)))
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationReschedule, strconv.Itoa(int(reschedule)))
	p.labelWorker(wanted)
	return wanted
}

// labelWorker labels a pod with its task, by which pods are counted and selected,
// and which v1.1.0 and v1.1.1 did not say in labels.
func (p *pass) labelWorker(pod *corev1.Pod) {
	if pod.Labels[names.LabelTaskName] != "" {
		return
	}
	for i := range p.Job.Spec.Tasks {
		task := &p.Job.Spec.Tasks[i]
		if _, isOf := indexOf(p.Job.Name, names.TaskName(task), pod.Name); isOf {
			for key, value := range names.WorkerLabels(p.Job.Name, task.Type, names.TaskName(task), pod.Name) {
				metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
			}
			return
		}
	}
}

// counted returns the job without a total that an earlier release wrote and the
// spec has changed since. Such a one is what its pods were told; another was
// asked for by somebody.
func (p *pass) counted() *v2alpha1.DIJob {
	status := &p.Job.Status
	if status.Scaling != nil || !slices.ContainsFunc(p.Pods, func(pod *corev1.Pod) bool {
		return annotatedNumber(pod, names.AnnotationReplicas, 0) == status.Replicas && workload.IsOfEarlierRelease(pod)
	}) {
		return p.Job
	}
	job := *p.Job
	job.Status.Replicas = 0
	return &job
}

// subdomain returns that of the pods' addresses: of pods of this attempt that
// live on, as pods find each other by it, else the job's service.
func (p *pass) subdomain() string {
	own := names.WorkerService(p.Job.Name)
	for _, pod := range p.Pods {
		if other := pod.Spec.Subdomain; other != "" && other != own && podstate.Active(pod) && !p.isStale(pod) {
			return other
		}
	}
	return own
}

// ensureWorkerService creates the service of a worker-led job, and ends those of
// an earlier release. These are kept, as they are, while pods live that they were
// made for.
func (p *pass) ensureWorkerService() {
	wanted := workload.WorkerService(p.Job)
	if p.roster.Subdomain != wanted.Name && len(p.Services) > 0 {
		return
	}
	for _, earlier := range names.EarlierWorkerServices(p.Job.Name) {
		if service := p.services[earlier]; service != nil {
			p.deleteService(service)
		}
	}
	wanted.Name = p.roster.Subdomain
	if existing := p.services[wanted.Name]; existing != nil && len(p.Pods) == 0 && !isSameService(existing, wanted) {
		p.deleteService(existing)
		delete(p.services, wanted.Name)
	}
	p.ensureService(wanted)
}

// isSameService tells whether two services select the same pods, ready or not.
func isSameService(a, b *corev1.Service) bool {
	return maps.Equal(a.Spec.Selector, b.Spec.Selector) && a.Spec.PublishNotReadyAddresses == b.Spec.PublishNotReadyAddresses
}

// selector returns the labels by which services select the pods that live.
func (p *pass) selector() map[string]string {
	selector := map[string]string{}
	if len(p.Pods) == 0 {
		return selector
	}
	for _, service := range p.Services {
		maps.Copy(selector, service.Spec.Selector)
	}
	return selector
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

// isEarlier tells whether an object names a job in another version than the one
// that jobs are to be stored in.
func (p *pass) isEarlier(object metav1.Object) bool {
	_, is := workload.WithOwnersAt(object.GetOwnerReferences(), p.Settings.JobVersion, p.Job.UID)
	return is
}

// storedReferences returns an object's owner references, those to jobs in that
// version and the others as they are.
func (p *pass) storedReferences(object metav1.Object) []metav1.OwnerReference {
	references, _ := workload.WithOwnersAt(object.GetOwnerReferences(), p.Settings.JobVersion, p.Job.UID)
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
	if names.RoleOf(pod) == names.ReplicaTypeDDPLearner {
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
		if pod != nil && pod.UID == reference.UID && names.RoleOf(pod) == names.ReplicaTypeAggregator {
			return pod
		}
	}
	return nil
}

// slotOfName returns the slot of the replica that was given the pod's name; ""
// where that is no name of its role.
func slotOfName(job string, pod *corev1.Pod) string {
	prefix := names.ReplicaPod(job, names.RoleOf(pod), "")
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
