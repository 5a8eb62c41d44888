// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// agedAt returns the ages of a server that knows each record since its time.
func agedAt(now time.Time) membership.Age {
	return func(record *v2alpha1.RecordedRequest) time.Duration { return now.Sub(record.Time.Time) }
}

// recall returns the recorded answer to a request, and whether there is one.
func recall(spec *v2alpha1.MembershipSpec, request membership.Request, now time.Time) (membership.URLs, bool, error) {
	record, err := membership.FindRecord(spec.Requests, request, agedAt(now))
	if record == nil {
		return membership.URLs{}, false, err
	}
	return membership.RecordedURLs(record), true, nil
}

func TestRecall(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	plain := membership.Request{Container: "uid/0", Content: []byte("two more")}
	keyed := membership.Request{Container: "uid/0", Content: []byte("two more"), IdempotencyKey: "k"}
	for name, tc := range map[string]struct {
		first, second membership.Request
		later         time.Duration
		repeat        bool
		err           error
	}{
		"the same of the same container is a repeat":                      {plain, plain, 30 * time.Second, true, nil},
		"the same after the window is a new request":                      {plain, plain, 31 * time.Second, false, nil},
		"the same that arrived before the first was recorded is a repeat": {plain, plain, -time.Hour, true, nil},
		"another container's is a new request": {
			plain, membership.Request{Container: "uid/1", Content: plain.Content}, 0, false, nil,
		},
		"another content is a new request": {
			plain, membership.Request{Container: "uid/0", Content: []byte("three more")}, 0, false, nil,
		},
		"the same key is a repeat for longer": {keyed, keyed, 10 * time.Minute, true, nil},
		"the same key of a restarted container is a repeat": {
			keyed, membership.Request{Container: "uid/1", Content: keyed.Content, IdempotencyKey: "k"}, 0, true, nil,
		},
		"the same content with another key is a new request": {
			keyed, membership.Request{Container: "uid/0", Content: keyed.Content, IdempotencyKey: "other"}, 0, false, nil,
		},
		"the same content without a key is a new request": {keyed, plain, 0, false, nil},
		"a key used for another content is refused": {
			keyed, membership.Request{Container: "uid/0", Content: []byte("three more"), IdempotencyKey: "k"}, 0, false, membership.ErrKeyReused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v2alpha1.MembershipSpec{}
			answer := membership.URLs{Collectors: []string{"c"}, Learners: []string{}}
			membership.Record(spec, tc.first, answer, noon, agedAt(noon))
			got, repeat, err := recall(spec, tc.second, noon.Add(tc.later))
			if repeat != tc.repeat || !errors.Is(err, tc.err) {
				t.Fatalf("got repeat %t, error %v, want %t, %v", repeat, err, tc.repeat, tc.err)
			}
			if diff := cmp.Diff(answer, got); repeat && diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARemovalIsNoRepeatAndEndsTheRepeatsOfItsCoordinator(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	addition := membership.Request{Container: "uid/0", Content: []byte("two more")}
	others := membership.Request{Container: "uid/1", Content: []byte("two more")}
	removal := membership.Request{Container: "uid/0", Content: []byte("two fewer"), Removal: true}
	keyed := membership.Request{Container: "uid/0", Content: []byte("two fewer"), Removal: true, IdempotencyKey: "k"}
	spec := &v2alpha1.MembershipSpec{}
	for _, request := range []membership.Request{addition, others, removal, keyed} {
		membership.Record(spec, request, membership.URLs{}, noon, agedAt(noon))
	}
	for name, tc := range map[string]struct {
		request membership.Request
		repeat  bool
	}{
		"the same removal is another one":                      {removal, false},
		"the same removal by its key is a repeat":              {keyed, true},
		"an addition after a removal is meant":                 {addition, false},
		"an addition of another coordinator is still a repeat": {others, true},
	} {
		if _, repeat, err := recall(spec, tc.request, noon); err != nil || repeat != tc.repeat {
			t.Errorf("%s: got repeat %t, error %v, want %t", name, repeat, err, tc.repeat)
		}
	}
}

func TestARemovalIsARepeatUntilItIsAnswered(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	removal := membership.Request{ID: "1", Container: "uid/0", Content: []byte("two fewer"), Removal: true, Confirmed: true}
	again, others, another := removal, removal, removal
	again.ID, others.ID, another.ID = "2", "3", "4"
	others.Container = "uid/1"
	another.Content = []byte("three fewer")
	for name, tc := range map[string]struct {
		between func(*v2alpha1.MembershipSpec)
		then    membership.Request
		later   time.Duration
		repeat  bool
	}{
		"the same again":                  {nil, again, 30 * time.Second, true},
		"the same much later":             {nil, again, 31 * time.Second, false},
		"the same of another coordinator": {nil, others, 0, false},
		"another one":                     {nil, another, 0, false},
		"the same after it was answered":  {func(spec *v2alpha1.MembershipSpec) { membership.MarkAnswered(spec, "1") }, again, 0, false},
		"the same after another's answer": {func(spec *v2alpha1.MembershipSpec) { membership.MarkAnswered(spec, "2") }, again, 0, true},
		"the request itself, answered":    {func(spec *v2alpha1.MembershipSpec) { membership.MarkAnswered(spec, "1") }, removal, 0, true},
		"the same after a different demand": {func(spec *v2alpha1.MembershipSpec) {
			membership.Record(spec, membership.Request{Container: "uid/0"}, membership.URLs{}, noon, agedAt(noon))
		}, again, 0, false},
		"the same after another's demand": {func(spec *v2alpha1.MembershipSpec) {
			membership.Record(spec, membership.Request{Container: "uid/1"}, membership.URLs{}, noon, agedAt(noon))
		}, again, 0, true},
		"the same after another removal": {func(spec *v2alpha1.MembershipSpec) {
			membership.Record(spec, another, membership.URLs{}, noon, agedAt(noon))
		}, again, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v2alpha1.MembershipSpec{}
			membership.Record(spec, removal, membership.URLs{Collectors: []string{"c"}}, noon, agedAt(noon))
			if !membership.IsUnanswered(&spec.Requests[0]) {
				t.Error("it is answered at once")
			}
			if tc.between != nil {
				tc.between(spec)
			}
			if _, repeat, err := recall(spec, tc.then, noon.Add(tc.later)); err != nil || repeat != tc.repeat {
				t.Errorf("got repeat %t, error %v, want %t", repeat, err, tc.repeat)
			}
		})
	}
}

func TestARemovalOfNothingIsRecordedWhereItEndsRepeatsOnce(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	removal := membership.Request{Container: "uid/0", Content: []byte("two fewer"), Removal: true}
	spec := &v2alpha1.MembershipSpec{}
	check := func(want bool, when string) {
		t.Helper()
		expect.Equal(t, when, want, membership.MustRecord(spec, removal))
	}
	check(false, "nothing was asked for")
	membership.Record(spec, membership.Request{Container: "uid/1", Content: []byte("two more")}, membership.URLs{}, noon, agedAt(noon))
	check(false, "another coordinator has asked")
	membership.Record(spec, membership.Request{Container: "uid/0", Content: []byte("two more")}, membership.URLs{}, noon, agedAt(noon))
	check(true, "this coordinator has asked")
	membership.Record(spec, removal, membership.URLs{}, noon, agedAt(noon))
	check(false, "a removal came since")
	removal.IdempotencyKey = "k"
	check(true, "it has a key")
}

func TestARequestIsKnownByItsIDWhateverCameBetween(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	addition := membership.Request{ID: "1", Container: "uid/0", Content: []byte("two more")}
	removal := membership.Request{ID: "2", Container: "uid/0", Content: []byte("two fewer"), Removal: true}
	another := membership.Request{ID: "3", Container: "uid/0", Content: []byte("two fewer"), Removal: true}
	spec := &v2alpha1.MembershipSpec{}
	membership.Record(spec, addition, membership.URLs{Collectors: []string{"added"}}, noon, agedAt(noon))
	membership.Record(spec, removal, membership.URLs{Collectors: []string{"removed"}}, noon.Add(time.Minute), agedAt(noon.Add(time.Minute)))
	late := noon.Add(2 * time.Minute)
	for name, tc := range map[string]struct {
		request membership.Request
		want    []string
	}{
		"an addition that a removal followed": {addition, []string{"added"}},
		"a removal without key":               {removal, []string{"removed"}},
		"the same content as another request": {another, nil},
	} {
		got, done, err := recall(spec, tc.request, late)
		if err != nil || done != (tc.want != nil) {
			t.Errorf("%s: got done %t, error %v", name, done, err)
		}
		expect.Equal(t, name+": answer", tc.want, got.Collectors)
	}
	membership.Record(spec, another, membership.URLs{}, noon.Add(time.Hour), agedAt(noon.Add(time.Hour)))
	expect.Equal(t, "result", 1, len(spec.Requests))
}

func TestRecordForgetsTheOldestAndTheExpired(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	request := func(i int) membership.Request {
		return membership.Request{Container: "uid/0", Content: fmt.Append(nil, i)}
	}
	spec := &v2alpha1.MembershipSpec{}
	for i := range membership.MaxRequests + 3 {
		membership.Record(spec, request(i), membership.URLs{}, noon, agedAt(noon))
	}
	expect.Equal(t, "result", membership.MaxRequests, len(spec.Requests))
	if _, repeat, _ := recall(spec, request(membership.MaxRequests+2), noon); !repeat {
		t.Error("the newest is forgotten")
	}
	membership.Record(spec, request(99), membership.URLs{}, noon.Add(time.Hour), agedAt(noon.Add(time.Hour)))
	expect.Equal(t, "result", 1, len(spec.Requests))
}

func TestRecordBoundsTheURLsKept(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	spec := &v2alpha1.MembershipSpec{}
	large := membership.URLs{Collectors: make([]string, 3000)}
	membership.Record(spec, membership.Request{Container: "uid/0", Content: []byte("a")}, large, noon, agedAt(noon))
	membership.Record(spec, membership.Request{Container: "uid/0", Content: []byte("b")}, large, noon, agedAt(noon))
	if _, repeat, _ := recall(spec, membership.Request{Container: "uid/0", Content: []byte("b")}, noon); !repeat || len(spec.Requests) != 1 {
		t.Errorf("got %d records, want the newest alone", len(spec.Requests))
	}
}

func TestIsRestarted(t *testing.T) {
	for name, tc := range map[string]struct {
		recorded, container string
		want                bool
	}{
		"no instance asked before": {"", "uid/0", false},
		"the same container":       {"uid/0", "uid/0", false},
		"the container restarted":  {"uid/0", "uid/1", true},
		"the pod was made again":   {"uid/3", "other/0", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := membership.IsRestarted(&v2alpha1.MembershipSpec{CoordinatorInstance: tc.recorded}, tc.container); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
