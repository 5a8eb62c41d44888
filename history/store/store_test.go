// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
)

func TestWhatWasWrittenIsReadAfterTheDatabaseIsOpenedAgain(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		code := int32(137)
		want := job(1, ended("Failed", "OutOfMemory"), func(j *record.Job) {
			j.Message = "zero \x00, no UTF-8 \xff, quote ' and 你好"
			j.Replicas = []record.Replica{{PodUID: "p", Pod: "job-1-0", Node: "n", ExitCode: &code, Created: at(2)}}
			j.Restarts = []record.Restart{{At: at(3), Kind: record.RestartOfJob, Reason: "OutOfMemory"}}
		})
		write(t, on.store(), want)
		got, err := on.store().Job(t.Context(), "team", "job-1", "")
		if err != nil {
			t.Fatal(err)
		}
		want.Message = "zero \uFFFD, no UTF-8 \uFFFD, quote ' and 你好"
		if diff := cmp.Diff(*want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAJobIsFoundByItsNameAndItsUID(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		rename := func(j *record.Job) { j.Name = "same" }
		write(t, s, job(2, rename), job(1, rename))
		for uid, want := range map[string]string{"": "uid-000002", "uid-000001": "uid-000001"} {
			if got, err := s.Job(t.Context(), "team", "same", uid); err != nil || got.UID != want {
				t.Errorf("uid %q: %s %v, want %s", uid, got.UID, err, want)
			}
		}
		for _, other := range [][3]string{{"other", "same", ""}, {"other", "same", "uid-000001"}, {"team", "none", ""}, {"team", "same", "\x00"}} {
			if _, err := s.Job(t.Context(), other[0], other[1], other[2]); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%q: %v, want %v", other, err, store.ErrNotFound)
			}
		}
	})
}

func TestWritingTwiceEqualsWritingOnce(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		change := store.Change{
			UID: "uid-000001", Job: job(1),
			Samples: []record.Sample{sample(0, 1), sample(10, 2), sample(10, 3)},
			Tails:   []record.Tail{{PodUID: "p", Container: "c", Ended: at(5), Text: "first\r\n\x00"}, {PodUID: "p", Container: "c", Text: "repeated"}},
		}
		var once store.Totals
		for round := range 2 {
			if err := s.Write(t.Context(), []store.Change{change, change}); err != nil {
				t.Fatal(err)
			}
			totals, err := s.Totals(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 {
				once = totals
			}
			if totals != once || totals.Jobs != 1 || totals.Bytes == 0 {
				t.Errorf("round %d: %+v, want %+v", round, totals, once)
			}
		}
		samples, err := s.Samples(t.Context(), "uid-000001", time.Time{})
		if diff := cmp.Diff([]record.Sample{sample(0, 1), sample(10, 2)}, samples); err != nil || diff != "" {
			t.Error(err, diff)
		}
		tails, err := s.Tails(t.Context(), "uid-000001")
		if err != nil || len(tails) != 1 || tails[0].Text != "first\r\n\uFFFD" {
			t.Errorf("%+v %v", tails, err)
		}
	})
}

func TestARecordedEndIsNotForgotten(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		unseen := job(1, ended("Running", ""), func(j *record.Job) { j.Unseen = true })
		for _, step := range []struct {
			write *record.Job
			want  string
		}{{job(1), "Running"}, {unseen, "Running"}, {job(1, ended("Succeeded", "")), "Succeeded"}, {job(1), "Succeeded"}} {
			write(t, s, step.write)
			got, err := s.Job(t.Context(), "team", "job-1", "")
			if err != nil || got.Phase != step.want {
				t.Errorf("%s %v, want %s", got.Phase, err, step.want)
			}
		}
	})
}

func TestOpenJobsAreThoseWithoutAnEnd(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		write(t, s, job(1), job(2, ended("Failed", "Error")), job(3), job(4))
		var open []string
		pages := 0
		err := s.Open(t.Context(), 2, func(page []record.Job) error {
			pages++
			for _, one := range page {
				open = append(open, one.Name)
			}
			return nil
		})
		if diff := cmp.Diff([]string{"job-1", "job-3", "job-4"}, open); err != nil || diff != "" || pages != 2 {
			t.Error(err, pages, diff)
		}
		stop := errors.New("stop")
		if err := s.Open(t.Context(), 1, func([]record.Job) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%v, want %v", err, stop)
		}
	})
}

func TestSamplesOfJobsThatAreNotRecordedAreIgnored(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		if err := s.Write(t.Context(), []store.Change{{UID: "gone", Samples: []record.Sample{sample(0, 1)}}}); err != nil {
			t.Fatal(err)
		}
		if totals, err := s.Totals(t.Context()); err != nil || totals != (store.Totals{}) {
			t.Errorf("%+v %v", totals, err)
		}
	})
}

