// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestMessagesAboutASingleReplicaReadRight(t *testing.T) {
	t.Parallel()
	says := func(t *testing.T, w *world, phase v2alpha1.Phase, want string) {
		t.Helper()
		w.settle()
		w.expectPhase(phase)
		expect.Equal(t, string(phase), want, w.condition(string(phase)).Message)
	}
	job := v2alpha1.DIJobSpec{BackoffLimit: ptr.To[int32](1), Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner, Template: template}}}
	t.Run("until it succeeds", func(t *testing.T) {
		t.Parallel()
		w := settled(t, job)
		says(t, w, v2alpha1.JobStarting, "the pod is created, 1 replica is desired")
		w.run("job-learner-0")
		says(t, w, v2alpha1.JobRunning, "the replica is ready")
		w.end("job-learner-0", 0)
		says(t, w, v2alpha1.JobSucceeded, "the replica has succeeded")
	})
	t.Run("until it fails", func(t *testing.T) {
		t.Parallel()
		w := settled(t, job)
		w.end("job-learner-0", 1)
		w.settle()
		w.end("job-learner-0", 1)
		says(t, w, v2alpha1.JobFailed, "pod job-learner-0 has failed (exit code 1) after 1 restart, the limit is 1")
	})
}
