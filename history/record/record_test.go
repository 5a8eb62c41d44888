// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/history/record"
)

const day = 24 * time.Hour

func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func reported(seconds int, value float64) record.Sample {
	return record.Sample{At: at(seconds), Values: map[string]record.Mean{"reward": {Sum: value, Count: 1}}}
}

func TestPointsOfTheLastDayAreKept(t *testing.T) {
	samples := []record.Sample{reported(0, 1), reported(10, 2), reported(20, 3)}
	if diff := cmp.Diff(samples, record.Thin(samples, at(20).Add(day))); diff != "" {
		t.Error(diff)
	}
}

func TestOlderPointsBecomeMeansOfFiveMinutesAndThenOfHours(t *testing.T) {
	samples := []record.Sample{reported(0, 1), reported(10, 3), reported(300, 5), reported(3600, 7)}
	mean := func(seconds int, span time.Duration, sum float64, count int64) record.Sample {
		return record.Sample{At: at(seconds), Span: span, Values: map[string]record.Mean{"reward": {Sum: sum, Count: count}}}
	}
	minutes := record.Thin(samples, at(7200).Add(day))
	want := []record.Sample{mean(0, 5*time.Minute, 4, 2), mean(300, 5*time.Minute, 5, 1), mean(3600, 5*time.Minute, 7, 1)}
	if diff := cmp.Diff(want, minutes); diff != "" {
		t.Error(diff)
	}
	want = []record.Sample{mean(0, time.Hour, 9, 3), mean(3600, time.Hour, 7, 1)}
	if diff := cmp.Diff(want, record.Thin(minutes, at(7200).Add(30*day))); diff != "" {
		t.Error(diff)
	}
}

func TestASpanBecomesAMeanOnlyWhenAllOfItIsOldEnough(t *testing.T) {
	samples := []record.Sample{reported(0, 1), reported(299, 3)}
	if thinned := record.Thin(samples, at(299).Add(day)); len(thinned) != 2 {
		t.Errorf("%d samples before the span is a day old, want 2", len(thinned))
	}
	due, isDue := record.ThinAgain(samples[0])
	if !isDue || !due.Equal(at(300).Add(day)) {
		t.Errorf("is thinned again at %v, want a day after the end of its span", due)
	}
	if thinned := record.Thin(samples, due); len(thinned) != 1 {
		t.Errorf("%d samples when it is due, want 1", len(thinned))
	}
	if _, isDue := record.ThinAgain(record.Sample{At: at(0), Span: time.Hour}); isDue {
		t.Error("means of an hour are thinned again")
	}
}