func TestTheTailsOfAJobAreBounded(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		change := store.Change{UID: "uid-000001", Job: job(1)}
		for i := range record.MaxTails + 5 {
			change.Tails = append(change.Tails, record.Tail{PodUID: "p", Container: "c", Restarts: int32(i), Ended: at(i), Text: strings.Repeat("x", record.MaxTail+1)})
		}
		if err := s.Write(t.Context(), []store.Change{change}); err != nil {
			t.Fatal(err)
		}
		tails, err := s.Tails(t.Context(), "uid-000001")
		if err != nil || len(tails) != record.MaxTails || !tails[0].Truncated || tails[1].Restarts != 1 {
			t.Errorf("%d tails, %v", len(tails), err)
		}
	})
}

func TestAWriteFailsAsAWhole(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		bad := job(2)
		bad.Manifest = []byte("not JSON")
		if err := s.Write(t.Context(), []store.Change{{UID: "uid-000001", Job: job(1)}, {UID: bad.UID, Job: bad}}); err == nil || !strings.Contains(err.Error(), bad.UID) {
			t.Errorf("%v, want an error that names %s", err, bad.UID)
		}
		if totals, err := s.Totals(t.Context()); err != nil || totals.Jobs != 0 {
			t.Errorf("%+v %v", totals, err)
		}
		if err := s.Write(t.Context(), make([]store.Change, store.MaxChanges+1)); err == nil {
			t.Error("a write of too many changes was accepted")
		}
	})
}

// TestWritersTakeTurns has two programs write at once, as two replicas on PostgreSQL do.
func TestWritersTakeTurns(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		stores := []*store.Store{on.store(), on.store()}
		var group sync.WaitGroup
		for _, s := range stores {
			group.Go(func() {
				for i := range 40 {
					if err := s.Write(t.Context(), []store.Change{{UID: job(i).UID, Job: job(i), Samples: []record.Sample{sample(i, 1)}}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		once := store.Change{UID: "uid-000000", Job: job(0)}
		before, err := stores[0].Totals(t.Context())
		if err != nil || before.Jobs != 40 {
			t.Errorf("%+v %v, want 40 jobs", before, err)
		}
		if err := stores[1].Write(t.Context(), []store.Change{once}); err != nil {
			t.Fatal(err)
		}
		if after, err := stores[0].Totals(t.Context()); err != nil || after != before {
			t.Errorf("%+v %v, want %+v", after, err, before)
		}
	})
}

func TestProgramsThatStartTogetherAgreeOnTheSchema(t *testing.T) {
	// One program alone has the volume of SQLite.
	t.Run("PostgreSQL", onPostgres(func(on database) {
		t := on.t
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				opened, err := on.open(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if err := opened.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}))
}

func TestADatabaseOfALaterReleaseIsRefused(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		on.store()
		raw, err := sql.Open(on.driver, on.connection)
		if err != nil {
			t.Fatal(err)
		}
		_, err = raw.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (7, true)")
		if err := errors.Join(err, raw.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = on.open(t.Context())
		if !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "it has step 7") {
			t.Errorf("%v, want %v with its step", err, store.ErrNewer)
		}
	})
}

// TestARefusalIsToldFromAnOutage has triggers refuse single jobs, as limits of a database do.
func TestARefusalIsToldFromAnOutage(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		on.refuse("P0001")
		bad := job(2, func(j *record.Job) { j.Images = []string{"refused"} })
		changes := []store.Change{{UID: "uid-000001", Job: job(1)}, {UID: bad.UID, Job: bad}}
		if err := s.Write(t.Context(), changes); !errors.Is(err, store.ErrRefused) {
			t.Errorf("%v, want %v", err, store.ErrRefused)
		}
		lean := record.Lean(*bad)
		changes[1].Job = &lean
		write(t, s, changes[0].Job, changes[1].Job)
		endless := job(3, func(j *record.Job) { j.Created = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) })
		if err := s.Write(t.Context(), []store.Change{{UID: endless.UID, Job: endless}}); !errors.Is(err, store.ErrRefused) {
			t.Errorf("%v, want %v", err, store.ErrRefused)
		}
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Write(stopped, changes); err == nil || errors.Is(err, store.ErrRefused) {
			t.Errorf("%v, want another error", err)
		}
	})
	t.Run("a full disk", onPostgres(func(on database) {
		s := on.store()
		on.refuse("53100")
		bad := job(2, func(j *record.Job) { j.Images = []string{"refused"} })
		if err := s.Write(on.t.Context(), []store.Change{{UID: bad.UID, Job: bad}}); !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrRefused) {
			on.t.Errorf("%v, want %v", err, store.ErrFull)
		}
	}))
}

func TestWhatCannotBeOpenedIsNamed(t *testing.T) {
	if _, err := store.OpenPostgres(t.Context(), "postgres://user:secret@:x/"); !errors.Is(err, store.ErrConnection) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want %v without the password", err, store.ErrConnection)
	}
	if _, err := store.OpenSQLite(t.Context(), "/nonexistent/history.db"); err == nil || !strings.Contains(err.Error(), "/nonexistent/history.db") {
		t.Errorf("%v", err)
	}
	if _, err := store.OpenPostgres(t.Context(), "postgres://none@/none?host=/nonexistent"); err == nil || !strings.Contains(err.Error(), "PostgreSQL") {
		t.Errorf("%v", err)
	}
}

