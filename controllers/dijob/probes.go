// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// maxEvents is how many Events about pods are read at once. A pod has few.
const maxEvents = 500

// observeProbeKills finds out which pods ended because a probe failed. It reads the Events of a pod once, live,
// and only if the template of its task has a liveness or startup probe.
func (r *Reconciler) observeProbeKills(ctx context.Context, observed *lifecycle.Observed) error {
	if state.IsFinished(&observed.Job.Status) {
		return nil
	}
	known := r.states.get(client.ObjectKeyFromObject(observed.Job)).probeKills
	kills := map[types.UID]string{}
	var unknown []*corev1.Pod
	for _, pod := range observed.Pods {
		kill, isKnown := known[pod.UID]
		switch {
		case isKnown:
			kills[pod.UID] = kill
		case podstate.MayBeKilledByProbe(pod) && hasProbe(observed.Job, pod):
			unknown = append(unknown, pod)
		}
	}
	if len(unknown) > 0 {
		events, err := r.eventsAbout(ctx, unknown)
		if err != nil {
			return err
		}
		for _, pod := range unknown {
			kills[pod.UID] = podstate.ProbeKill(pod, events)
		}
	}
	if len(kills)+len(known) > 0 {
		r.states.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) { state.probeKills = kills })
	}
	observed.ProbeKills = kills
	return nil
}

// hasProbe reports whether the template of a pod's task has a probe by which a kubelet kills.
func hasProbe(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		named := names.TaskName(task)
		if state.IsCoordinatorLed(job) {
			named = string(task.Type)
		}
		if names.RoleOrTask(pod) == named {
			return bytes.Contains(task.Template.Raw, []byte(`"livenessProbe"`)) || bytes.Contains(task.Template.Raw, []byte(`"startupProbe"`))
		}
	}
	return false
}

// eventsAbout reads the Events about few pods one by one. Of many it reads only those about kills, in one list.
// Without the right to read them, as under roles of an earlier release, there are none.
func (r *Reconciler) eventsAbout(ctx context.Context, pods []*corev1.Pod) ([]corev1.Event, error) {
	selectors := []client.MatchingFields{{"involvedObject.kind": "Pod", "reason": "Killing"}}
	if len(pods) <= maxSingleReads {
		selectors = nil
		for _, pod := range pods {
			selectors = append(selectors, client.MatchingFields{"involvedObject.uid": string(pod.UID)})
		}
	}
	var events []corev1.Event
	for _, selector := range selectors {
		var list corev1.EventList
		err := r.live.List(ctx, &list, client.InNamespace(pods[0].Namespace), selector, client.Limit(maxEvents))
		if apierrors.IsForbidden(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the events about pods of namespace %s: %w", pods[0].Namespace, err)
		}
		events = append(events, list.Items...)
	}
	return events, nil
}