// TestThinningPreservesSums replays the life of random curves, thinned at random times. Values are
// whole numbers, whose sums are exact in any order.
func TestThinningPreservesSumsAndBoundsTheCount(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		names := []string{"reward", "loss"}
		var samples []record.Sample
		want := map[string]record.Mean{}
		now := at(random.IntN(7200))
		for range 3000 {
			now = now.Add(record.MinSpacing + time.Duration(random.Int64N(int64(2*time.Hour))))
			name := names[random.IntN(len(names))]
			value := float64(random.IntN(2_000_001) - 1_000_000)
			samples = append(samples, record.Sample{At: now, Values: map[string]record.Mean{name: {Sum: value, Count: 1}}})
			want[name] = record.Mean{Sum: want[name].Sum + value, Count: want[name].Count + 1}
			if random.IntN(50) == 0 {
				samples = record.Thin(samples, now)
			}
		}
		thinned := record.Thin(samples, now)
		got := map[string]record.Mean{}
		for _, sample := range thinned {
			for name, value := range sample.Values {
				got[name] = record.Mean{Sum: got[name].Sum + value.Sum, Count: got[name].Count + value.Count}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
		if diff := cmp.Diff(thinned, record.Thin(thinned, now)); diff != "" {
			t.Errorf("seed %d: thinning twice changes: %s", seed, diff)
		}
		hours := int(now.Sub(at(0))/time.Hour) + 1
		if most := int(day/record.MinSpacing) + int(30*day/(5*time.Minute)) + hours; len(thinned) > most {
			t.Errorf("seed %d: %d samples, want at most %d", seed, len(thinned), most)
		}
		shuffled := slices.Clone(samples)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(thinned, record.Thin(shuffled, now)); diff != "" {
			t.Errorf("seed %d: the order matters: %s", seed, diff)
		}
	}
}

func TestCurvesAreByNameAndInTheOrderOfTime(t *testing.T) {
	samples := []record.Sample{
		{At: at(10), Values: map[string]record.Mean{"loss": {Sum: 2, Count: 1}}},
		{At: at(0), Span: 5 * time.Minute, Values: map[string]record.Mean{"loss": {Sum: 9, Count: 3}, "fps": {Sum: 60, Count: 1}}},
	}
	want := []record.Series{
		{Name: "fps", Points: []record.Point{{At: at(0), Value: 60, Seconds: 300}}},
		{Name: "loss", Points: []record.Point{{At: at(0), Value: 3, Seconds: 300}, {At: at(10), Value: 2}}},
	}
	if diff := cmp.Diff(want, record.Curves(samples)); diff != "" {
		t.Error(diff)
	}
}

func TestListsKeepTheirNewestEntriesAndCountTheOthers(t *testing.T) {
	var job record.Job
	for i := range record.MaxChanges + 3 {
		job.Restarts = append(job.Restarts, record.Restart{At: at(i), Kind: record.RestartOfJob})
		job.Placements = append(job.Placements, record.Placement{At: at(i), Nodes: make([]string, record.MaxNodes/100)})
	}
	bounded := record.Bound(record.Bound(job))
	if len(bounded.Restarts) != record.MaxChanges || !bounded.Restarts[0].At.Equal(at(3)) {
		t.Errorf("%d restarts from %v on, want %d from %v on", len(bounded.Restarts), bounded.Restarts[0].At, record.MaxChanges, at(3))
	}
	if len(bounded.Placements) != 100 {
		t.Errorf("%d placements, want the 100 whose nodes are within the bound", len(bounded.Placements))
	}
	if want := map[string]int{"restarts": 3, "placements": record.MaxChanges + 3 - 100}; cmp.Diff(want, bounded.Dropped) != "" {
		t.Errorf("dropped: %v, want %v", bounded.Dropped, want)
	}
	if job.Dropped != nil || len(job.Restarts) != record.MaxChanges+3 {
		t.Error("the argument was changed")
	}
}

func TestReplicasThatEndedBadlyAreKeptLongest(t *testing.T) {
	failed, succeeded := int32(1), int32(0)
	var job record.Job
	job.Replicas = append(job.Replicas, record.Replica{Pod: "failed", Ended: at(1), ExitCode: &failed})
	for range record.MaxReplicas {
		job.Replicas = append(job.Replicas, record.Replica{Pod: "succeeded", Ended: at(1), ExitCode: &succeeded})
	}
	bounded := record.Bound(job)
	if len(bounded.Replicas) != record.MaxReplicas || bounded.Replicas[0].Pod != "failed" || bounded.Dropped["replicas"] != 1 {
		t.Errorf("%d replicas, the first %s", len(bounded.Replicas), bounded.Replicas[0].Pod)
	}
}

func TestTextsAreTruncatedAtCharactersAndStorable(t *testing.T) {
	for text, want := range map[string]string{
		"short":      "short",
		"ab\x00cd":   "ab\uFFFDc",
		"ab\xffcdef": "ab\uFFFDc",
		"abcdeä":     "abcde",
	} {
		if got := record.Text(text, 6); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestATailKeepsItsLastLines(t *testing.T) {
	long := strings.Repeat("ä\n", record.MaxTail)
	tail := record.BoundTail(record.Tail{Text: long + "Killed\r\n"})
	if !tail.Truncated || len(tail.Text) > record.MaxTail || !strings.HasSuffix(tail.Text, "ä\nKilled\r\n") || !utf8.ValidString(tail.Text) {
		t.Errorf("%d bytes, truncated: %v", len(tail.Text), tail.Truncated)
	}
	if one := record.BoundTail(record.Tail{Text: strings.Repeat("x", record.MaxTail+1)}); len(one.Text) != record.MaxTail {
		t.Errorf("a single long line has %d bytes, want %d", len(one.Text), record.MaxTail)
	}
	if whole := record.BoundTail(record.Tail{Text: "a\x1b[0m\nb"}); whole.Truncated || whole.Text != "a\x1b[0m\nb" {
		t.Errorf("a short tail was changed: %+v", whole)
	}
}

func TestASampleHasFiniteValuesOfBoundedNames(t *testing.T) {
	values := map[string]record.Mean{
		"nan": {Sum: math.NaN(), Count: 1}, "inf": {Sum: math.Inf(1), Count: 1}, "none": {},
		strings.Repeat("x", record.MaxSeriesName+1): {Sum: 1, Count: 1}, "a\x00": {Sum: 1, Count: 1},
	}
	if bounded := record.BoundSample(record.Sample{Values: values}); len(bounded.Values) != 0 {
		t.Errorf("kept %v", bounded.Values)
	}
	for i := range record.MaxSeries + 1 {
		values["s"+string(rune('A'+i))] = record.Mean{Sum: 1, Count: 1}
	}
	if bounded := record.BoundSample(record.Sample{Values: values}); len(bounded.Values) != record.MaxSeries {
		t.Errorf("%d series, want %d", len(bounded.Values), record.MaxSeries)
	}
}

func TestABoundedJobFitsItsJSON(t *testing.T) {
	job := record.Bound(record.Job{UID: "1", Message: strings.Repeat("\xff", 5000), Manifest: make([]byte, record.MaxManifest+1)})
	encoded, err := json.Marshal(job)
	if err != nil || len(encoded) > 10*record.MaxText {
		t.Errorf("%d bytes: %v", len(encoded), err)
	}
}

func TestFamiliesAreGroupsOrNamesWithoutNumbers(t *testing.T) {
	t.Parallel()
	for _, one := range [][3]string{
		{"pong", "a", "group/pong"}, {"", "pong-12", "name/pong"}, {"", "pong-x7k2p", "name/pong"}, {"", "pong", "name/pong"}, {"", "pong-ppo", "name/pong-ppo"},
	} {
		job := record.Job{Group: one[0], Name: one[1]}
		if got := job.Family(); got != one[2] {
			t.Errorf("%s: got %q, want %q", one[1], got, one[2])
		}
	}
}

func TestARedactionCoversAllMessagesAndRepeatingItChangesNothing(t *testing.T) {
	t.Parallel()
	redaction, err := record.NewRedaction([]string{"token=[a-z]+", "redacted", "x*"})
	if err != nil {
		t.Fatal(err)
	}
	const message, want = "login token=abc failed, token=def", "login [redacted] failed, [redacted]"
	job := record.Job{
		Message: message, Attempts: []record.Attempt{{Message: message}}, Replicas: []record.Replica{{Message: message}}, Restarts: []record.Restart{{Message: message}},
		Plans: []record.Plan{{Message: message}}, Conditions: []record.Condition{{Message: message}}, Events: []record.Event{{Message: message}},
	}
	once := redaction.Job(job)
	if diff := cmp.Diff(once, redaction.Job(once)); diff != "" {
		t.Errorf("the second redaction changes (-once +twice):\n%s", diff)
	}
	encoded, err := json.Marshal(once)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(encoded), "token=") || strings.Count(string(encoded), want) != 7 {
		t.Errorf("got %s, want all seven messages as %q", encoded, want)
	}
	if job.Replicas[0].Message != message {
		t.Error("the job that was given is changed")
	}
}

func TestAReductionHasMeansOfEqualSpansOfTime(t *testing.T) {
	t.Parallel()
	reduction := record.NewReduction(at(0), at(1_000), 4)
	for i := range 1_000 {
		reduction.Add([]record.Sample{reported(i, float64(i))})
	}
	// What is outside of the time counts to its ends.
	reduction.Add([]record.Sample{reported(-50, 25), reported(2_000, 874.5)})
	want := []record.Series{{Name: "reward", Points: []record.Point{
		{At: at(-50), Value: 124.1, Seconds: 250}, {At: at(250), Value: 374.5, Seconds: 250}, {At: at(500), Value: 624.5, Seconds: 250},
		{At: at(750), Value: 874.5, Seconds: 250},
	}}}
	got := reduction.Series()
	for i := range got[0].Points {
		got[0].Points[i].Value = math.Round(got[0].Points[i].Value*10) / 10
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	few := record.NewReduction(at(0), at(1_000), 100)
	few.Add([]record.Sample{reported(10, 1), reported(700, 2)})
	if diff := cmp.Diff([]record.Point{{At: at(10), Value: 1}, {At: at(700), Value: 2}}, few.Series()[0].Points); diff != "" {
		t.Error(diff)
	}
}

func TestAReductionHasABoundedNumberOfCurves(t *testing.T) {
	t.Parallel()
	reduction := record.NewReduction(at(0), at(0), 10)
	for i := range 1_000 {
		reduction.Add([]record.Sample{{At: at(i), Values: map[string]record.Mean{strconv.Itoa(i): {Sum: 1, Count: 1}}}})
	}
	if curves := len(reduction.Series()); curves != 4*record.MaxSeries {
		t.Errorf("%d curves", curves)
	}
}
