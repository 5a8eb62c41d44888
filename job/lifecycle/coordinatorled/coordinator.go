// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coordinatorled has the rules of coordinator-led jobs.
package coordinatorled

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/endings"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// Plan is the plan of a coordinator-led job. Its rules read in, and write to out.
type Plan struct {
	out *state.Plan
	in  *state.Input
	// sizes are the rules of the replicas' resources.
	sizes *rightsize.Rules
	// execution is that of the job's ScalePlan.
	execution scaling.Execution
	// handshake is that of a job that has a task with drain.
	handshake *handshake.Handshake
	// isBackingOff is set while disrupted pods wait to be recreated.
	isBackingOff bool
	// slots are the job's slots, and isKnown is set if there is a list of them.
	slots   []slot
	isKnown bool
}

// New returns the plan of a coordinator-led job.
func New(base *state.Plan, observed *state.Input) *Plan {
	observed.Restore(identify(observed))
	slots, isKnown := readSlots(base, observed)
	return &Plan{
		out: base, in: observed, slots: slots, isKnown: isKnown,
		handshake: handshake.New(base, observed, change(observed)), sizes: rightsize.New(base, observed), execution: scaling.NewExecution(base, observed),
	}
}

// Decide applies the rules of a coordinator-led job.
func (p *Plan) Decide(apply state.Apply) state.Outcome {
	apply(p.rules())
	return p
}

// rules are the rules of a coordinator-led job, in order.
func (p *Plan) rules() []state.Rule {
	return []state.Rule{
		{Name: "a deleted job that is held has no pods", Apply: endings.New(p.out, p.in).Terminate},
		{Name: "objects of an earlier release are adopted", Apply: p.adopt},
		{Name: "what others changed of pods is put back", Apply: p.out.RestorePods},
		{Name: "the memory of the group is recorded", Apply: p.sizes.Inherit},
		{Name: "a finished job expires", Apply: endings.New(p.out, p.in).Expire},
		{Name: "a finished job is cleaned up", Apply: endings.New(p.out, p.in).CleanUp},
		{Name: "resources of removed members are forgotten", Apply: p.forgetResources},
		{Name: "out-of-memory replicas get more memory", Apply: p.growMemory},
		{Name: "the job finishes with its coordinator", Apply: p.endWithCoordinator},
		{Name: "the active deadline passes", Apply: endings.New(p.out, p.in).EndAtDeadline},
		{Name: "a suspended job has no pods", Apply: endings.New(p.out, p.in).Suspend},
		{Name: "the Membership is created before the coordinator", Apply: p.ensureMembership},
		{Name: "the newest ScalePlan is taken", Apply: p.takePlan},
		{Name: "the members of a ScalePlan are requested", Apply: p.editMembers},
		{Name: "the coordinator is created", Apply: p.ensureCoordinator},
		{Name: "the state of the replicas is recorded", Apply: p.recordMembers},
		{Name: "excess pods are deleted", Apply: p.removeExcessMembers},
		{Name: "pods that a ScalePlan migrates are deleted", Apply: p.migrate},
		{Name: "unschedulable replicas request less", Apply: p.shrinkPending},
		{Name: "pods get their recorded resources", Apply: p.applyResources},
		{Name: "every slot gets its pods", Apply: p.ensureMembers},
		{Name: "the membership is published", Apply: p.publishMembership},
	}
}

// Report records the end of a ScalePlan, and sets the condition for the queue.
func (p *Plan) Report() {
	if plan := p.execution.Due(); plan != nil {
		p.execution.Finish(plan, p.progressOfPlan(plan))
	}
	upkeep.New(p.out, p.in).ReportQueue()
}

// runs reports whether the coordinator runs.
func (p *Plan) runs() bool {
	pod := p.coordinator()
	return pod != nil && pod.Status.Phase == corev1.PodRunning
}

// createMember creates a pod that was built, or records why it could not be built. The coordinator
// decides the number of replicas, so each pod queues by itself.
func (p *Plan) createMember(pod *corev1.Pod, err error) {
	if err != nil {
		p.out.Invalidate(err.Error())
		return
	}
	p.in.Queued().Apply(pod)
	p.out.CreatePod(pod)
}

func (p *Plan) endWithCoordinator() state.Result {
	pod := p.coordinator()
	if pod == nil || podstate.Terminating(pod) {
		return state.Continue
	}
	succeeded, ended := coordinatorResult(pod)
	if !ended || !succeeded && p.hasGrown(pod) {
		return state.Continue
	}
	if succeeded {
		problems.New(p.out, p.in).Finish(v2alpha1.JobSucceeded, fmt.Sprintf("coordinator %s has completed", pod.Name))
		return state.Settled
	}
	p.out.RecordLastFailure(podstate.Failure(pod, p.in.Timestamp))
	p.out.RecordFailure(v2alpha1.TaskTypeCoordinator, pod)
	problems.New(p.out, p.in).Finish(v2alpha1.JobFailed, fmt.Sprintf("coordinator %s has failed", pod.Name))
	return state.Settled
}

