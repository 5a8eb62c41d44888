// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package past invents the history of a cluster, and reads it as clients do.
package past

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
)

const (
	// A few of the namespaces, groups and users have most of the jobs.
	namespaces, groups, users = 400, 20_000, 500
	// Rare is in the message of one job of rareShare.
	Rare      = "illegal memory access"
	rareShare = 100_000
	// curveShare of the jobs have a curve, of so many samples.
	curveShare, curveLength = 100, 60
	// year is the time in which the jobs were created.
	year = 365 * 24 * time.Hour
	// manifestBytes is about the length of a manifest.
	manifestBytes = 1500
)

// Fill writes so many jobs, with the same ones for a seed. It calls say after each batch.
func Fill(ctx context.Context, into *store.Store, jobs int, seed uint64, say func(done int)) error {
	chance := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the jobs are invented
	invent := inventor{
		Rand: chance, start: time.Now().UTC().Add(-year), jobs: jobs,
		namespaces: rand.NewZipf(chance, 1.2, 4, namespaces-1), groups: rand.NewZipf(chance, 1.1, 20, groups-1), users: rand.NewZipf(chance, 1.2, 4, users-1),
	}
	for done := 0; done < jobs; {
		batch := make([]store.Change, min(store.MaxChanges, jobs-done))
		for i := range batch {
			batch[i] = invent.job(done + i)
		}
		if err := into.Write(ctx, batch); err != nil {
			return err
		}
		done += len(batch)
		say(done)
	}
	return nil
}

// Name returns the name of a job, by its number.
func Name(number int) string { return fmt.Sprintf("train-%07d", number) }

type inventor struct {
	*rand.Rand
	start                     time.Time
	jobs                      int
	namespaces, groups, users *rand.Zipf
}

// job returns a job that has ended.
func (v *inventor) job(number int) store.Change {
	created := v.start.Add(time.Duration(number) * (year / time.Duration(v.jobs))).Truncate(time.Microsecond)
	job := record.Job{
		UID: fmt.Sprintf("%08x-%04x-4000-8000-%012x", v.Uint32(), v.Uint32()>>16, number), Name: Name(number),
		Namespace: fmt.Sprintf("team-%03d", v.namespaces.Uint64()), Group: fmt.Sprintf("group-%05d", v.groups.Uint64()),
		Creator: fmt.Sprintf("user-%03d@example.com", v.users.Uint64()), Version: "v2alpha1", Images: []string{"registry.example.com/ding:2.1"},
		Created: created, Started: created.Add(20 * time.Second), Phase: "Succeeded",
	}
	job.Ended = job.Started.Add(time.Duration(1+v.IntN(20_000)) * time.Second)
	if v.IntN(100) < 15 {
		job.Phase, job.Reason, job.Message = "Failed", []string{"OutOfMemory", "BackoffLimitExceeded", "DeadlineExceeded"}[v.IntN(3)], "replica 0 of task worker ended with exit code 1"
	}
	if number%rareShare == rareShare/2 {
		job.Phase, job.Reason, job.Message = "Failed", "BackoffLimitExceeded", "CUDA error: an "+Rare+" was encountered"
	}
	job.Manifest, _ = json.Marshal(map[string]string{"kind": "DIJob", "spec": fill(manifestBytes)}) //nolint:errchkjson // a map of texts
	for index := range int32(1 + v.IntN(8)) {
		job.Replicas = append(job.Replicas, record.Replica{
			PodUID: fmt.Sprintf("%s-%d", job.UID, index), Pod: fmt.Sprintf("%s-worker-%d", job.Name, index), Task: "worker", Index: index,
			Node: fmt.Sprintf("node-%04d", v.IntN(1000)), Created: job.Created, Started: job.Started, Ended: job.Ended, Phase: job.Phase,
		})
	}
	for _, phase := range []string{"Pending", "Running", job.Phase} {
		job.Phases = append(job.Phases, record.Phase{Phase: phase, Since: job.Started})
	}
	return store.Change{UID: job.UID, Job: &job, Samples: v.curve(number, job.Started)}
}

// curve returns the reports of a job, if it has any.
func (v *inventor) curve(number int, from time.Time) []record.Sample {
	if number%curveShare != 0 {
		return nil
	}
	samples := make([]record.Sample, curveLength)
	for i := range samples {
		reward, loss := float64(i)+v.Float64(), 1/(1+float64(i))
		samples[i] = record.Sample{At: from.Add(time.Duration(i) * time.Minute), Values: map[string]record.Mean{
			"reward": {Sum: reward, Count: 1}, "loss": {Sum: loss, Count: 1},
		}}
	}
	return samples
}

func fill(length int) string {
	text := make([]byte, length)
	for i := range text {
		text[i] = 'a' + byte(i%26)
	}
	return string(text)
}
