// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/installation"
)

func TestOnlyJobsThatTheOperatorAdoptsCountAsLeft(t *testing.T) {
	t.Parallel()
	worker := func(change func(*v2alpha1.DIJob)) Job {
		job := learner("pong", 1, 0)
		change(job)
		return Job{DIJob: job}
	}
	usual := func(*v2alpha1.DIJob) {}
	coordinatorLed := func(job *v2alpha1.DIJob) { job.Spec.Lifecycle = v2alpha1.LifecycleCoordinatorLed }
	for _, c := range []struct {
		name       string
		job        Job
		version    string
		pod        PodUse
		jobs, left int
	}{
		{"an adopted job", worker(usual), v2alpha1.Version, PodUse{JobVersion: v2alpha1.Version, HasAttempt: true}, 1, 0},
		{"a pod without attempt", worker(usual), v2alpha1.Version, PodUse{JobVersion: v2alpha1.Version}, 1, 1},
		{"a reference to another version", worker(usual), v2alpha1.Version, PodUse{JobVersion: v1alpha1.Version, HasAttempt: true}, 1, 1},
		{"a reference that is wanted on the way back", worker(usual), v1alpha1.Version, PodUse{JobVersion: v1alpha1.Version, HasAttempt: true}, 1, 0},
		{"a coordinator-led job", worker(coordinatorLed), v2alpha1.Version, PodUse{JobVersion: v1alpha1.Version}, 1, 1},
		{"a coordinator-led job, which has no attempts", worker(coordinatorLed), v2alpha1.Version, PodUse{JobVersion: v2alpha1.Version}, 1, 0},
		{"a coordinator-led job of a postponed migration", worker(coordinatorLed), v1alpha1.Version, PodUse{JobVersion: v1alpha1.Version}, 0, 0},
		{"a pod that no job owns", worker(usual), v2alpha1.Version, PodUse{}, 0, 0},
		{"a job of another controller", worker(func(job *v2alpha1.DIJob) { job.Spec.ManagedBy = ptr.To("example.com/other") }), v2alpha1.Version,
			PodUse{JobVersion: v2alpha1.Version}, 0, 0},
		{"a terminating job", worker(func(job *v2alpha1.DIJob) { job.DeletionTimestamp = &metav1.Time{} }), v2alpha1.Version,
			PodUse{JobVersion: v2alpha1.Version}, 0, 0},
	} {
		c.pod.Namespace, c.pod.Job = "rl", "pong"
		if got := adoptionOf([]Job{c.job}, []*PodUse{&c.pod}, c.version); got.jobs != c.jobs || len(got.left) != c.left {
			t.Errorf("%s: got %+v, want %d jobs, and %d left", c.name, got, c.jobs, c.left)
		}
	}
}

func TestAPostponedMigrationHidesWhichCoordinatorLedJobsAreAdopted(t *testing.T) {
	t.Parallel()
	shown := takeover(&ClusterState{Takeover: &installation.Takeover{IsKnown: true, Progress: "Probe: waits", JobVersion: v1alpha1.Version}})
	if want := "The storage migration is postponed, so coordinator-led jobs are not counted."; shown.State != "Running" || !slices.Contains(shown.Waits, want) {
		t.Errorf("got %+v", shown)
	}
}
