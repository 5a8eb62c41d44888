// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestAnOperatorWhoseClockIsBehindRestartsAJobAfterItsBackoff(t *testing.T) {
	t.Parallel()
	spec := trainingJob()
	spec.BackoffLimit = ptr.To[int32](-1)
	w := allRunning(t, spec)
	w.clocks.api, w.clocks.node = time.Hour, time.Hour
	for range 6 {
		w.end("job-learner-0", 1)
		w.settle()
		w.now = w.now.Add(time.Minute)
		w.settle()
		w.allRun()
	}
	if restarts := w.job.Status.Restarts; restarts != 6 {
		t.Errorf("a job whose replica has failed 6 times is restarted %d times", restarts)
	}
	w.expectPhase(v2alpha1.JobRunning)
}

func TestADeadlineCountsByTheClockOfTheOperatorThatSawTheJobBegin(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		spec := trainingJob()
		spec.ActiveDeadlineSeconds = ptr.To[int64](600)
		w := newWorld(t, spec)
		w.job.CreationTimestamp = metav1.NewTime(w.now.Add(-ahead))
		w.allRun()
		w.now = w.now.Add(9 * time.Minute)
		w.settle()
		w.expectPhase(v2alpha1.JobRunning)
		w.now = w.now.Add(2 * time.Minute)
		w.settle()
		w.expectPhase(v2alpha1.JobFailed)
	}
}
