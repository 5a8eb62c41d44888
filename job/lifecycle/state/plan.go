// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package state has what the rules of all jobs share: the observation of a job, the input derived from it, the plan
// to which rules add, with the planned status, and the resulting decision.
package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Plan collects what the rules of one reconcile decide. Rules read the input and add
// to the plan in their order.
type Plan struct {
	in       *Input
	Decision Decision
	// Deleting are the pods that the decision deletes.
	Deleting map[*corev1.Pod]bool
	// invalid describes the parts of the spec that cannot be acted on.
	invalid []string
	// creating counts the objects that the decision creates, by kind.
	creating map[string]int
	// Unrecorded are the pods whose success no status records yet, by name. They are deleted only
	// after a status records it.
	Unrecorded map[string]bool
}

// NewPlan returns an empty plan.
func NewPlan(in *Input) *Plan {
	p := &Plan{in: in, Deleting: map[*corev1.Pod]bool{}, creating: map[string]int{}}
	in.Job.Status.DeepCopyInto(&p.Decision.Status)
	return p
}

// Current returns the pods of this attempt and placement.
func (p *Plan) Current() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(p.in.Pods), p.IsStale)
}

// IsStale reports whether a pod belongs to an earlier attempt or placement.
func (p *Plan) IsStale(pod *corev1.Pod) bool {
	return IsStale(pod, p.Status())
}

// IsStale reports whether a pod belongs to an earlier attempt or placement than a status.
func IsStale(pod *corev1.Pod, status *v2alpha1.DIJobStatus) bool {
	return attemptsOf(status).IsStale(pod)
}

// DeletePod deletes a pod that is not terminating yet. A pod whose success is not recorded is
// deleted after it is recorded.
func (p *Plan) DeletePod(pod *corev1.Pod) {
	if podstate.Terminating(pod) || p.Unrecorded[pod.Name] || p.Deleting[pod] {
		return
	}
	p.Deleting[pod] = true
	p.Decision.DeletePods = append(p.Decision.DeletePods, pod)
}

// DeleteService deletes a service that is not terminating yet.
func (p *Plan) DeleteService(service *corev1.Service) {
	if service.DeletionTimestamp.IsZero() {
		p.Decision.DeleteServices = append(p.Decision.DeleteServices, service)
	}
}

// DeletePodGroups deletes the job's PodGroups.
func (p *Plan) DeletePodGroups() {
	for _, group := range p.in.PodGroups {
		if group.GetDeletionTimestamp().IsZero() {
			p.Decision.DeletePodGroups = append(p.Decision.DeletePodGroups, group)
		}
	}
}

// DeleteUnusedNodes deletes the ConfigMaps to which no pod refers that may still start a container.
func (p *Plan) DeleteUnusedNodes() {
	used := map[string]bool{}
	for _, pod := range p.in.Pods {
		used[workload.NodesOf(pod)] = used[workload.NodesOf(pod)] || !podstate.Finished(pod)
	}
	unused := map[string]bool{}
	for _, configMap := range p.in.ConfigMaps {
		unused[configMap.Name] = !used[configMap.Name]
	}
	p.DeleteNodes(unused)
}

// DeleteNodes deletes the ConfigMaps of peers with these names.
func (p *Plan) DeleteNodes(unwanted map[string]bool) {
	for _, configMap := range p.in.ConfigMaps {
		if configMap.DeletionTimestamp.IsZero() && unwanted[configMap.Name] && !slices.Contains(p.Decision.DeleteConfigMaps, configMap) {
			p.Decision.DeleteConfigMaps = append(p.Decision.DeleteConfigMaps, configMap)
		}
	}
}

// DeleteKeys deletes the keys of ssh of the attempt before which the job was restarted or rescheduled so often.
func (p *Plan) DeleteKeys(generation int64) {
	p.Decision.DeleteSecrets = append(p.Decision.DeleteSecrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.in.Job.Namespace, Name: workload.SSHSecretName(p.in.Job, generation),
	}})
}

// CreatePod creates a pod.
func (p *Plan) CreatePod(pod *corev1.Pod) {
	p.Decision.CreatePods = append(p.Decision.CreatePods, pod)
	if newer := p.in.Builder.NewerFields(pod); newer != nil {
		if p.Decision.NewerFields == nil {
			p.Decision.NewerFields = map[string]workload.NewerFields{}
		}
		p.Decision.NewerFields[pod.Name] = newer
	}
}

// EnsureService creates a service, or puts back what others changed of the one with its name. Its selector must
// have some labels.
func (p *Plan) EnsureService(service *corev1.Service, must map[string]string) {
	existing := p.in.ServiceNamed[service.Name]
	if existing == nil {
		p.CreateService(service)
		return
	}
	if restored := workload.RestoredService(existing, service, must); restored != nil && existing.DeletionTimestamp.IsZero() {
		p.Decision.RestoreServices = append(p.Decision.RestoreServices, restored)
	}
}

