// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

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

// kueueLookInterval is how often the API server is asked for Kueue's API while it
// does not serve it. Once it does that is known for good.
const kueueLookInterval = time.Minute

// KueueFinder finds out whether Kueue is installed. It asks only when it is asked,
// so that clusters without it, or without jobs that queue, have no more requests.
type KueueFinder struct {
	mapper meta.RESTMapper
	clock  clock.PassiveClock

	// mutex guards what follows.
	mutex sync.Mutex
	// isServed is what was found last, and looked when.
	isServed bool
	looked   time.Time
}

// NewKueueFinder returns one that looks at what a mapper knows, which has to look
// at the API server for what it does not.
func NewKueueFinder(mapper meta.RESTMapper, clock clock.PassiveClock) *KueueFinder {
	return &KueueFinder{mapper: mapper, clock: clock}
}

// IsServed reports whether the API server serves Kueue's API.
func (f *KueueFinder) IsServed(context.Context) (bool, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	now := f.clock.Now()
	if f.isServed || !f.looked.IsZero() && now.Sub(f.looked) < kueueLookInterval {
		return f.isServed, nil
	}
	_, err := f.mapper.RESTMapping(schema.GroupKind{Group: queueing.GroupName, Kind: queueing.WorkloadKind})
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("looking for Kueue's API: %w", err)
	}
	f.isServed, f.looked = err == nil, now
	return f.isServed, nil
}
