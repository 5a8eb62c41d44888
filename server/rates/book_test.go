// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rates

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const job = types.UID("job")

func start() time.Time { return time.Unix(1_700_000_000, 0) }

func mustAdd(t *testing.T, book *Book, sender string, report profilings.Role, after time.Duration) {
	t.Helper()
	expect.NoError(t, book.Add(job, sender, &report, start().Add(after)))
}

func collector(samples, busy, blocked float64) profilings.Role {
	return profilings.Role{Version: 1, Role: "collector", Samples: samples, BusySeconds: busy, BlockedSeconds: blocked}
}

func only(t *testing.T, book *Book, after time.Duration) v2alpha1.RoleRates {
	t.Helper()
	rates := book.Of(job, start().Add(after))
	if len(rates) != 1 {
		t.Fatalf("got %d roles, want one: %+v", len(rates), rates)
	}
	return rates[0]
}

func TestTheSumsOfARoleAreThoseOfItsReporters(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	mustAdd(t, book, "a", collector(1000, 50, 5), 0)
	mustAdd(t, book, "b", collector(0, 0, 0), 0)
	mustAdd(t, book, "a", collector(1200, 58, 7), 10*time.Second)
	// A report is lost: the next one has its samples.
	mustAdd(t, book, "b", collector(400, 20, 0), 20*time.Second)
	got := only(t, book, 20*time.Second)
	if got.Samples != 600 || got.BusyMilliseconds != 28_000 || got.BlockedMilliseconds != 2_000 || got.ReportedMilliseconds != 30_000 || got.Reporters != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestAWorkerThatStartsAgainNeverDecreasesASum(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]profilings.Role{
		"all counters":  collector(10, 1, 0),
		"one counter":   collector(2000, 1, 0),
		"nothing known": collector(0, 0, 0),
	} {
		book := NewBook("s")
		mustAdd(t, book, "a", collector(1000, 50, 5), 0)
		mustAdd(t, book, "a", collector(1200, 58, 7), 10*time.Second)
		mustAdd(t, book, "a", restarted, 20*time.Second)
		if got := only(t, book, 20*time.Second); got.Samples != 200 || got.BusyMilliseconds != 8_000 || got.ReportedMilliseconds != 10_000 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestTheClockOfTheWorkerCountsIfItIsReported(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	first, second, back := collector(0, 0, 0), collector(100, 9, 0), collector(200, 18, 0)
	first.Time, second.Time, back.Time = 100, 110, 105
	mustAdd(t, book, "a", first, 0)
	mustAdd(t, book, "a", second, 30*time.Second)
	mustAdd(t, book, "a", back, 40*time.Second)
	if got := only(t, book, 40*time.Second); got.ReportedMilliseconds != 10_000 || got.Samples != 100 {
		t.Errorf("got %+v", got)
	}
}

func TestNoShareOfTimeExceedsTheTime(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	mustAdd(t, book, "a", collector(0, 0, 0), 0)
	mustAdd(t, book, "a", collector(100, 1000, 2000), 10*time.Second)
	if got := only(t, book, 10*time.Second); got.BusyMilliseconds != 10_000 || got.BlockedMilliseconds != 10_000 || got.Samples != 1 {
		t.Errorf("got %+v", got)
	}
}

// A worker counts a step of 300 s and 3,000 samples when it ends.
func TestALongStepCountsWithAllItsTimeHoweverOftenReportsAreSent(t *testing.T) {
	t.Parallel()
	for _, every := range []int{1, 10, 30, 300, 600} {
		book := NewBook("s")
		for second := 0; second <= 3600; second += every {
			steps := float64(second / 300)
			mustAdd(t, book, "a", collector(3000*steps, 300*steps, 0), time.Duration(second)*time.Second)
		}
		if got := only(t, book, time.Hour); got.Samples != 36_000 || got.BusyMilliseconds != 3_600_000 {
			t.Errorf("reports every %d s: got %+v, want 36,000 samples of 3,600 busy seconds", every, got)
		}
	}
}

func TestAStepThatBeganBeforeTheFirstReportCountsWithItsObservedPart(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	mustAdd(t, book, "a", collector(0, 0, 0), 0)
	mustAdd(t, book, "a", collector(3000, 300, 0), 30*time.Second)
	if got := only(t, book, 30*time.Second); got.Samples != 300 || got.BusyMilliseconds != 30_000 {
		t.Errorf("got %+v, want 300 samples of 30 busy seconds", got)
	}
}

// The bounds hold for any reports: those of a worker that lies about its counters and its clock.
func TestNoWorkerClaimsMoreTimeThanWasObserved(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		book, now := NewBook("s"), time.Duration(0)
		report := collector(1, 0, 0)
		for range 300 {
			mustAdd(t, book, "a", report, now)
			now += time.Duration(random.IntN(100)) * time.Second
			report.Time += 1000 * random.Float64()
			report.BusySeconds += 500 * random.Float64()
			report.BlockedSeconds += 500 * random.Float64()
			report.StarvedSeconds += 1e9 * random.Float64()
			if random.IntN(20) == 0 {
				report.BusySeconds = 0
			}
		}
		got, most := only(t, book, now), now.Milliseconds()
		if got.ReportedMilliseconds > most || got.BusyMilliseconds > most || got.BlockedMilliseconds > most || got.StarvedMilliseconds > most {
			t.Errorf("seed %d: %d ms were observed, got %+v", seed, most, got)
		}
	}
}

func TestBusyTimeCountsTogetherWithTheSamplesOfItsStep(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	for second := 0; second <= 300; second += 10 {
		mustAdd(t, book, "a", collector(3000*float64(second/300), float64(second), 0), time.Duration(second)*time.Second)
		got := only(t, book, time.Duration(second)*time.Second)
		if want := int64(second / 300 * 300_000); got.BusyMilliseconds != want || got.Samples != want/100 {
			t.Fatalf("second %d: got %+v, want %d busy milliseconds", second, got, want)
		}
	}
}

func TestTimeWithoutAClaimIsKeptForTwoHours(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	for minute := range 240 {
		mustAdd(t, book, "a", collector(0, 0, 0), time.Duration(minute)*time.Minute)
	}
	mustAdd(t, book, "a", collector(144, 14_400, 0), 4*time.Hour)
	if got := only(t, book, 4*time.Hour); got.BusyMilliseconds != keptFor.Milliseconds() || got.Samples != 72 {
		t.Errorf("got %+v, want 72 samples of %v", got, keptFor)
	}
}

func TestAWorkerThatReportsWhenAStepEndsIsCurrentUntilTheNextReport(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	for step := range 4 {
		mustAdd(t, book, "a", profilings.Role{Version: 1, Role: "learner", Queue: 100}, time.Duration(600*step)*time.Second)
	}
	if got := only(t, book, 2390*time.Second); got.Reporters != 1 || got.Queue != 100 {
		t.Errorf("before the next report: got %+v", got)
	}
	if got := only(t, book, 3001*time.Second); got.Reporters != 0 {
		t.Errorf("after two periods: got %+v", got)
	}
}

func TestCurrentValuesAddUpOverTheWorkersThatStillReport(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	learner := profilings.Role{
		Version: 1, Role: "learner", Queue: 100, QueueCapacity: 1000, BatchSamples: 64, MaxStaleness: 4, StalenessMean: 1.5, StalenessMax: 3, PolicyVersion: 7, ReplayRatio: 2,
	}
	other := learner
	other.Rank, other.Queue, other.MaxStaleness, other.StalenessMean, other.StalenessMax, other.PolicyVersion, other.ReplayRatio = 1, 50, 2, 2.5, 5, 8, 0
	mustAdd(t, book, "a", learner, 0)
	mustAdd(t, book, "a", other, 0)
	got := only(t, book, 0)
	if got.Reporters != 2 || got.Queue != 150 || got.QueueCapacity != 2000 || got.BatchSamples != 128 || got.MaxStaleness != 2 ||
		got.StalenessMeanThousandths != 2000 || got.StalenessMax != 5 || got.PolicyVersion != 8 || got.ReplayRatioThousandths != 1500 {
		t.Errorf("got %+v", got)
	}
	mustAdd(t, book, "a", learner, 3*time.Minute)
	if got := only(t, book, 3*time.Minute); got.Reporters != 1 || got.Queue != 100 {
		t.Errorf("a silent worker still counts: %+v", got)
	}
}

func TestReportersAndRolesAreBounded(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	report := collector(1, 1, 0)
	for i := range maxReporters {
		mustAdd(t, book, strconv.Itoa(i), report, 0)
	}
	if err := book.Add(job, "one more", &report, start()); err == nil || !strings.Contains(err.Error(), "more workers report than can be kept") {
		t.Errorf("got %v", err)
	}
	for i := range limits.Roles - 1 {
		mustAdd(t, book, "0", profilings.Role{Version: 1, Role: fmt.Sprintf("role-%d", i), Rank: i}, 31*time.Minute)
	}
	if err := book.Add(job, "0", &profilings.Role{Version: 1, Role: "ninth"}, start()); err == nil || !strings.Contains(err.Error(), `profilings.role is "ninth"`) {
		t.Errorf("got %v", err)
	}
	for i := 0; book.reporters < maxAllReporters; i++ {
		uid := types.UID(strconv.Itoa(i / maxReporters))
		expect.NoError(t, book.Add(uid, strconv.Itoa(i%maxReporters), &report, start().Add(31*time.Minute)))
	}
	if err := book.Add("another", "a", &report, start().Add(32*time.Minute)); err == nil {
		t.Error("more reporters than the maximum are kept")
	}
	if err := book.Add("another", "a", &report, start().Add(90*time.Minute)); err != nil || book.reporters != 1 {
		t.Errorf("silent reporters fill the book: %v, %d reporters", err, book.reporters)
	}
}

func TestADeletedJobFreesItsMemory(t *testing.T) {
	t.Parallel()
	book := NewBook("s")
	mustAdd(t, book, "a", collector(1, 1, 0), 0)
	book.Forget(job)
	if len(book.jobs) != 0 || book.reporters != 0 || book.Of(job, start()) != nil {
		t.Errorf("%d jobs and %d reporters are left", len(book.jobs), book.reporters)
	}
}

func TestServersKeepTheirEntriesApart(t *testing.T) {
	t.Parallel()
	entry := func(server, role string, at time.Duration, samples int64) v2alpha1.RoleRates {
		return v2alpha1.RoleRates{Server: server, Role: role, Samples: samples, UpdatedAt: metav1.NewMicroTime(start().Add(at))}
	}
	stored := []v2alpha1.RoleRates{entry("a", "collector", 0, 1), entry("b", "collector", 9*time.Minute, 2), entry("gone", "learner", -2*time.Hour, 3)}
	merged := Merge(stored, []v2alpha1.RoleRates{entry("a", "collector", 10*time.Minute, 5), entry("a", "learner", 10*time.Minute, 6)}, "a", start().Add(10*time.Minute))
	var got []string
	for i := range merged {
		got = append(got, fmt.Sprintf("%s/%s=%d", merged[i].Role, merged[i].Server, merged[i].Samples))
	}
	if want := "collector/a=5 collector/b=2 learner/a=6"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	var many []v2alpha1.RoleRates
	for i := range 2 * limits.Rates {
		many = append(many, entry(strconv.Itoa(i), "collector", time.Duration(i)*time.Second, 1))
	}
	if merged := Merge(many, nil, "a", start()); len(merged) != limits.Rates {
		t.Errorf("got %d entries, want at most %d", len(merged), limits.Rates)
	}
}
