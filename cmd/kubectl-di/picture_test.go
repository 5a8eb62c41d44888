// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/etcd"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/picture"
)

// TestThePictureOfTheListIsCurrent draws what kubectl prints of jobs of a real API server.
func TestThePictureOfTheListIsCurrent(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	namespace := w.namespace(t)
	// Half a unit keeps an age the same while the test runs.
	for name, one := range map[string]struct {
		phase   v2alpha1.Phase
		summary v2alpha1.StatusSummary
		age     time.Duration
	}{
		"breakout": {v2alpha1.JobStarting, v2alpha1.StatusSummary{Ready: "3/5", Reason: v2alpha1.ReasonImagePull}, 14*time.Minute + 30*time.Second},
		"cartpole": {v2alpha1.JobFailed, v2alpha1.StatusSummary{Ready: "0/3", Reason: v2alpha1.ReasonOOMKilled, Restarts: 3, Duration: "12m"}, 26*time.Hour + 30*time.Minute},
		"pong":     {v2alpha1.JobRunning, v2alpha1.StatusSummary{Ready: "5/5"}, 42*time.Minute + 30*time.Second},
		"qbert":    {v2alpha1.JobPending, v2alpha1.StatusSummary{Ready: "0/8", Reason: v2alpha1.ReasonInsufficientCapacity}, 11*time.Minute + 30*time.Second},
		"seaquest": {v2alpha1.JobPending, v2alpha1.StatusSummary{Ready: "0/5", Reason: v2alpha1.ConditionSuspended, Restarts: 2}, 20*24*time.Hour + 12*time.Hour},
	} {
		job := w.job(t, namespace, name, v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
		w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) { status.Phase, status.Summary = one.phase, &one.summary })
		w.age(t, job, one.age)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(testkit.AssetsVariable), "kubectl"),
		"--kubeconfig", w.kubeconfig, "-n", namespace, "get", "dijobs")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	picture.Check(t, *update, "kubectl-get", "kubectl -n rl get dijobs", string(output))
}

// age changes when a job was created, which the API server does not let clients do.
func (w *world) age(t *testing.T, job *v2alpha1.DIJob, age time.Duration) {
	t.Helper()
	store := etcd.Store{URL: w.environment.ControlPlane.Etcd.URL}
	key := etcd.Job(job.Namespace, job.Name)
	raw, err := store.Get(t.Context(), key)
	expect.NoError(t, err)
	var stored map[string]any
	expect.NoError(t, json.Unmarshal(raw, &stored))
	metadata, isMap := stored["metadata"].(map[string]any)
	if !isMap {
		t.Fatalf("%s has no metadata", key)
	}
	metadata["creationTimestamp"] = metav1.NewTime(time.Now().Add(-age))
	raw, err = json.Marshal(stored)
	expect.NoError(t, err)
	expect.NoError(t, store.Put(t.Context(), []etcd.Value{{Key: []byte(key), Value: raw}}))
}
