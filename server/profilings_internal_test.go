// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

func (m *memory) newWorkerLed(t *testing.T) *v2alpha1.DIJob {
	t.Helper()
	job := workerLed("w")
	m.mustCreate(t, job)
	return job
}

func workerLed(name string) *v2alpha1.DIJob {
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid")},
		Spec:       v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Name: "collector", Template: jobs.Template()}}},
		Status:     v2alpha1.DIJobStatus{Replicas: 1},
	}
}

func (m *memory) mustRead(t *testing.T, of *v2alpha1.DIJob) *v2alpha1.DIJob {
	t.Helper()
	var job v2alpha1.DIJob
	expect.NoError(t, m.objects.Get(context.Background(), client.ObjectKeyFromObject(of), &job))
	return &job
}

func post(served *Server, body string) *httptest.ResponseRecorder {
	return postTo(served, "w", body)
}

func postTo(served *Server, job, body string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v2alpha1/ns."+job+"/profilings", strings.NewReader(body))
	served.Handler().ServeHTTP(recorder, request)
	return recorder
}

func TestAJobThatReportsAtFullSpeedWritesLittleAndTheLastReportWins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newWorkerLed(t)
		served := newMemoryServer(t, store)
		large := strings.Repeat("x", 60<<10)
		reports := 0
		for begun := time.Now(); time.Since(begun) < time.Minute; reports++ {
			if got := post(served, fmt.Sprintf(`{"step":%d,"a":%q}`, reports, large)); got.Code != http.StatusOK || !strings.HasPrefix(got.Body.String(), `{"success":true`) {
				t.Fatalf("report %d: %d %s", reports, got.Code, got.Body)
			}
			mustPass(t, 50*time.Millisecond)
		}
		total, writes := store.bytes()
		t.Logf("%d reports of 60 KiB in a minute: %d writes of %d KiB in all", reports, writes, total>>10)
		if writes > reportBurst+1 || total > 512<<10 {
			t.Errorf("%d writes of %d KiB", writes, total>>10)
		}
		served.reports.pending.Flush()
		if got := string(store.mustRead(t, job).Status.Profilings.Raw); !strings.Contains(got, fmt.Sprintf(`"step":%d`, reports-1)) {
			t.Errorf("the last of %d reports was lost: %.40s", reports, got)
		}
		mustPass(t, time.Minute)
	})
}

func TestLastingReportsAreWrittenFourTimesInFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		store.newWorkerLed(t)
		served := newMemoryServer(t, store)
		step := 0
		report := func(minutes int) int {
			_, before := store.bytes()
			for range minutes * 6 {
				step++
				post(served, fmt.Sprintf(`{"step":%d}`, step))
				mustPass(t, 10*time.Second)
			}
			_, after := store.bytes()
			return after - before
		}
		report(3)
		// Between two writes, so that no write is at the same time as a count.
		mustPass(t, 5*time.Second)
		if writes := report(10); writes != 8 {
			t.Errorf("%d writes in ten minutes", writes)
		}
	})
}

func TestReportsAfterAPauseAreWrittenBeforeTheirAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newWorkerLed(t)
		served := newMemoryServer(t, store)
		for pause := range 3 {
			for i := range reportBurst {
				body := fmt.Sprintf(`{"pause":%d,"step":%d}`, pause, i)
				post(served, body)
				if got := string(store.mustRead(t, job).Status.Profilings.Raw); got != body {
					t.Errorf("after pause %d: got %s, want %s", pause, got, body)
				}
			}
			post(served, `{"later":true}`)
			if got := string(store.mustRead(t, job).Status.Profilings.Raw); got == `{"later":true}` {
				t.Errorf("after pause %d: report %d is written at once", pause, reportBurst+1)
			}
			mustPass(t, 5*time.Minute)
		}
	})
}

func TestTheLastReportIsWrittenWhenItsJobFinishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		jobs := &informertest.FakeInformers{Scheme: store.objects.Scheme()}
		job := store.newWorkerLed(t)
		served := newMemoryServer(t, store, func(options *Options) { options.Cache = jobs })
		expect.NoError(t, served.followJobs(t.Context()))
		events, err := jobs.FakeInformerFor(t.Context(), &v2alpha1.DIJob{})
		expect.NoError(t, err)
		for step := range reportBurst + 2 {
			post(served, fmt.Sprintf(`{"step":%d}`, step))
		}
		running := store.mustRead(t, job)
		finished := running.DeepCopy()
		finished.Status.Phase = v2alpha1.JobSucceeded
		events.Update(running, running)
		synctest.Wait()
		if got := string(store.mustRead(t, job).Status.Profilings.Raw); got != `{"step":2}` {
			t.Errorf("while the job runs: got %s", got)
		}
		events.Update(running, finished)
		synctest.Wait()
		if got := string(store.mustRead(t, job).Status.Profilings.Raw); got != `{"step":4}` {
			t.Errorf("once the job has finished: got %s", got)
		}
	})
}

func TestAReportOfADeletedJobIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, registry := newMemory(t), prometheus.NewRegistry()
		jobs := &informertest.FakeInformers{Scheme: store.objects.Scheme()}
		job := store.newWorkerLed(t)
		served := newMemoryServer(t, store, func(options *Options) { options.Cache, options.Metrics = jobs, registry })
		expect.NoError(t, served.followJobs(t.Context()))
		events, err := jobs.FakeInformerFor(t.Context(), &v2alpha1.DIJob{})
		expect.NoError(t, err)
		for step := range reportBurst + 1 {
			post(served, fmt.Sprintf(`{"step":%d}`, step))
		}
		expect.NoError(t, store.objects.Delete(t.Context(), job))
		events.Delete(job)
		mustPass(t, 5*time.Minute)
		if got := counted(t, registry, "profilings_total"); got["failed"] != 0 || got["written"] != reportBurst {
			t.Errorf("got %v", got)
		}
	})
}

func TestAStoppingServerWritesTheReportsOfAllJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		served := newMemoryServer(t, store)
		const jobs = 200
		for i := range jobs {
			job := workerLed(fmt.Sprintf("w-%d", i))
			store.mustCreate(t, job)
			for step := range reportBurst + 1 {
				postTo(served, job.Name, fmt.Sprintf(`{"step":%d}`, step))
			}
		}
		served.reports.pending.Flush()
		for i := range jobs {
			if got := string(store.mustRead(t, workerLed(fmt.Sprintf("w-%d", i))).Status.Profilings.Raw); got != `{"step":3}` {
				t.Errorf("job %d: got %s", i, got)
			}
		}
	})
}

func TestManyJobsThatReportAtOnceAreWrittenAtALimitedRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		served := newMemoryServer(t, store)
		const jobs = 500
		for i := range jobs {
			job := workerLed(fmt.Sprintf("w-%d", i))
			store.mustCreate(t, job)
			for step := range reportBurst + 1 {
				postTo(served, job.Name, fmt.Sprintf(`{"step":%d}`, step))
			}
		}
		begun := time.Now()
		_, before := store.bytes()
		mustPass(t, time.Until(begun.Add(DefaultTimes().Profilings+time.Second)))
		_, after := store.bytes()
		if writes := after - before; writes < 50 || writes > 150 {
			t.Errorf("%d writes in the first second", writes)
		}
		mustPass(t, 10*time.Second)
		if _, after := store.bytes(); after-before != jobs {
			t.Errorf("%d writes of %d jobs", after-before, jobs)
		}
	})
}

func TestAReportIsNotWrittenTwiceAndOneThatIsTooLargeOrNoObjectIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		store.newWorkerLed(t)
		served := newMemoryServer(t, store)
		for range 3 {
			post(served, `{"loss":[0.5,null],"step":12}`)
			mustPass(t, time.Minute)
		}
		if _, writes := store.bytes(); writes != 1 {
			t.Errorf("%d writes of the same report", writes)
		}
		for _, body := range []string{`{"a":"` + strings.Repeat("x", 64<<10) + `"}`, `{"a":1e999}`} {
			if got := post(served, body); got.Code != http.StatusBadRequest {
				t.Errorf("%.20s: %d %s", body, got.Code, got.Body)
			}
		}
	})
}

func TestAReportThatWaitsOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newWorkerLed(t)
		served := newMemoryServer(t, store)
		for step := range reportBurst + 1 {
			post(served, fmt.Sprintf(`{"step":%d}`, step))
		}
		store.set(true)
		mustPass(t, 5*time.Minute)
		store.set(false)
		mustPass(t, time.Minute)
		if got := string(store.mustRead(t, job).Status.Profilings.Raw); got != `{"step":3}` {
			t.Errorf("got %s", got)
		}
	})
}

func TestReportsAndTheOperatorsStatusConflictSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		job := store.newWorkerLed(t)
		served := newMemoryServer(t, store)
		conflicts := 0
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			seen := store.mustRead(t, job)
			for i := range 10 {
				post(served, fmt.Sprintf(`{"at":%q}`, time.Now().Add(time.Duration(i))))
				mustPass(t, 10*time.Millisecond)
			}
			original := seen.DeepCopy()
			seen.Status.ReadyReplicas++
			err := store.objects.Status().Patch(t.Context(), seen, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{}))
			if apierrors.IsConflict(err) {
				conflicts++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if conflicts > 7 {
			t.Errorf("%d of 600 patches conflict", conflicts)
		}
		mustPass(t, time.Minute)
	})
}

func TestACoordinatorThatGrowsAndShrinksInALoopWritesWithinItsBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(t)
		store.newCoordinatorLed(t)
		client := &deployed{servers: []*Server{newMemoryServer(t, store)}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		for i := 0; ctx.Err() == nil; i++ {
			method := []string{http.MethodPost, http.MethodPost, http.MethodPost, http.MethodDelete}[i%4]
			if _, err := client.call(ctx, method, replicasPath, asking(500-i%7)); err != nil && !errors.Is(err, ctx.Err()) && !strings.Contains(err.Error(), "status 400") {
				t.Fatal(err)
			}
		}
		total, writes := store.bytes()
		t.Logf("%d writes of %d KiB in ten minutes", writes, total>>10)
		if total > 12*512<<10 {
			t.Errorf("%d writes of %d KiB", writes, total>>10)
		}
	})
}
