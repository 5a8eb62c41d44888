// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
)

// jobVersionOf returns the version by which a pod names its job; empty if it names none. It returns
// constants, so that no page keeps the text of each pod.
func jobVersionOf(pod *corev1.Pod) string {
	for i := range pod.OwnerReferences {
		switch pod.OwnerReferences[i].APIVersion {
		case v1alpha1.GroupVersion.String():
			return v1alpha1.Version
		case v2alpha1.GroupVersion.String():
			return v2alpha1.Version
		}
	}
	return ""
}

// takeover returns the state of the takeover of an earlier release, and what is left of it.
func takeover(state *ClusterState) api.Takeover {
	known := cmp.Or(state.Takeover, &installation.Takeover{JobVersion: v2alpha1.Version})
	shown := api.Takeover{What: "takeover of an earlier release"}
	adopted := adoptionOf(state.Jobs, state.Pods, known.JobVersion)
	shown.State, shown.Text = progressOf(known, len(adopted.left) > 0)
	if known.Stalled != "" {
		shown.Waits = append(shown.Waits, known.Stalled)
	}
	shown.Waits = append(shown.Waits, deploymentsOf(known)...)
	shown.Waits = append(shown.Waits, adopted.describe(known)...)
	if isOpen(known) && state.HasNoPods {
		shown.Waits = append(shown.Waits, "You may not list the pods, so jobs that are not adopted yet are not counted.")
	}
	shown.Waits = append(shown.Waits, unreadOf(known)...)
	return shown
}

// isOpen reports whether something of an earlier release is left, as far as is known without jobs.
func isOpen(known *installation.Takeover) bool {
	return known.HasBegun() && !known.IsDone() || len(known.Deployments) > 0
}

// progressOf returns the state and the text of a takeover.
func progressOf(known *installation.Takeover, hasLeft bool) (state, text string) {
	runs := len(known.Deployments) > 0
	switch {
	case !known.IsKnown:
		return "Unknown", "You may not read the definition of DIJobs, which records the takeover."
	case known.Stalled != "":
		return "Stalled", known.Progress
	case known.HasBegun() && !known.IsDone():
		return "Running", known.Progress
	case runs && known.IsDone():
		return "Needed", "The earlier release runs again after its takeover: two operators may act on the same jobs."
	case runs:
		return "Needed", "An earlier release runs, and its takeover has not begun."
	case known.IsDone() && hasLeft:
		return "Running", "The earlier release is stopped, and the operator adopts its jobs."
	case !known.HasBegun() && len(known.Unread) > 0:
		return "Unknown", "No takeover is recorded."
	}
	return "Done", "There is nothing left to take over."
}

// deploymentsOf describes what still runs of the earlier release.
func deploymentsOf(known *installation.Takeover) []string {
	var texts []string
	for _, one := range known.Deployments {
		text := fmt.Sprintf("Deployment %s of the earlier release still has replicas: %d, pods: %d.", one.Name, one.Replicas, one.Pods)
		if known.IsDone() {
			text = fmt.Sprintf("Scale Deployment %s of namespace %s to zero: no takeover stops it.", one.Name, known.Namespace)
		}
		texts = append(texts, text)
	}
	return texts
}

// unreadOf says what of the takeover the user may not read.
func unreadOf(known *installation.Takeover) []string {
	var texts []string
	for _, one := range known.Unread {
		text := fmt.Sprintf("The %s of namespace %s cannot be read: %v", one.What, one.Namespace, one.Err)
		if cluster.IsDenied(one.Err) {
			text = fmt.Sprintf("You may not read %s of namespace %s, so they are left out.", one.What, one.Namespace)
		}
		texts = append(texts, text)
	}
	return texts
}

// adoption counts the jobs that the operator has adopted from an earlier release.
type adoption struct {
	// jobs is the number of jobs with pods, and left are those with pods that are not adopted.
	jobs int
	left []string
}

// adoptionOf looks at the pods for what the operator writes when it adopts a job: the version of its
// own owner references, and the attempt of pods of worker-led jobs.
func adoptionOf(jobs []Job, pods []*PodUse, version string) adoption {
	known := map[types.NamespacedName]*v2alpha1.DIJob{}
	for _, job := range jobs {
		// The operator leaves jobs of other controllers alone. Owner references that keep the version of
		// v0.2.2 do not show whether a coordinator-led job is adopted.
		if names.OtherManager(&job.Spec) == "" && job.DeletionTimestamp == nil && (!isLed(job.DIJob) || version != v1alpha1.Version) {
			known[types.NamespacedName{Namespace: job.Namespace, Name: job.Name}] = job.DIJob
		}
	}
	isLeft := map[types.NamespacedName]bool{}
	for _, pod := range pods {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Job}
		if job := known[key]; job != nil && pod.JobVersion != "" {
			isLeft[key] = isLeft[key] || pod.JobVersion != version || !isLed(job) && !pod.HasAttempt
		}
	}
	counted := adoption{jobs: len(isLeft)}
	for key, left := range isLeft {
		if left {
			counted.left = append(counted.left, key.String())
		}
	}
	slices.Sort(counted.left)
	return counted
}

// describe returns how many jobs are not adopted. If all are, only an open takeover says so.
func (a *adoption) describe(known *installation.Takeover) []string {
	var texts []string
	switch {
	case len(a.left) > 0 && (isOpen(known) || known.HasBegun() || !known.IsKnown):
		texts = append(texts, fmt.Sprintf("Jobs with pods that are not adopted yet: %d of %d: %s", len(a.left), a.jobs, cluster.Some(a.left)))
	case a.jobs > 0 && len(a.left) == 0 && isOpen(known):
		texts = append(texts, fmt.Sprintf("All jobs with pods are adopted: %d.", a.jobs))
	}
	if isOpen(known) && known.JobVersion == v1alpha1.Version {
		texts = append(texts, "The storage migration is postponed, so coordinator-led jobs are not counted.")
	}
	return texts
}
