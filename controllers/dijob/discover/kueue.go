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

	"opendilab.org/di-orchestrator/internal/queueing"
)

// kueueInterval is how often the API server is asked for Kueue's API until it serves it.
// Once found, the API is assumed to stay.
const kueueInterval = time.Minute

// Kueue finds out whether Kueue is installed. Clusters without queued jobs have no
// additional requests, because it asks on demand only.
type Kueue struct {
	mapper meta.RESTMapper
	clock  clock.PassiveClock

	// mutex guards the fields below.
	mutex sync.Mutex
	// isServed is the last result, looked its time.
	isServed bool
	looked   time.Time
}

// NewKueue returns a Kueue for a mapper that asks the API server for kinds that it does
// not know.
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
