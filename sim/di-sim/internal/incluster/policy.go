// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/allocation"
)

// timedPolicy shows a policy the simulated times of submissions, which the API server stamps with the
// real time, and measures its rounds.
type timedPolicy struct {
	allocation.Policy

	real  clock.PassiveClock
	clock *Clock
	// submitted are the seconds of submissions.
	submitted map[types.NamespacedName]int

	mutex sync.Mutex
	// mutex guards all fields below. last is the second of the last round.
	rounds []time.Duration
	last   int
}

// Optimize implements allocation.Policy.
func (p *timedPolicy) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	shown := *round
	shown.Jobs = make([]*allocation.Job, len(round.Jobs))
	for i, job := range round.Jobs {
		copied := *job
		copied.Created = p.clock.At(p.submitted[job.Name])
		shown.Jobs[i] = &copied
	}
	began := p.real.Now()
	placements := p.Policy.Optimize(&shown)
	took := p.real.Since(began)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.rounds = append(p.rounds, took)
	p.last = p.clock.Seconds()
	return placements
}

// durations returns how long the rounds took.
func (p *timedPolicy) durations() []time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return append([]time.Duration(nil), p.rounds...)
}

// decided returns how many rounds there were, and the second of the last one.
func (p *timedPolicy) decided() (rounds, last int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return len(p.rounds), p.last
}