func sample(seconds int, value float64) record.Sample {
	return record.Sample{At: at(seconds), Values: map[string]record.Mean{"reward": {Sum: value, Count: 1}}}
}

func mean(seconds int, span time.Duration, sum float64, count int64) record.Sample {
	return record.Sample{At: at(seconds), Span: span, Values: map[string]record.Mean{"reward": {Sum: sum, Count: count}}}
}

func TestSamplesAreThinnedByAge(t *testing.T) {
	const day = 24 * time.Hour
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		add := func(samples ...record.Sample) {
			t.Helper()
			if err := s.Write(t.Context(), []store.Change{{UID: "uid-000001", Samples: samples}}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(now time.Time, want ...record.Sample) {
			t.Helper()
			for more, err := true, error(nil); more; {
				if more, err = s.Thin(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Samples(t.Context(), "uid-000001", time.Time{})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Error(now, err, diff)
			}
		}
		write(t, s, job(1))
		add(sample(0, 1), sample(10, 3), sample(300, 5), sample(3600, 7))
		expect(at(300).Add(day-time.Second), sample(0, 1), sample(10, 3), sample(300, 5), sample(3600, 7))
		expect(at(300).Add(day), mean(0, 5*time.Minute, 4, 2), sample(300, 5), sample(3600, 7))
		// A sample that comes late becomes part of the mean that there is.
		add(sample(20, 2))
		expect(at(600).Add(day), mean(0, 5*time.Minute, 6, 3), mean(300, 5*time.Minute, 5, 1), sample(3600, 7))
		expect(at(7200).Add(30*day), mean(0, time.Hour, 11, 4), mean(3600, time.Hour, 7, 1))
		add(sample(30, 1), sample(40, 1))
		expect(at(7200).Add(30*day), mean(0, time.Hour, 13, 6), mean(3600, time.Hour, 7, 1))
		// All is counted as if it had been written so.
		thinned, err := s.Totals(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), []store.Change{{UID: "uid-000002", Job: job(2), Samples: []record.Sample{mean(0, time.Hour, 13, 6), mean(3600, time.Hour, 7, 1)}}}); err != nil {
			t.Fatal(err)
		}
		if both, err := s.Totals(t.Context()); err != nil || both.Bytes != 2*thinned.Bytes {
			t.Errorf("two equal jobs have %d bytes, and one %d: %v", both.Bytes, thinned.Bytes, err)
		}
	})
}

