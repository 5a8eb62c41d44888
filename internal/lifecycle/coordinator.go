// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// coordinatorRules are the rules of a coordinator-led job, in order.
func coordinatorRules() []rule {
	return []rule{
		{"objects of an earlier release are adopted", adopt},
		{"a finished job expires", expire},
		{"a finished job is cleaned up", cleanUp},
		{"the job finishes with its coordinator", endWithCoordinator},
		{"the active deadline passes", endAtDeadline},
		{"a suspended job has no pods", suspend},
		{"the Membership is created before the coordinator", ensureMembership},
		{"the coordinator is created", ensureCoordinator},
		{"the state of the replicas is recorded", recordMembers},
		{"excess pods are deleted", removeExcessMembers},
		{"every slot gets its pods", ensureMembers},
	}
}

func endWithCoordinator(p *plan) outcome {
	pod := p.coordinator()
	if pod == nil || podstate.Terminating(pod) {
		return goOn
	}
	succeeded, ended := coordinatorResult(pod)
	if !ended {
		return goOn
	}
	if succeeded {
		p.finish(v2alpha1.JobSucceeded, fmt.Sprintf("coordinator %s has completed", pod.Name))
		return settled
	}
	p.status().LastFailure = podstate.Failure(pod, p.now)
	p.recordFailure(v2alpha1.TaskTypeCoordinator, pod)
	p.finish(v2alpha1.JobFailed, fmt.Sprintf("coordinator %s has failed", pod.Name))
	return settled
}

// coordinatorResult reports whether the coordinator has finished, and whether it
// succeeded. One that never restarts finishes with its main container, even if a
// sidecar still runs or fails later.
func coordinatorResult(pod *corev1.Pod) (succeeded, ended bool) {
	if pod.Status.Phase == corev1.PodSucceeded {
		return true, true
	}
	if podstate.Disrupted(pod) {
		return false, false
	}
	main := podstate.MainTermination(pod)
	if main != nil && pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		return main.ExitCode == 0, true
	}
	return false, pod.Status.Phase == corev1.PodFailed
}

func ensureMembership(p *plan) outcome {
	switch stored := p.Membership; {
	case stored == nil && !p.mayCreate(ofMembership):
		return settled
	case stored == nil:
		p.decision.CreateMembership = newMembership(p)
	case !stored.DeletionTimestamp.IsZero():
		return settled
	case stored.Spec.JobUID != p.Job.UID:
		p.decision.DeleteMembership = true
		return settled
	}
	return goOn
}

// newMembership is empty for a new job. If the object was lost while replicas run, or
// an earlier release created them, the list is rebuilt from the pods.
func newMembership(p *plan) *v2alpha1.Membership {
	spec := p.remains().Spec()
	spec.JobUID = p.Job.UID
	return &v2alpha1.Membership{
		ObjectMeta: metav1.ObjectMeta{
			Name:      p.Job.Name,
			Namespace: p.Job.Namespace,
			OwnerReferences: []metav1.OwnerReference{
				*workload.Owner(p.Job, p.Settings.JobVersion),
			},
		},
		Spec: spec,
	}
}

func ensureCoordinator(p *plan) outcome {
	pod := p.coordinator()
	switch {
	case pod == nil:
		built, err := p.builder.Coordinator()
		if err == nil && p.isPodTaken(built.Name) {
			return goOn
		}
		if err != nil || p.mayCreate(string(names.ReplicaTypeCoordinator)) {
			p.createPod(built, err)
		}
		if err != nil {
			return goOn
		}
		pod = built
	case podstate.Finished(pod) && !podstate.Terminating(pod):
		// It was disrupted: the job would have finished with it otherwise.
		if p.mayReplaceCoordinator(pod) {
			p.deletePod(pod)
		}
	}
	p.ensureReplicaService(pod)
	return goOn
}

// mayReplaceCoordinator reports whether a disrupted coordinator may be recreated now,
// and then reports the disruption. A coordinator that lived for as long as the backoff
// does not wait for disruptions of its replicas.
func (p *plan) mayReplaceCoordinator(pod *corev1.Pod) bool {
	found := []disruptedPod{{pod, v2alpha1.TaskTypeCoordinator}}
	recorded := conditions.Find(p.status(), v2alpha1.ConditionReplicasDisrupted)
	if recorded != nil && p.Now.Sub(pod.CreationTimestamp.Time) >= backoffAfter(recorded) {
		p.reportDisruption(found)
		return true
	}
	return p.mayRecreate(found)
}

func (in *input) coordinator() *corev1.Pod {
	return in.pods[names.CoordinatorPod(in.Job.Name)]
}
