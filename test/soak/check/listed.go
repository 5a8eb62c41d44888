// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// listed is the promise that a coordinator finds each replica that it was given in every list from a moment later on,
// until it has removed the replica or reported it failed.
type listed struct {
	// given is when answers gave URLs to a coordinator, by UID of its pod.
	given map[string]map[string]time.Time
	// unsure are coordinators that do not know what a request removed whose answer is lost.
	unsure map[string]bool
}

func newListed() *listed {
	return &listed{given: map[string]map[string]time.Time{}, unsure: map[string]bool{}}
}

func (*listed) name() string { return "A coordinator's list has every replica that it was given" }

func (*listed) end(*world) []broken { return nil }

func (l *listed) see(w *world, entry *history.Entry) []broken {
	call := entry.Call
	if call == nil || call.Pod == "" || call.Refused {
		return nil
	}
	if l.given[call.Pod] == nil {
		l.given[call.Pod] = map[string]time.Time{}
	}
	given := l.given[call.Pod]
	switch call.Operation {
	case history.Grow:
		for _, url := range call.URLs {
			given[url] = call.End
		}
	case history.Shrink, history.Report:
		l.unsure[call.Pod] = l.unsure[call.Pod] || !call.Done() || call.Repeated
		for _, url := range call.URLs {
			delete(given, url)
		}
	case history.List:
		if call.Done() && !l.unsure[call.Pod] {
			return compare(w, call, given)
		}
	}
	return nil
}

func compare(w *world, call *history.Call, given map[string]time.Time) []broken {
	var missing []string
	for url, since := range given {
		// Another di-server may answer, whose cache is a moment behind, or as old as the fault that keeps it from the API servers.
		isKnown := since.Before(call.Begin.Add(-settling)) && since.Before(w.knownTo("server"))
		if isKnown && !slices.Contains(call.URLs, url) {
			missing = append(missing, url)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return []broken{{job: w.jobs[call.Job], story: fmt.Sprintf("the list of coordinator %s (%s) lacks replicas that it was given and has not removed: %s; it has %s",
		w.podName(call.Pod), call.Pod, strings.Join(missing, " "), strings.Join(call.URLs, " "))}}
}
