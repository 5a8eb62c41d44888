// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/job/queueing"
)

// kueueInterval is the interval of requests for Kueue's API until the API server serves it. Once found,
// the API is assumed to exist permanently.
const kueueInterval = time.Minute

// Kueue detects whether Kueue is installed. It sends requests on demand only, so clusters without queued
// jobs have none.
type Kueue struct {
	mapper meta.RESTMapper
	clock  clock.PassiveClock

	// mutex guards the fields below.
	mutex sync.Mutex
	// isServed is the last result. looked is the time of that result.
	isServed bool
	looked   time.Time
}

// NewKueue returns a Kueue. The mapper must query the API server for unknown kinds.
func NewKueue(mapper meta.RESTMapper, clock clock.PassiveClock) *Kueue {
	return &Kueue{mapper: mapper, clock: clock}
}

// IsServed reports whether the API server serves Kueue's API.
func (f *Kueue) IsServed(context.Context) (bool, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	now := f.clock.Now()
	if f.isServed || !f.looked.IsZero() && now.Sub(f.looked) < kueueInterval {
		return f.isServed, nil
	}
	_, err := f.mapper.RESTMapping(schema.GroupKind{Group: queueing.GroupName, Kind: queueing.WorkloadKind})
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("discovering Kueue's API: %w", err)
	}
	f.isServed, f.looked = err == nil, now
	return f.isServed, nil
}
