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
	adopted := adoptionOf(state.Jobs, state.Pods, known.JobVersion)
	told := adopted.describe(known)
	if known.IsOpen() && state.HasNoPods {
		told = append(told, "You may not list the pods, so jobs that are not adopted yet are not counted.")
	}
	shown := known.Show(told, len(adopted.left) > 0)
	return api.Takeover{What: "takeover of an earlier release", State: shown.State, Text: shown.Text, Waits: shown.Waits}
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
	case len(a.left) > 0 && (known.IsOpen() || known.HasBegun() || !known.IsKnown):
		texts = append(texts, fmt.Sprintf("Jobs with pods that are not adopted yet: %d of %d: %s", len(a.left), a.jobs, cluster.Some(a.left)))
	case a.jobs > 0 && len(a.left) == 0 && known.IsOpen():
		texts = append(texts, fmt.Sprintf("All jobs with pods are adopted: %d.", a.jobs))
	}
	if known.IsOpen() && known.JobVersion == v1alpha1.Version {
		texts = append(texts, "The storage migration is postponed, so coordinator-led jobs are not counted.")
	}
	return texts
}