// TestThinningKeepsSumsInBoundedSteps has more samples and jobs than one transaction thins.
func TestThinningKeepsSumsInBoundedSteps(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		const jobs, reports = 25, 300
		var changes []store.Change
		for i := range jobs {
			change := store.Change{UID: job(i).UID, Job: job(i)}
			for r := range reports {
				change.Samples = append(change.Samples, sample(r*20, float64(i)))
			}
			changes = append(changes, change)
		}
		long := store.Change{UID: job(jobs).UID, Job: job(jobs)}
		for r := range 6000 {
			long.Samples = append(long.Samples, sample(r*7, 1))
		}
		if err := s.Write(t.Context(), append(changes, long)); err != nil {
			t.Fatal(err)
		}
		rounds := 0
		for more, err := true, error(nil); more; rounds++ {
			if more, err = s.Thin(t.Context(), at(0).Add(40*24*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if rounds < 2 {
			t.Errorf("thinned in %d rounds, want more", rounds)
		}
		for i := range jobs + 1 {
			got, err := s.Samples(t.Context(), job(i).UID, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			total := record.Mean{}
			for _, one := range got {
				total = record.Mean{Sum: total.Sum + one.Values["reward"].Sum, Count: total.Count + one.Values["reward"].Count}
			}
			want := record.Mean{Sum: float64(i * reports), Count: reports}
			if i == jobs {
				want = record.Mean{Sum: 6000, Count: 6000}
			}
			if total != want || len(got) > 12 {
				t.Errorf("job %d: %d samples with %+v, want %+v", i, len(got), total, want)
			}
		}
	})
}

func TestSamplesAreReadFromATimeOn(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		if err := s.Write(t.Context(), []store.Change{{UID: "uid-000001", Job: job(1), Samples: []record.Sample{sample(0, 1), sample(10, 2), sample(20, 3)}}}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Samples(t.Context(), "uid-000001", at(10))
		if diff := cmp.Diff([]record.Sample{sample(20, 3)}, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

func TestRetentionDeletesTheJobsThatEndedFirst(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		for name, limits := range map[string]store.Limits{
			// Each job ended a minute after it was created.
			"age":    {Age: time.Hour - 5*time.Second},
			"number": {Jobs: 6},
			"bytes":  {},
		} {
			t.Run(name, func(t *testing.T) {
				s := on.store()
				write(t, s, endedJobs()...)
				totals, err := s.Totals(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if name == "bytes" {
					limits.Bytes = totals.Bytes * 62 / 100
				}
				retains(t, s, limits, store.Deleted{Jobs: 4})
				page, err := s.List(t.Context(), store.Filter{}, "", 100)
				if diff := cmp.Diff("9 8 7 6 5 0", numbers(page)); err != nil || diff != "" {
					t.Error(err, diff)
				}
				if left, err := s.Totals(t.Context()); err != nil || left.Jobs != 6 || left.Bytes >= totals.Bytes*7/10 {
					t.Errorf("%+v %v", left, err)
				}
				retains(t, s, limits, store.Deleted{})
				retains(t, s, store.Limits{Age: 1}, store.Deleted{Jobs: 5})
			})
		}
	})
}

// endedJobs returns ten jobs of about one size, the first of which has not ended.
func endedJobs() []*record.Job {
	var jobs []*record.Job
	for i := range 10 {
		jobs = append(jobs, job(i, ended("Failed", "Error"), func(j *record.Job) { j.Message = strings.Repeat("x", 300) }))
	}
	jobs[0].Ended = time.Time{}
	return jobs
}

// retains expects what is deleted an hour after the end of the first job.
func retains(t *testing.T, s *store.Store, limits store.Limits, want store.Deleted) {
	t.Helper()
	deleted, err := s.Retain(t.Context(), limits, at(60).Add(time.Hour))
	if deleted.Bytes = 0; err != nil || deleted != want {
		t.Errorf("deleted %+v, %v; want %+v", deleted, err, want)
	}
}

func TestRetentionDeletesInBoundedTransactionsAndVacuumGivesRoomBack(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		var jobs []*record.Job
		for i := range 1200 {
			jobs = append(jobs, job(i, ended("Succeeded", "")))
		}
		write(t, s, jobs...)
		var rounds []int64
		for more := true; more; {
			deleted, err := s.Retain(t.Context(), store.Limits{Age: time.Second}, at(10_000))
			if err != nil {
				t.Fatal(err)
			}
			rounds, more = append(rounds, deleted.Jobs), deleted.More
		}
		if diff := cmp.Diff([]int64{500, 500, 200}, rounds); diff != "" {
			t.Error(diff)
		}
		if totals, err := s.Totals(t.Context()); err != nil || totals != (store.Totals{}) {
			t.Errorf("%+v %v", totals, err)
		}
		pages := func() (count int) {
			raw, err := sql.Open("sqlite", on.connection)
			if err == nil {
				err = errors.Join(raw.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&count), raw.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
		if on.driver != "sqlite" {
			if err := s.Vacuum(t.Context()); err != nil {
				t.Error(err)
			}
			return
		}
		before := pages()
		if err := s.Vacuum(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := pages(); after > before/4 {
			t.Errorf("%d of %d pages are left", after, before)
		}
	})
}

func numbers(page record.Page) string {
	var names []string
	for _, one := range page.Jobs {
		names = append(names, strings.TrimPrefix(one.Name, "job-"))
	}
	return strings.Join(names, " ")
}

func TestAListHasTheFieldsOfItsJobs(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		write(t, s, job(1, ended("Failed", "Error"), func(j *record.Job) {
			j.Group, j.Creator, j.Message, j.Unseen = "g", "ann", "m", true
			j.Seen = record.Seen{Restarts: 1, Reschedules: 1, ReplicaRestarts: map[string]int32{"a/1": 1}}
		}))
		page, err := s.List(t.Context(), store.Filter{}, "", 1)
		want := record.Page{Jobs: []record.Summary{{
			UID: "uid-000001", Namespace: "team", Name: "job-1", Group: "g", Creator: "ann", Phase: "Failed", Reason: "Error", Message: "m",
			Created: at(1), Started: at(2), Ended: at(61), Unseen: true, Restarts: 2,
		}}}
		if diff := cmp.Diff(want, page); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

func TestFiltersSelectJobsAndPagesHaveEachOnce(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		var jobs []*record.Job
		for i := range 60 {
			jobs = append(jobs, job(i/2, func(j *record.Job) {
				// Two jobs have each time of creation.
				j.UID, j.Name = fmt.Sprintf("uid-%d", i), fmt.Sprintf("job-%d", i)
				j.Namespace = []string{"a", "b", "c"}[i%3]
				j.Group = []string{"", "g", "h", "i"}[i%4]
				j.Creator = []string{"ann", "bob"}[i/30]
				if i%5 == 0 {
					ended("Failed", "Error")(j)
					j.Message = fmt.Sprintf("100%% of _%d_ Ünits", i)
				}
			}))
		}
		write(t, s, jobs...)
		for name, test := range map[string]struct {
			filter store.Filter
			has    func(i int, j *record.Job) bool
		}{
			"all":                         {store.Filter{}, func(int, *record.Job) bool { return true }},
			"since":                       {store.Filter{Since: at(7)}, func(i int, _ *record.Job) bool { return i >= 14 }},
			"namespace":                   {store.Filter{Namespace: "b"}, func(_ int, j *record.Job) bool { return j.Namespace == "b" }},
			"phase":                       {store.Filter{Phase: "Failed"}, func(_ int, j *record.Job) bool { return j.Phase == "Failed" }},
			"reason":                      {store.Filter{Reason: "Error"}, func(_ int, j *record.Job) bool { return j.Reason == "Error" }},
			"group and since":             {store.Filter{Group: "g", Since: at(3)}, func(i int, j *record.Job) bool { return j.Group == "g" && i >= 6 }},
			"creator and phase":           {store.Filter{Creator: "bob", Phase: "Failed"}, func(_ int, j *record.Job) bool { return j.Creator == "bob" && j.Phase == "Failed" }},
			"text of a name":              {store.Filter{Text: "OB-5"}, func(_ int, j *record.Job) bool { return strings.HasPrefix(j.Name, "job-5") }},
			"text of a message":           {store.Filter{Text: "ünits"}, func(_ int, j *record.Job) bool { return j.Message != "" }},
			"text with signs of patterns": {store.Filter{Text: "0% of _5"}, func(_ int, j *record.Job) bool { return strings.Contains(j.Message, "_5") }},
			"text of none":                {store.Filter{Text: "none"}, func(int, *record.Job) bool { return false }},
			"readable":                    {store.Filter{Readable: []string{"a", "c"}}, func(_ int, j *record.Job) bool { return j.Namespace != "b" }},
			"readable and group":          {store.Filter{Readable: []string{"a", "c"}, Group: "h"}, func(_ int, j *record.Job) bool { return j.Namespace != "b" && j.Group == "h" }},
			"one readable":                {store.Filter{Readable: []string{"a"}, Phase: "Failed"}, func(_ int, j *record.Job) bool { return j.Namespace == "a" && j.Phase == "Failed" }},
			"readable namespace":          {store.Filter{Readable: []string{"a", "c"}, Namespace: "c"}, func(_ int, j *record.Job) bool { return j.Namespace == "c" }},
			"other namespace":             {store.Filter{Readable: []string{"a", "c"}, Namespace: "b"}, func(int, *record.Job) bool { return false }},
			"nothing readable":            {store.Filter{Readable: []string{}}, func(int, *record.Job) bool { return false }},
			"injection":                   {store.Filter{Group: "' OR 1=1 --"}, func(int, *record.Job) bool { return false }},
		} {
			t.Run(name, func(t *testing.T) {
				var want []string
				for i := len(jobs) - 1; i >= 0; i-- {
					if test.has(i, jobs[i]) {
						want = append(want, jobs[i].Name)
					}
				}
				for _, size := range []int{1, 7, 60, record.MaxPage} {
					if diff := cmp.Diff(want, listed(t, s, test.filter, size)); diff != "" {
						t.Errorf("pages of %d: %s", size, diff)
					}
				}
			})
		}
	})
}

// listed returns the names of all pages.
func listed(t *testing.T, s *store.Store, filter store.Filter, size int) (names []string) {
	t.Helper()
	for from := ""; ; {
		page, err := s.List(t.Context(), filter, from, size)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Jobs) > size {
			t.Fatalf("%d jobs on a page of %d", len(page.Jobs), size)
		}
		for _, one := range page.Jobs {
			names = append(names, one.Name)
		}
		if from = page.Next; from == "" {
			return names
		}
	}
}

// TestARareTextIsFoundByPagesThatEachExamineABoundedNumberOfJobs has more jobs than one page examines.
func TestARareTextIsFoundByPagesThatEachExamineABoundedNumberOfJobs(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		var jobs []*record.Job
		for i := range 10_500 {
			jobs = append(jobs, job(i))
		}
		jobs[3].Message = "the needle"
		write(t, s, jobs...)
		page, err := s.List(t.Context(), store.Filter{Text: "needle"}, "", 10)
		if err != nil || len(page.Jobs) != 0 || page.Next == "" {
			t.Errorf("%+v %v, want an empty page with a next one", page, err)
		}
		page, err = s.List(t.Context(), store.Filter{Text: "needle"}, page.Next, 10)
		if err != nil || numbers(page) != "3" || page.Next != "" {
			t.Errorf("%+v %v, want the job", page, err)
		}
	})
}

func TestInvalidQueriesAreRefused(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		s := on.store()
		for _, from := range []string{"x", "!", "MS4x!", "MQ"} {
			if _, err := s.List(t.Context(), store.Filter{}, from, 1); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: %v, want %v", from, err, store.ErrInvalid)
			}
		}
		for _, limit := range []int{0, -1, record.MaxPage + 1} {
			if _, err := s.List(t.Context(), store.Filter{}, "", limit); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%d: %v, want %v", limit, err, store.ErrInvalid)
			}
		}
		if _, err := s.List(t.Context(), store.Filter{Readable: make([]string, 1001)}, "", 1); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want %v", err, store.ErrInvalid)
		}
	})
}

