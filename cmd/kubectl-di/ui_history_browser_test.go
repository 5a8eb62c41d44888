// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheHistoryIsReadInABrowser(t *testing.T) {
	m := remember(t)
	var changes []store.Change
	for i := range 120 {
		uid := fmt.Sprintf("many-%03d", i)
		changes = append(changes, store.Change{UID: uid, Job: &record.Job{
			UID: uid, Namespace: m.jobs, Name: uid, Creator: "bob", Phase: "Running", Created: then(i - 500), Started: then(i - 499), Ended: then(i),
		}})
	}
	expect.NoError(t, m.database.Write(t.Context(), changes))
	failed := pong("uid-1")
	m.record(t, failed, map[string][]float64{"reward": {1, 9, 4, 4, 4}, "loss": {5, 0.5, 0.7}},
		record.Tail{PodUID: "p1", Pod: "pong-learner-1", Container: "di-container", Ended: then(630), ExitCode: 137, Text: "RuntimeError: out of memory\n  at step 7\nKilled\n"})
	better := pong("uid-2")
	better.Name, better.Created, better.Phase, better.Reason, better.Message = "pong-2", then(1), "Succeeded", "", ""
	better.Manifest = json.RawMessage(strings.NewReplacer(`"name":"pong"`, `"name":"pong-2"`, `"replicas":2`, `"replicas":3`).Replace(pongManifest))
	m.record(t, better, map[string][]float64{"reward": {2, 3, 8, 8, 8}, "loss": {4, 1, 0.3}})
	m.record(t, recent("uid-3"), nil)
	living := m.grown(t, m.jobs, "living")
	living.Spec.Group = "games"
	expect.NoError(t, m.live.Update(t.Context(), living))
	m.recordLiving(t, "living")
	second := m.grown(t, m.jobs, "second")
	base := []string{"--service-account", account, "--server-namespace"}
	with := m.printedURL(t, m.jobs, append(base, m.system)...)
	without := m.printedURL(t, m.jobs, append(base, m.jobs)...)
	m.learns(t, second)
	inABrowser(t, "history.mjs", with.String(), without.String(), m.jobs)
}

// recordLiving records what a job that still runs reported before a page observed it.
func (m *memory) recordLiving(t *testing.T, name string) {
	t.Helper()
	job := &v2alpha1.DIJob{}
	expect.NoError(t, m.live.Get(t.Context(), client.ObjectKey{Namespace: m.jobs, Name: name}, job))
	uid := string(job.UID)
	created := job.CreationTimestamp.UTC()
	change := store.Change{UID: uid, Job: &record.Job{UID: uid, Namespace: m.jobs, Name: name, Phase: "Running", Created: created.Add(-time.Hour)}}
	for i := range 99 {
		change.Samples = append(change.Samples, record.Sample{
			At: created.Add(-time.Hour + time.Duration(i)*30*time.Second), Values: map[string]record.Mean{"reward": {Sum: float64(i + 1), Count: 1}},
		})
	}
	expect.NoError(t, m.database.Write(t.Context(), []store.Change{change}))
}
