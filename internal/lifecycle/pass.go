// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// pass is the work on one decision.
type pass struct {
	Observed
	decision Decision
	// now is the time as a status can hold it.
	now     metav1.Time
	builder *workload.Builder
	pods    map[string]*corev1.Pod
	// deleting are the pods that the decision deletes.
	deleting map[*corev1.Pod]bool
	// services are the names of the services that exist.
	services map[string]*corev1.Service
	// configMaps are those that hold what their names tell, by name.
	configMaps map[string]*corev1.ConfigMap
	// invalid says what in the spec cannot be acted on.
	invalid []string
	// creating counts what is created in this pass, by its kind.
	creating map[string]int

	// Of a worker-led job.
	roster workload.Roster
	counts counts
	// tooMany says which counts give the job more pods than it may have, or by what no
	// pods can be made for them.
	tooMany []string
	resizes []resize
	// recorded are the completed ranks of the recorded status; making are those
	// of the one in the making, as completed last read them.
	recorded, making rankSet
	// unrecorded are the pods whose success no status records yet, by name.
	unrecorded map[string]bool
	// marked is what the pods bear for Kueue that are created now, once it is known.
	marked *queueing.Marks
	// gang is what pods that are created belong to.
	gang gangOfPass
	// backingOff is set while disrupted pods wait to be recreated.
	backingOff bool
}

func newPass(observed Observed) *pass {
	p := &pass{
		Observed:   observed,
		now:        metav1.NewTime(observed.Now.Truncate(time.Second)),
		builder:    workload.NewBuilder(observed.Job, observed.Settings),
		pods:       make(map[string]*corev1.Pod, len(observed.Pods)),
		deleting:   map[*corev1.Pod]bool{},
		services:   make(map[string]*corev1.Service, len(observed.Services)),
		configMaps: genuine(&observed),
		creating:   map[string]int{},
	}
	if !IsCoordinatorLed(observed.Job) {
		p.Pods = podstate.IgnoreInjected(p.Pods)
	}
	p.recorded = readRanks(observed.Job.Status.CompletedRanks)
	observed.Job.Status.DeepCopyInto(&p.decision.Status)
	for _, pod := range p.Pods {
		p.pods[pod.Name] = pod
	}
	for _, service := range observed.Services {
		p.services[service.Name] = service
	}
	return p
}

// status is the status in the making; Job.Status is the recorded one.
func (p *pass) status() *v2alpha1.DIJobStatus {
	return &p.decision.Status
}

// completed are the ranks that the status in the making says have succeeded.
func (p *pass) completed() *rankSet {
	if text := p.status().CompletedRanks; text != p.making.text {
		p.making = readRanks(text)
	}
	return &p.making
}

// deletePod deletes a pod that is not being deleted yet. One whose success is
// not recorded goes when it is.
func (p *pass) deletePod(pod *corev1.Pod) {
	if podstate.Terminating(pod) || p.unrecorded[pod.Name] || p.deleting[pod] {
		return
	}
	p.deleting[pod] = true
	p.decision.DeletePods = append(p.decision.DeletePods, pod)
}

func (p *pass) deleteService(service *corev1.Service) {
	if service.DeletionTimestamp.IsZero() {
		p.decision.DeleteServices = append(p.decision.DeleteServices, service)
	}
}

// createPod creates what was built, or says why it cannot be.
func (p *pass) createPod(pod *corev1.Pod, err error) {
	if err != nil {
		p.invalid = append(p.invalid, err.Error())
		return
	}
	p.gang.mark(pod)
	if IsCoordinatorLed(p.Job) {
		// How many there are to be is the coordinator's to say, so each queues by itself.
		p.queued().Mark(pod)
	} else {
		p.marks().Mark(pod)
	}
	p.decision.CreatePods = append(p.decision.CreatePods, pod)
	if newer := p.builder.NewerFields(pod); newer != nil {
		if p.decision.NewerFields == nil {
			p.decision.NewerFields = map[string]workload.NewerFields{}
		}
		p.decision.NewerFields[pod.Name] = newer
	}
}

// ensureReplicaService creates the service of a coordinator-led job's pod. One
// that does not select the pod was made for another of its name, under another
// template, and makes way.
func (p *pass) ensureReplicaService(pod *corev1.Pod) {
	existing := p.services[pod.Name]
	if existing != nil && !labels.SelectorFromSet(existing.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		p.deleteService(existing)
		return
	}
	p.ensureService(workload.ReplicaService(p.Job, pod))
}

// ensureService creates a service unless one of its name exists.
func (p *pass) ensureService(service *corev1.Service) {
	_, exists := p.services[service.Name]
	if !exists && !p.isServiceTaken(service.Name) && p.mayCreate(ofServices) {
		service.OwnerReferences = p.storedReferences(service)
		p.decision.CreateServices = append(p.decision.CreateServices, service)
	}
}

func (p *pass) requeueAfter(delay time.Duration) {
	p.decision.requeueAfter(delay)
}

func (p *pass) event(kind, reason, message string) {
	p.decision.Events = append(p.decision.Events, Event{Type: kind, Reason: reason, Message: message})
}

// reportInvalid sets the condition that tells what in the spec cannot be acted on.
func (p *pass) reportInvalid() {
	p.report(v2alpha1.ConditionInvalidSpec, v2alpha1.ConditionInvalidSpec, p.invalid)
}

// report sets a condition while there is something to complain of, and an
// event when that begins or changes.
func (p *pass) report(condition, reason string, complaints []string) {
	message := few(unique(complaints), "; ")
	if message == "" {
		conditions.Clear(p.status(), condition, p.Now)
		return
	}
	if conditions.Set(p.status(), condition, corev1.ConditionTrue, reason, message, p.Now) {
		p.event(corev1.EventTypeWarning, reason, message)
	}
}

// finish records the end of the job.
func (p *pass) finish(phase v2alpha1.Phase, message string) {
	now := p.now
	p.status().CompletionTimestamp = &now
	p.setPhase(phase, message)
}

// setPhase makes phase the job's, and tells where that is news.
func (p *pass) setPhase(phase v2alpha1.Phase, message string) {
	kind := conditionOf(phase, IsCoordinatorLed(p.Job))
	closePhases(p.status(), kind, p.Now)
	if !isIn(p.status(), phase, kind) {
		p.enterPhase(phase, message)
	}
}

// enterPhase makes phase the job's and tells so, also where it was that before:
// one restart may follow another before any pod was seen.
func (p *pass) enterPhase(phase v2alpha1.Phase, message string) {
	coordinatorLed := IsCoordinatorLed(p.Job)
	kind, reason := conditionOf(phase, coordinatorLed), reasonOf(phase, coordinatorLed)
	closePhases(p.status(), kind, p.Now)
	p.status().Phase = phase
	conditions.Set(p.status(), kind, corev1.ConditionTrue, reason, message, p.Now)
	p.recordPhaseEvent(phase, reason, message)
}

func (p *pass) recordPhaseEvent(phase v2alpha1.Phase, reason, message string) {
	kind := corev1.EventTypeNormal
	if phase == v2alpha1.JobFailed || phase == v2alpha1.JobRestarting {
		kind = corev1.EventTypeWarning
	}
	p.event(kind, reason, message)
}

// few joins the first of many texts and counts the rest: a condition is for a person,
// and is written anew whenever one of what it names changes.
func few(texts []string, separator string) string {
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