func TestAFamilyHasTheFinishedJobsOfItsNamespaceThatEndedLast(t *testing.T) {
	onBoth(t, func(d database) {
		opened := d.store()
		of := func(namespace, group, name string) func(*record.Job) {
			return func(j *record.Job) { j.Namespace, j.Group, j.Name = namespace, group, name }
		}
		write(t, opened,
			job(1, of("team", "pong", "a"), ended("Succeeded", "")), job(2, of("team", "pong", "b"), ended("Failed", "")),
			job(3, of("team", "pong", "c")), job(4, of("other", "pong", "d"), ended("Succeeded", "")),
			job(5, of("team", "", "e-1"), ended("Succeeded", "")), job(6, of("team", "", "e-2"), ended("Succeeded", "")),
			job(7, of("team", "pong", "large"), ended("Succeeded", ""), func(j *record.Job) {
				for range record.MaxReplicas {
					j.Replicas = append(j.Replicas, record.Replica{Pod: strings.Repeat("p", 253), Message: strings.Repeat("m", 1000), Ended: j.Ended})
				}
			}),
		)
		for family, want := range map[string]string{"group/pong": "b a", "name/e": "e-2 e-1", "name/a": ""} {
			found, err := opened.Family(t.Context(), "team", family)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, one := range found {
				names = append(names, one.Name)
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("family %s: got %q, want %q", family, got, want)
			}
		}
		var many []*record.Job
		for i := range 100 {
			many = append(many, job(100+i, of("team", "many", "x"), ended("Succeeded", "")))
		}
		write(t, opened, many...)
		if found, err := opened.Family(t.Context(), "team", "group/many"); err != nil || len(found) != 64 || found[0].UID != "uid-000199" {
			t.Errorf("got %d jobs and %v, want the last 64", len(found), err)
		}
	})
}

