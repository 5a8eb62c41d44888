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
func adoptWorkers(p *plan) outcome {
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
// and placement. Earlier releases count a restart, or that a job is placed again,
// before they replace what it is about: that is of the one before.
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

// labelWorker labels a pod with its task, by which pods are counted and selected,
// and which v1.1.0 and v1.1.1 did not say in labels.
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

// counted returns the job without a total that an earlier release wrote and the
// spec has changed since. Such a one is what its pods were told; another was
// asked for by somebody.
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

// subdomain returns that of the pods' addresses: of pods of this attempt that
// live on, as pods find each other by it, else the job's service.
func (p *plan) subdomain() string {
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
func (p *plan) ensureWorkerService() {
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
		p.createService(wanted)
		return
	}
	p.ensureService(wanted)
}

// isSameService reports whether two services select the same pods, ready or not.
func isSameService(a, b *corev1.Service) bool {
	return maps.Equal(a.Spec.Selector, b.Spec.Selector) && a.Spec.PublishNotReadyAddresses == b.Spec.PublishNotReadyAddresses
}

// selector returns the labels by which services select the pods that live.
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

// adoptionDelay is when a job is looked at again of which something was taken
// over: no watch tells of a change of metadata.
const adoptionDelay = time.Second

// adopt takes over what an earlier release made for a job, and does nothing
// else while there is any. Owner references come to name the stored version, as
// the garbage collector resolves no version that is not served; and the replicas
// of a job that goes on come to name their slots, from which its list is made.
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

// isAdoption reports whether something is to be taken over, and nothing else done.
func (d *Decision) isAdoption() bool {
	return len(d.AdoptPods)+len(d.AdoptServices) > 0
}

// isEarlier reports whether an object names a job in another version than the one
// that jobs are to be stored in.
func (in *input) isEarlier(object metav1.Object) bool {
	_, is := workload.WithOwnersAt(object.GetOwnerReferences(), in.Settings.JobVersion, in.Job.UID)
	return is
}

// storedReferences returns an object's owner references, those to jobs in that
// version and the others as they are.
func (in *input) storedReferences(object metav1.Object) []metav1.OwnerReference {
	references, _ := workload.WithOwnersAt(object.GetOwnerReferences(), in.Settings.JobVersion, in.Job.UID)
	return references
}

// slotsToName returns the slots that pods are still to name, by pod. Once there
// is a list, a pod that names none is an unknown one.
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

// slotToName returns the slot of a pod that names none: the one that its own
// name tells, or that of its aggregator; "" where it stands for no member.
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

// aggregatorOf returns the aggregator that a DDP learner names as an owner; nil
// where it is gone.
func (in *input) aggregatorOf(learner *corev1.Pod) *corev1.Pod {
	for _, reference := range learner.OwnerReferences {
		pod := in.pods[reference.Name]
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
func (in *input) remains() membership.Remains {
	gpu := in.Settings.Defaults().GPUResource
	return membership.Remains{Job: in.Job.Name, Pods: in.Pods, GPU: gpu, LearnerGPUs: in.learnerGPUs(gpu)}
}

// learnerGPUs returns the GPUs of the job's learner template, 0 where it has
// none that can be read: what is wrong with it is said when it is used.
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
