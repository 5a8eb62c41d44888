// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// plan collects what the rules of one reconcile decide. Rules read the input and add
// to the plan in their order.
type plan struct {
	*input
	decision Decision
	// deleting are the pods that the decision deletes.
	deleting map[*corev1.Pod]bool
	// invalid describes what in the spec cannot be acted on.
	invalid []string
	// creating counts the objects that the decision creates, by kind.
	creating map[string]int
	// backingOff is set while disrupted pods wait to be recreated.
	backingOff bool

	// The fields below are of worker-led jobs, each set by one rule.

	// assignment assigns a rank to each desired replica. It is empty until assignRanks.
	assignment workload.Assignment
	// unrecorded are the pods whose success no status records yet, by name.
	unrecorded map[string]bool
	// planned are the completed ranks of the planned status, as completed last read them.
	planned rankSet
	// marked is what pods that are created now bear for Kueue, once it is known.
	marked *queueing.Marks
	// gang is what pods that are created now belong to.
	gang gangPlan
}

func newPlan(in *input) *plan {
	p := &plan{input: in, deleting: map[*corev1.Pod]bool{}, creating: map[string]int{}}
	p.Job.Status.DeepCopyInto(&p.decision.Status)
	p.invalid = slices.Clone(p.tooMany)
	return p
}

// status returns the planned status; Job.Status is the recorded one.
func (p *plan) status() *v2alpha1.DIJobStatus {
	return &p.decision.Status
}

// completed returns the ranks that the planned status says have succeeded.
func (p *plan) completed() *rankSet {
	if text := p.status().CompletedRanks; text != p.planned.text {
		p.planned = readRanks(text)
	}
	return &p.planned
}

// deletePod deletes a pod that is not terminating yet. A pod whose success is not
// recorded is deleted once it is.
func (p *plan) deletePod(pod *corev1.Pod) {
	if podstate.Terminating(pod) || p.unrecorded[pod.Name] || p.deleting[pod] {
		return
	}
	p.deleting[pod] = true
	p.decision.DeletePods = append(p.decision.DeletePods, pod)
}

func (p *plan) deleteService(service *corev1.Service) {
	if service.DeletionTimestamp.IsZero() {
		p.decision.DeleteServices = append(p.decision.DeleteServices, service)
	}
}

// createPod creates a pod that was built, or records why it could not be built.
func (p *plan) createPod(pod *corev1.Pod, err error) {
	if err != nil {
		p.invalid = append(p.invalid, err.Error())
		return
	}
	p.gang.mark(pod)
	if IsCoordinatorLed(p.Job) {
		// The coordinator decides how many there are, so each pod queues by itself.
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

// ensureReplicaService creates the service of a coordinator-led job's pod. A service
// that does not select the pod belonged to an earlier pod with its name, under another
// template, and is deleted.
func (p *plan) ensureReplicaService(pod *corev1.Pod) {
	existing := p.services[pod.Name]
	if existing != nil && !labels.SelectorFromSet(existing.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		p.deleteService(existing)
		return
	}
	p.ensureService(workload.ReplicaService(p.Job, pod))
}

// ensureService creates a service unless one with its name exists.
func (p *plan) ensureService(service *corev1.Service) {
	if _, exists := p.services[service.Name]; !exists {
		p.createService(service)
	}
}

func (p *plan) createService(service *corev1.Service) {
	if !p.isServiceTaken(service.Name) && p.mayCreate(ofServices) {
		service.OwnerReferences = p.storedReferences(service)
		p.decision.CreateServices = append(p.decision.CreateServices, service)
	}
}

func (p *plan) requeueAfter(delay time.Duration) {
	p.decision.requeueAfter(delay)
}

func (p *plan) event(kind, reason, message string) {
	p.decision.Events = append(p.decision.Events, Event{Type: kind, Reason: reason, Message: message})
}

// reportInvalid sets the condition for what in the spec cannot be acted on.
func (p *plan) reportInvalid() {
	p.report(v2alpha1.ConditionInvalidSpec, v2alpha1.ConditionInvalidSpec, p.invalid)
}

// report sets a condition to True while there are problems, and records an event when
// they begin or change.
func (p *plan) report(condition, reason string, problems []string) {
	message := few(unique(problems), "; ")
	if conditions.Report(p.status(), condition, reason, message, p.Now) {
		p.event(corev1.EventTypeWarning, reason, message)
	}
}

// finish records the end of the job.
func (p *plan) finish(phase v2alpha1.Phase, message string) {
	now := p.now
	p.status().CompletionTimestamp = &now
	p.setPhase(phase, message)
}

// setPhase sets the job's phase, and records an event if it changed.
func (p *plan) setPhase(phase v2alpha1.Phase, message string) {
	kind := conditionOf(phase, IsCoordinatorLed(p.Job))
	closePhases(p.status(), kind, p.Now)
	if !isIn(p.status(), phase, kind) {
		p.enterPhase(phase, message)
	}
}

// enterPhase sets the job's phase and records an event, even if the job was in that
// phase: one restart may follow another before any pod was observed.
func (p *plan) enterPhase(phase v2alpha1.Phase, message string) {
	coordinatorLed := IsCoordinatorLed(p.Job)
	kind, reason := conditionOf(phase, coordinatorLed), reasonOf(phase, coordinatorLed)
	closePhases(p.status(), kind, p.Now)
	p.status().Phase = phase
	conditions.Set(p.status(), kind, corev1.ConditionTrue, reason, message, p.Now)
	p.recordPhaseEvent(phase, reason, message)
}

func (p *plan) recordPhaseEvent(phase v2alpha1.Phase, reason, message string) {
	kind := corev1.EventTypeNormal
	if phase == v2alpha1.JobFailed || phase == v2alpha1.JobRestarting {
		kind = corev1.EventTypeWarning
	}
	p.event(kind, reason, message)
}

// few joins the first of many texts and counts the rest: people read the message, and
// each change of a named text costs a write.
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