func TestTheLastSamplesAreRead(t *testing.T) {
	onBoth(t, func(d database) {
		opened := d.store()
		one := job(1)
		change := store.Change{UID: one.UID, Job: one}
		for i := range 10 {
			change.Samples = append(change.Samples, record.Sample{At: at(10 * i), Values: map[string]record.Mean{"x": {Sum: float64(i), Count: 1}}})
		}
		if err := opened.Write(t.Context(), []store.Change{change}); err != nil {
			t.Fatal(err)
		}
		found, err := opened.LastSamples(t.Context(), one.UID, 3)
		if err != nil || len(found) != 3 || found[0].Values["x"].Sum != 9 {
			t.Errorf("got %v and %v, want the last three", found, err)
		}
	})
}

func TestSumsAreDroppedInBoundedTransactions(t *testing.T) {
	onBoth(t, func(d database) {
		opened := d.store()
		const rows = 2_500
		var jobs []*record.Job
		for i := range rows {
			jobs = append(jobs, job(i, ended("Succeeded", ""), func(j *record.Job) { j.Group = strconv.Itoa(i) }))
		}
		write(t, opened, jobs...)
		now := jobs[rows-1].Ended.AddDate(0, 0, 2)
		if _, err := opened.Retain(t.Context(), store.Limits{Jobs: 1}, now); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int64{500, 0} {
			deleted, err := opened.Retain(t.Context(), store.Limits{Age: 24 * time.Hour}, now)
			if err != nil {
				t.Fatal(err)
			}
			found, err := opened.Sums(t.Context(), store.SumFilter{Since: jobs[0].Ended, Until: now, By: record.ByNamespace})
			left := int64(0)
			for _, sum := range found.Sums {
				left += sum.Jobs
			}
			if err != nil || left != want || want > 0 && !deleted.More {
				t.Errorf("%d jobs are left in sums, %v, more to delete: %v; want %d", left, err, deleted.More, want)
			}
		}
	})
}

func TestGroupsAreKeptAsTheyWereStoredLastAndThoseUsedLongestAgoAreDropped(t *testing.T) {
	onBoth(t, func(d database) {
		opened := d.store()
		group := func(i int, note string) record.Group {
			name := fmt.Sprintf("team/group-%05d", i)
			return record.Group{Name: name, UsedAt: at(i), Learned: fmt.Appendf(nil, `{"name":%q,"note":%q}`, name, note)}
		}
		keep := func(groups ...record.Group) {
			t.Helper()
			if err := opened.KeepGroups(t.Context(), groups); err != nil {
				t.Fatal(err)
			}
		}
		keep(group(1, "first"), group(2, "first"))
		keep(group(2, "second"))
		found, err := opened.Groups(t.Context(), []string{"team/group-00001", "team/group-00002", "team/other"})
		want := map[string]json.RawMessage{"team/group-00001": group(1, "first").Learned, "team/group-00002": group(2, "second").Learned}
		if diff := cmp.Diff(want, found); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
		const most = 20_000
		for from := 3; from <= most+1; from += store.MaxChanges {
			var many []record.Group
			for i := from; i < min(from+store.MaxChanges, most+2); i++ {
				many = append(many, group(i, ""))
			}
			keep(many...)
		}
		found, err = opened.Groups(t.Context(), []string{"team/group-00001", "team/group-00002"})
		if err != nil || len(found) != 1 || found["team/group-00002"] == nil {
			t.Errorf("of the first two of %d groups %v are kept, %v: want the second", most+1, found, err)
		}
	})
}