// hasEnded reports whether a coordinator has finished.
func hasEnded(pod *corev1.Pod) bool {
	_, ended := coordinatorResult(pod)
	return ended || podstate.Finished(pod)
}

// coordinatorResult reports whether the coordinator has finished, and whether it succeeded. A
// coordinator that never restarts finishes with its main container, even if a sidecar still runs or
// fails later.
func coordinatorResult(pod *corev1.Pod) (succeeded, ended bool) {
	if pod.Status.Phase == corev1.PodSucceeded {
		return true, true
	}
	if podstate.Disrupted(pod) {
		return false, false
	}
	main := podstate.MainTermination(pod)
	if main != nil && pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return main.ExitCode == 0 && !podstate.IsKilledByProbe(pod), true
	}
	return false, pod.Status.Phase == corev1.PodFailed
}

func (p *Plan) ensureMembership() state.Result {
	switch stored := p.in.Membership; {
	case stored == nil && !p.out.MayCreate(state.KindMembership):
		return state.Settled
	case stored == nil:
		p.out.Decision.CreateMembership = p.newMembership()
	case !stored.DeletionTimestamp.IsZero():
		return state.Settled
	case stored.Spec.JobUID != p.in.Job.UID:
		p.out.Decision.DeleteMembership = true
		return state.Settled
	case !metav1.IsControlledBy(stored, p.in.Job):
		// Others removed the owner reference, and the list would outlive the job.
		restored := stored.DeepCopy()
		restored.OwnerReferences = state.OwnedBy(stored, p.in.Job, p.in.Settings.JobVersion)
		p.out.Decision.UpdateMembership = restored
	}
	return state.Continue
}

// newMembership returns an empty list for a new job. If the object was lost while replicas run, or
// an earlier release created them, it rebuilds the list from the pods.
func (p *Plan) newMembership() *v2alpha1.Membership {
	spec := p.remains().Spec()
	spec.JobUID = p.in.Job.UID
	return &v2alpha1.Membership{
		ObjectMeta: metav1.ObjectMeta{
			Name:      p.in.Job.Name,
			Namespace: p.in.Job.Namespace,
			OwnerReferences: []metav1.OwnerReference{
				*workload.Owner(p.in.Job, p.in.Settings.JobVersion),
			},
		},
		Spec: spec,
	}
}

func (p *Plan) ensureCoordinator() state.Result {
	pod := p.coordinator()
	switch {
	case pod == nil:
		built, err := p.in.Builder.Coordinator()
		p.setRank(built, 0)
		if err == nil && p.out.IsPodTaken(built.Name) {
			return state.Continue
		}
		if err != nil || p.out.MayCreate(string(names.ReplicaTypeCoordinator)) {
			p.createMember(built, err)
		}
		if err != nil {
			return state.Continue
		}
		pod = built
	case hasEnded(pod) && !podstate.Terminating(pod):
		// It was disrupted or out of memory: otherwise the job would have finished with it.
		if p.hasGrown(pod) || p.mayReplaceCoordinator(pod) {
			p.out.DeletePod(pod)
		}
	}
	p.ensureReplicaService(pod)
	return state.Continue
}

// mayReplaceCoordinator reports whether a disrupted coordinator may be recreated now. If so, it
// reports the disruption. A coordinator that ran for as long as the backoff does not wait for
// disruptions of its replicas.
func (p *Plan) mayReplaceCoordinator(pod *corev1.Pod) bool {
	found := []disruptions.DisruptedPod{{Pod: pod, Task: v2alpha1.TaskTypeCoordinator}}
	recorded := p.out.Condition(v2alpha1.ConditionReplicasDisrupted)
	if recorded != nil && p.in.Now.Sub(pod.CreationTimestamp.Time) >= disruptions.BackoffAfter(recorded) {
		disruptions.New(p.out, p.in).ReportDisruption(found)
		return true
	}
	return disruptions.New(p.out, p.in).MayRecreate(found)
}

func (p *Plan) coordinator() *corev1.Pod {
	return p.in.PodNamed[names.CoordinatorPod(p.in.Job.Name)]
}

// ensureReplicaService creates the service of a coordinator-led job's pod, or lets it select the pod. It may have
// belonged to an earlier pod with the same name, under another template.
func (p *Plan) ensureReplicaService(pod *corev1.Pod) {
	p.out.EnsureService(workload.ReplicaService(p.in.Job, pod), names.ReplicaLabels(p.in.Job.Name, names.RoleOf(pod), pod.Name))
}
