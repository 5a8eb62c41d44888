// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// adoptWorkers adopts the pods of a worker-led job that an earlier release created. Those pods do
// not record their attempt.
func (p *Plan) adoptWorkers() state.Result {
	for _, pod := range p.in.Pods {
		if _, isRecorded := pod.Annotations[names.AnnotationAttempt]; !isRecorded {
			p.out.Decision.AdoptPods = append(p.out.Decision.AdoptPods, p.facts.adoptedWorker(pod))
		}
	}
	if !p.out.Decision.IsAdoption() {
		return state.Continue
	}
	p.out.RequeueAfter(state.AdoptionDelay)
	return state.Settled
}

// adoptedWorker returns an adopted pod with the metadata of this attempt and placement. Earlier
// releases count a restart or a reschedule before they replace the pods that caused it. Such pods
// belong to the previous attempt.
func (f *facts) adoptedWorker(pod *corev1.Pod) *corev1.Pod {
	status := &f.in.Job.Status
	attempt, reschedule := status.Restarts, status.Reschedules
	switch {
	case status.Phase == v2alpha1.JobRestarting && state.HasFailed(f.in.Job, pod):
		attempt = max(attempt-1, 0)
	case status.Phase == v2alpha1.JobRescheduling && f.in.Job.Spec.Preemptible && len(status.Allocation) > 0 && isElsewhere(f.in.Job, pod):
		reschedule = max(reschedule-1, 0)
	}
	wanted := pod.DeepCopy()
	wanted.OwnerReferences = f.in.StoredReferences(pod)
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationAttempt, strconv.Itoa(int(attempt)))
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, names.AnnotationReschedule, strconv.Itoa(int(reschedule)))
	return wanted
}

// counted returns the job without a total that an earlier release wrote before the spec changed.
// The pods record such a total. Any other total is a request.
func (f *facts) counted() *v2alpha1.DIJob {
	status := &f.in.Job.Status
	if status.Scaling != nil || !slices.ContainsFunc(f.in.Pods, func(pod *corev1.Pod) bool {
		return podstate.AnnotatedNumber(pod, names.AnnotationReplicas, 0) == status.Replicas && workload.IsOfEarlierRelease(pod)
	}) {
		return f.in.Job
	}
	job := *f.in.Job
	job.Status.Replicas = 0
	return &job
}

// subdomain returns the subdomain of the pods' addresses: that of active pods of this attempt,
// because peers find each other by it, else the job's service.
func (a *ranked) subdomain() string {
	own := names.WorkerService(a.in.Job.Name)
	for _, pod := range a.in.Pods {
		if other := pod.Spec.Subdomain; other != "" && other != own && podstate.Active(pod) && !a.out.IsStale(pod) {
			return other
		}
	}
	return own
}

// ensureWorkerService creates the service of a worker-led job, and deletes the services of an
// earlier release. While pods exist that need those services, they stay unchanged.
func (s *staffing) ensureWorkerService() {
	wanted := workload.WorkerService(s.in.Job)
	if s.ranked.assignment.Subdomain != wanted.Name && len(s.in.Services) > 0 {
		return
	}
	for _, earlier := range names.EarlierWorkerServices(s.in.Job.Name) {
		if service := s.in.ServiceNamed[earlier]; service != nil {
			s.out.DeleteService(service)
		}
	}
	wanted.Name = s.ranked.assignment.Subdomain
	s.out.EnsureService(wanted, wanted.Spec.Selector)
}

// selector returns the labels by which services select the existing pods.
func (a *ranked) selector() map[string]string {
	selector := map[string]string{}
	if len(a.in.Pods) == 0 {
		return selector
	}
	for _, service := range a.in.Services {
		maps.Copy(selector, service.Spec.Selector)
	}
	return selector
}