// trained is a job that ended after an hour of one replica with four GPUs.
func trained(number int, change func(*record.Job)) *record.Job {
	return job(number, func(j *record.Job) {
		j.Phase, j.Ended = "Succeeded", j.Started.Add(time.Hour)
		j.Requests = []record.Request{{Task: "learner", CPU: 2000, Memory: 4 << 30, GPUs: 4}}
		j.Peaks = []record.Peak{{Task: "learner", CPU: 500, Memory: 1 << 30}}
		j.Replicas = []record.Replica{{Pod: "a", Task: "learner", Started: j.Started, Ended: j.Ended}}
	}, change)
}

func TestJobsAreSummedUpOnceWhenTheyEnd(t *testing.T) {
	onBoth(t, func(d database) {
		opened := d.store()
		of := func(namespace, group, user string) func(*record.Job) {
			return func(j *record.Job) { j.Namespace, j.Group, j.Creator = namespace, group, user }
		}
		running := trained(1, of("team", "pong", "ada"))
		ended := running.Ended
		running.Ended = time.Time{}
		write(t, opened, running)
		running.Ended = ended
		failed := trained(3, of("team", "breakout", "ada"))
		failed.Phase, failed.Reason, failed.Queue = "Failed", "OOMKilled", "night"
		later := trained(4, of("other", "pong", "bob"))
		later.Ended = later.Ended.Add(72 * time.Hour)
		for range 2 {
			write(t, opened, running, trained(2, of("team", "pong", "bob")), failed, later)
		}
		one := record.Sum{Jobs: 1, GPU: 4, CPURequested: 2, CPUUsed: 0.5, MemoryRequested: 4, MemoryUsed: 1}
		named := func(key string, jobs int64, unsuccessful int64) record.Sum {
			n := float64(jobs)
			return record.Sum{
				Key: key, Jobs: jobs, Unsuccessful: unsuccessful, GPU: n * one.GPU, CPURequested: n * one.CPURequested, CPUUsed: n * one.CPUUsed,
				MemoryRequested: n * one.MemoryRequested, MemoryUsed: n * one.MemoryUsed,
			}
		}
		first, last := running.Ended, later.Ended
		onDays := func(sum record.Sum, gpu ...float64) record.Sum { sum.Daily = gpu; return sum }
		for name, tc := range map[string]struct {
			filter store.SumFilter
			want   []record.Sum
		}{
			"groups of a namespace": {store.SumFilter{Since: first, Until: last, Namespace: "team", By: record.ByGroup}, []record.Sum{named("pong", 2, 0), named("breakout", 1, 1)}},
			"queues":                {store.SumFilter{Since: first, Until: last, Namespace: "team", By: record.ByQueue}, []record.Sum{named("", 2, 0), named("night", 1, 1)}},
			"users":                 {store.SumFilter{Since: first, Until: last, By: record.ByUser}, []record.Sum{named("ada", 2, 1), named("bob", 2, 0)}},
			"namespaces of a day":   {store.SumFilter{Since: first, Until: first, By: record.ByNamespace}, []record.Sum{named("team", 3, 1)}},
			"causes":                {store.SumFilter{Since: first, Until: first, By: record.ByCause}, []record.Sum{named("", 2, 0), named("OOMKilled", 1, 1)}},
			"days":                  {store.SumFilter{Since: last, Until: last, By: record.ByDay}, []record.Sum{named(last.Format(time.DateOnly), 1, 0)}},
			"namespaces, and each of their days": {store.SumFilter{Since: first, Until: last, By: record.ByNamespace, IsDaily: true},
				[]record.Sum{onDays(named("team", 3, 1), 12, 0, 0, 0), onDays(named("other", 1, 0), 0, 0, 0, 4)}},
			"users of a namespace, and each of their days": {store.SumFilter{Since: first, Until: last, Namespace: "other", By: record.ByUser, IsDaily: true},
				[]record.Sum{onDays(named("bob", 1, 0), 0, 0, 0, 4)}},
			"each day of days": {store.SumFilter{Since: last, Until: last, By: record.ByDay, IsDaily: true}, []record.Sum{named(last.Format(time.DateOnly), 1, 0)}},
			"nothing":          {store.SumFilter{Since: last, Until: last, Namespace: "team", By: record.ByUser}, []record.Sum{}},
		} {
			got, err := opened.Sums(t.Context(), tc.filter)
			ignoresHours := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Waited" }, cmp.Ignore())
			if diff := cmp.Diff(tc.want, got.Sums, ignoresHours); err != nil || got.Truncated || diff != "" {
				t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
			}
			if len(got.Sums) > 0 && got.Sums[0].Jobs == 2 && math.Abs(got.Sums[0].Waited-2.0/3600) > 1e-9 {
				t.Errorf("%s: two jobs waited for %g hours, want two seconds", name, got.Sums[0].Waited)
			}
		}
		for _, invalid := range []store.SumFilter{
			{Since: first, Until: last}, {Since: first, Until: last, By: "jobs"}, {Since: last, Until: first, By: record.ByDay},
			{Since: first, Until: first.AddDate(2, 0, 0), By: record.ByDay},
		} {
			if _, err := opened.Sums(t.Context(), invalid); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%+v: got %v, want that it is invalid", invalid, err)
			}
		}
		if _, err := opened.Retain(t.Context(), store.Limits{Age: time.Hour}, last.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		kept, err := opened.Sums(t.Context(), store.SumFilter{Since: first, Until: last, By: record.ByNamespace})
		if err != nil || len(kept.Sums) != 1 || kept.Sums[0].Key != "other" {
			t.Errorf("of two days, %+v and %v are kept, want the last day", kept, err)
		}
	})
}

