// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	testingclock "k8s.io/utils/clock/testing"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/history/watch"
	"opendilab.org/di-orchestrator/test/testkit"
)

func TestTheDatabaseIsKeptWithinItsLimits(t *testing.T) {
	f := setUp(t)
	created := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var changes []store.Change
	for i := range 700 {
		job := &record.Job{UID: strconv.Itoa(i), Namespace: "team", Name: strconv.Itoa(i), Created: created, Ended: created.Add(time.Minute)}
		changes = append(changes, store.Change{UID: job.UID, Job: job})
	}
	open := &record.Job{UID: "open", Namespace: "team", Name: "open", Created: created}
	values := map[string]record.Mean{"reward": {Sum: 1, Count: 1}}
	f.Expect(f.database.Write(t.Context(), append(changes, store.Change{UID: "open", Job: open, Samples: []record.Sample{
		{At: created, Values: values}, {At: created.Add(time.Minute), Values: values},
	}}))).To(Succeed())

	clock := testingclock.NewFakeClock(created.Add(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	upkeep := &watch.Upkeep{Store: f.database, Limits: store.Limits{Age: 24 * time.Hour}, Metrics: f.metrics, Clock: clock, Log: testr.New(t)}
	go func() { stopped <- upkeep.Start(ctx) }()
	f.Eventually(clock.HasWaiters).Should(BeTrue())
	f.Expect(f.database.Totals(t.Context())).To(HaveField("Jobs", BeEquivalentTo(701)))

	clock.Step(30 * time.Hour)
	f.Eventually(func() (store.Totals, error) { return f.database.Totals(t.Context()) }).Should(HaveField("Jobs", BeEquivalentTo(1)))
	f.Expect(f.database.Samples(t.Context(), "open", time.Time{})).To(HaveLen(1))
	f.Eventually(func() float64 { return f.metric("jobs") }).Should(BeEquivalentTo(1))
	f.Expect(f.metric("removed_jobs_total")).To(BeEquivalentTo(700))
	f.Expect(f.metric("database_bytes")).To(BeNumerically(">", 0))
	f.Expect(f.metric("database_limit_bytes")).To(BeEquivalentTo(1 << 20))
	cancel()
	f.Eventually(stopped, testkit.Patience).Should(Receive(BeNil()))
}
