// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

// mapper is a mapper that knows a kind, does not know it, or fails.
type mapper struct {
	meta.RESTMapper
	err   error
	asked int
}

func (m *mapper) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	m.asked++
	if kind.String() != "Workload.kueue.x-k8s.io" {
		return nil, errors.New("another kind is asked for")
	}
	return &meta.RESTMapping{}, m.err
}

func TestKueueIsLookedForUntilItIsFound(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	api := &mapper{err: &meta.NoKindMatchError{}}
	finder := NewKueue(api, clock)
	expect := func(after time.Duration, wantServed bool, wantErr bool, wantAsked int) {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		served, err := finder.IsServed(t.Context())
		if served != wantServed || (err != nil) != wantErr || api.asked != wantAsked {
			t.Fatalf("served %v, error %v, asked %d times; want %v, %v, %d", served, err, api.asked, wantServed, wantErr, wantAsked)
		}
	}
	expect(0, false, false, 1)
	expect(59*time.Second, false, false, 1)
	expect(time.Second, false, false, 2)
	api.err = errors.New("the API server is away")
	expect(time.Minute, false, true, 3)
	expect(0, false, true, 4)
	api.err = nil
	expect(0, true, false, 5)
	api.err = &meta.NoKindMatchError{}
	expect(time.Hour, true, false, 5)
}