func TestGroupsWithLongNamesAreToldApart(t *testing.T) {
	onBoth(t, func(d database) {
		opened, stem := d.store(), "team/"+strings.Repeat("g", 1_020)
		want := map[string]json.RawMessage{stem + "-a": []byte(`"a"`), stem + "-b": []byte(`"b"`)}
		for name, learned := range want {
			if err := opened.KeepGroups(t.Context(), []record.Group{{Name: name, UsedAt: at(1), Learned: learned}}); err != nil {
				t.Fatal(err)
			}
		}
		found, err := opened.Groups(t.Context(), []string{stem + "-a", stem + "-b"})
		if diff := cmp.Diff(want, found); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	})
}

func TestADatabaseOfTheReleaseBeforeIsUpgradedWithAllThatItHas(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		inGroup := func(j *record.Job) { j.Group = "cartpole" }
		want := []*record.Job{job(1, ended("Succeeded", ""), inGroup), job(2, ended("Failed", "OutOfMemory")), job(3, inGroup)}
		write(t, on.store(), want...)
		// The database as it was before step 2.
		before, err := sql.Open(on.driver, on.connection)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"DROP TABLE sums", "DROP TABLE allocation_groups", "DROP INDEX jobs_by_family", "ALTER TABLE jobs DROP COLUMN family", "DELETE FROM goose_db_version WHERE version_id > 1",
		} {
			if _, err := before.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		upgraded := on.store()
		for _, one := range want {
			found, err := upgraded.Job(t.Context(), one.Namespace, one.Name, one.UID)
			if diff := cmp.Diff(*one, found); err != nil || diff != "" {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		}
		for family, name := range map[string]string{want[0].Family(): want[0].Name, "name/" + want[1].Name: want[1].Name} {
			found, err := upgraded.Family(t.Context(), "team", family)
			if err != nil || len(found) != 1 || found[0].Name != name {
				t.Errorf("family %s has %v, %v; want job %s", family, found, err, name)
			}
		}
		write(t, upgraded, job(4))
	})
}

func TestSumsOfTheReleaseBeforeAreKeptWithoutAQueue(t *testing.T) {
	onBoth(t, func(on database) {
		t := on.t
		inQueue := func(j *record.Job) { j.Namespace, j.Queue = "team", "night" }
		old := trained(1, inQueue)
		write(t, on.store(), old)
		// The sums as they were before step 5.
		const columns = "day, namespace, job_group, creator, cause, jobs, waited, gpu, cpu_requested, cpu_used, memory_requested, memory_used"
		statements := []string{"CREATE TABLE before AS SELECT " + columns + " FROM sums", "DROP TABLE sums", "ALTER TABLE before RENAME TO sums"}
		if on.driver == "pgx" {
			statements = []string{"ALTER TABLE sums DROP COLUMN queue", "ALTER TABLE sums ADD PRIMARY KEY (day, namespace, job_group, creator, cause)"}
		}
		before, err := sql.Open(on.driver, on.connection)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range append(statements, "DELETE FROM goose_db_version WHERE version_id > 4") {
			if _, err := before.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		upgraded := on.store()
		write(t, upgraded, trained(2, inQueue), trained(3, inQueue))
		for by, want := range map[record.By]map[string]int64{record.ByQueue: {"": 1, "night": 2}, record.ByNamespace: {"team": 3}} {
			found, err := upgraded.Sums(t.Context(), store.SumFilter{Since: old.Ended, Until: old.Ended, By: by})
			got := map[string]int64{}
			for _, sum := range found.Sums {
				got[sum.Key] = sum.Jobs
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("by %s: %v, -want +got:\n%s", by, err, diff)
			}
		}
	})
}