// CreateService creates a service, unless its name is taken.
func (p *Plan) CreateService(service *corev1.Service) {
	if !p.isServiceTaken(service.Name) && p.MayCreate(KindServices) {
		service.OwnerReferences = p.in.StoredReferences(service)
		p.Decision.CreateServices = append(p.Decision.CreateServices, service)
	}
}

// RequeueAfter reconciles the job again after a delay, or sooner.
func (p *Plan) RequeueAfter(delay time.Duration) {
	p.Decision.Requeue(delay)
}

// Event records an event about the job.
func (p *Plan) Event(kind, reason, message string) {
	p.Decision.Events = append(p.Decision.Events, Event{Type: kind, Reason: reason, Message: message})
}

// Invalidate records parts of the spec that cannot be acted on.
func (p *Plan) Invalidate(problems ...string) {
	p.invalid = append(p.invalid, problems...)
}

// ReportInvalid sets the condition for parts of the spec that cannot be acted on.
func (p *Plan) ReportInvalid() {
	p.ReportCondition(v2alpha1.ConditionInvalidSpec, v2alpha1.ConditionInvalidSpec, p.invalid)
}

// ReportCondition sets a condition to True while there are problems, and records an event when
// they begin or change.
func (p *Plan) ReportCondition(condition, reason string, problems []string) {
	message := Few(unique(problems), "; ")
	if conditions.Report(p.Status(), condition, reason, message, p.in.Now) {
		p.Event(corev1.EventTypeWarning, reason, message)
	}
}

// SetPhase sets the job's phase, and records an event if its condition changed. Pending and Starting
// of a coordinator-led job share a condition.
func (p *Plan) SetPhase(phase v2alpha1.Phase, message string) {
	kind := ConditionOf(phase, IsCoordinatorLed(p.in.Job))
	closePhases(p.Status(), kind, p.in.Now)
	switch before := p.Status().Phase; {
	case isIn(p.Status(), phase, kind):
	case before != "" && isIn(p.Status(), before, kind) && ConditionOf(before, IsCoordinatorLed(p.in.Job)) == kind:
		p.RecordPhase(phase, p.Status().CompletionTimestamp)
		p.UpdateMessage(kind, message)
	default:
		p.EnterPhase(phase, message)
	}
}

// EnterPhase sets the job's phase and records an event, even if the job was in that
// phase: one restart may follow another before any pod was observed.
func (p *Plan) EnterPhase(phase v2alpha1.Phase, message string) {
	coordinatorLed := IsCoordinatorLed(p.in.Job)
	kind, reason := ConditionOf(phase, coordinatorLed), ReasonOf(phase, coordinatorLed)
	closePhases(p.Status(), kind, p.in.Now)
	p.RecordPhase(phase, p.Status().CompletionTimestamp)
	p.RecordCondition(kind, corev1.ConditionTrue, reason, message)
	p.recordPhaseEvent(phase, reason, message)
}

func (p *Plan) recordPhaseEvent(phase v2alpha1.Phase, reason, message string) {
	kind := corev1.EventTypeNormal
	if phase == v2alpha1.JobFailed || phase == v2alpha1.JobRestarting {
		kind = corev1.EventTypeWarning
	}
	p.Event(kind, reason, message)
}

// All names a number of things that are all of their kind, such as the replica, or all 3 replicas.
func All(count int, kind string) string {
	return english.PluralWord(count, "the "+kind, "all "+english.Plural(count, kind, ""))
}

// Few joins the first of many texts and counts the rest. People read the message, and each change
// of a named text costs a write.
func Few(texts []string, separator string) string {
	named := strings.Join(texts[:min(len(texts), limits.Named)], separator)
	if len(named) > limits.MessageLength {
		named = strings.ToValidUTF8(named[:limits.MessageLength], "") + "..."
	}
	if rest := len(texts) - limits.Named; rest > 0 {
		named += fmt.Sprintf("%sand %d more", separator, rest)
	}
	return named
}

func unique(texts []string) []string {
	seen := make(map[string]bool, len(texts))
	var kept []string
	for _, text := range texts {
		if !seen[text] {
			seen[text] = true
			kept = append(kept, text)
		}
	}
	return kept
}

// adoptionDelay is the delay of the reconcile after an adoption. No watch event follows a change of
// metadata.
const adoptionDelay = time.Second

// SettleAdoption settles the decision if it adopts anything, and reconciles the job again.
func (p *Plan) SettleAdoption() Result {
	if !p.Decision.IsAdoption() {
		return Continue
	}
	p.RequeueAfter(adoptionDelay)
	return Settled
}
