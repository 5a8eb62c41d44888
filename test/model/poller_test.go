// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pollInterval is the interval of a coordinator's requests; a deployed coordinator polls every
// second.
const pollInterval = 50 * time.Millisecond

// sighting is a list that a server returned to the coordinator, with the server's process.
type sighting struct {
	server, start int
	seen          []string
}

// poller is a coordinator that polls the job's replicas from each server.
type poller struct {
	stop  func()
	group sync.WaitGroup

	mutex     sync.Mutex
	sightings []sighting
	fault     error
}

// startPolling starts to poll as the coordinator.
func (t *fixture) startPolling(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	t.poller = &poller{stop: stop}
	by := t.coordinator
	for server := range t.servers {
		t.poller.group.Go(func() {
			for ctx.Err() == nil {
				t.poller.note(t.poll(ctx, by, server))
				_ = pause(ctx, pollInterval)
			}
		})
	}
}

// poll polls a server once. An error before an answer is not a failure.
func (t *fixture) poll(ctx context.Context, by caller, server int) (sighting, error) {
	_, start := t.servers[server].running()
	replied, err := t.list(ctx, by, server, coordinator)
	if err != nil {
		return sighting{}, refusal(err)
	}
	return sighting{server, start, replied.urls().all()}, nil
}

func (p *poller) note(one sighting, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fault = errors.Join(p.fault, err)
	if err == nil && one.start > 0 {
		p.sightings = append(p.sightings, one)
	}
}

// finish stops polling and returns the answers.
func (p *poller) finish() ([]sighting, error) {
	p.stop()
	p.group.Wait()
	return p.sightings, p.fault
}

// round describes the valid answers to the coordinator during a round.
type round struct {
	// before and after are the lists before and after the round.
	before, after []string
	// replied are the URLs in the round's answers to writes.
	replied []string
}

// check returns an error for invalid answers to the coordinator. URLs listed before and after a
// round must be listed all the time. A new URL must not disappear again. No other URL may be
// listed.
func (r round) check(sightings []sighting) error {
	type process struct{ server, start int }
	known := map[process]map[string]bool{}
	for _, one := range sightings {
		by := process{one.server, one.start}
		if known[by] == nil {
			known[by] = map[string]bool{}
		}
		for _, url := range r.after {
			listed := slices.Contains(one.seen, url)
			if !listed && (slices.Contains(r.before, url) || known[by][url]) {
				return fmt.Errorf("server %d listed %s and then did not, though it was not removed: %v", one.server, url, one.seen)
			}
			known[by][url] = listed
		}
		for _, url := range one.seen {
			if !slices.Contains(r.before, url) && !slices.Contains(r.after, url) && !slices.Contains(r.replied, url) {
				return fmt.Errorf("server %d listed %s, which belongs to no replica: %v", one.server, url, one.seen)
			}
		}
	}
	return nil
}
