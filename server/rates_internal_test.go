// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// newWithRatio creates a job whose collectors follow its learner.
func (m *memory) newWithRatio(t *testing.T) *v2alpha1.DIJob {
	t.Helper()
	job := workerLed("w")
	job.Spec.Autoscale = &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{}}
	m.mustCreate(t, job)
	return job
}

func collectorReport(rank int, after time.Duration) string {
	return fmt.Sprintf(`{"version":1,"role":"collector","rank":%d,"samples":%d,"busy_seconds":%g,"blocked_seconds":%g}`,
		rank, int(after.Seconds())*20, after.Seconds()*.9, after.Seconds()*.1)
}

func TestAReportOfAWorkerReplacesNoOtherReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newWithRatio(t)
		served := newMemoryServer(t, store)
		const progress = `{"version":1,"progress":{"done":3,"total":9}}`
		post(served, progress)
		for second := time.Duration(0); second <= time.Minute; second += 10 * time.Second {
			for rank := range 3 {
				if got := post(served, collectorReport(rank, second)); !strings.HasPrefix(got.Body.String(), `{"success":true`) {
					t.Fatal(got.Body)
				}
			}
			mustPass(t, 10*time.Second)
		}
		mustPass(t, 30*time.Second)
		status := store.mustRead(t, job).Status
		if !isSameJSON(status.Profilings.Raw, []byte(progress)) {
			t.Errorf("got profilings %s", status.Profilings.Raw)
		}
		if len(status.Rates) != 1 {
			t.Fatalf("got rates %+v", status.Rates)
		}
		if got := status.Rates[0]; got.Role != "collector" || got.Reporters != 3 || got.Samples != 3600 || got.BusyMilliseconds != 162_000 ||
			got.BlockedMilliseconds != 18_000 || got.ReportedMilliseconds != 180_000 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestRatesAreWrittenThreeTimesAMinuteForAJobWithARatioRuleAndSeldomForOthers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"with a rule": 30, "without": 8} {
		synctest.Test(t, func(t *testing.T) {
			store := newMemory(t)
			if name == "without" {
				store.newWorkerLed(t)
			} else {
				store.newWithRatio(t)
			}
			served := newMemoryServer(t, store)
			report := func(from, to time.Duration) {
				for at := from; at < to; at += 2 * time.Second {
					for rank := range 4 {
						post(served, collectorReport(rank, at))
					}
					mustPass(t, 2*time.Second)
				}
			}
			report(0, 3*time.Minute)
			mustPass(t, time.Second)
			_, before := store.bytes()
			report(3*time.Minute, 13*time.Minute)
			if _, after := store.bytes(); after-before != want {
				t.Errorf("%s: %d writes in ten minutes, want %d", name, after-before, want)
			}
		})
	}
}

func TestTwoServersKeepTheirSumsBesideEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newWithRatio(t)
		first, second := newMemoryServer(t, store), newMemoryServer(t, store)
		for at := time.Duration(0); at <= time.Minute; at += 10 * time.Second {
			post(first, collectorReport(0, at))
			post(second, collectorReport(1, at))
			mustPass(t, 10*time.Second)
		}
		mustPass(t, 30*time.Second)
		// The first server starts again: it has a new name, and the sums that it had stay as they are.
		third := newMemoryServer(t, store)
		for at := 70 * time.Second; at <= 2*time.Minute; at += 10 * time.Second {
			post(third, collectorReport(0, at))
			mustPass(t, 10*time.Second)
		}
		mustPass(t, 30*time.Second)
		samples := map[string]int64{}
		for _, rates := range store.mustRead(t, job).Status.Rates {
			samples[rates.Server] = rates.Samples
		}
		want := map[string]int64{first.rates.book.Server(): 1200, second.rates.book.Server(): 1200, third.rates.book.Server(): 1000}
		if len(samples) != 3 || fmt.Sprint(samples) != fmt.Sprint(want) {
			t.Errorf("got samples %v, want %v", samples, want)
		}
	})
}

func TestAWorkersReportThatCannotBeReadIsRefusedWithItsField(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newWorkerLed(t)
		got := post(newMemoryServer(t, store), `{"version":1,"role":"collector","samples":-1}`)
		if got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "profilings.samples is -1: must be from 0 to") {
			t.Errorf("got %d %s", got.Code, got.Body)
		}
		if status := store.mustRead(t, job).Status; status.Profilings != nil || len(status.Rates) > 0 {
			t.Errorf("got status %+v", status)
		}
	})
}

func TestTheSumsOfADeletedJobAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		jobs := &informertest.FakeInformers{Scheme: store.objects.Scheme()}
		job := store.newWithRatio(t)
		served := newMemoryServer(t, store, func(options *Options) { options.Cache = jobs })
		expect.NoError(t, served.followJobs(t.Context()))
		events, err := jobs.FakeInformerFor(t.Context(), &v2alpha1.DIJob{})
		expect.NoError(t, err)
		post(served, collectorReport(0, 0))
		post(served, collectorReport(1, 0))
		events.Delete(job)
		synctest.Wait()
		if got := served.rates.book.Of(job.UID, time.Now()); got != nil {
			t.Errorf("got %+v", got)
		}
		mustPass(t, time.Minute)
	})
}
