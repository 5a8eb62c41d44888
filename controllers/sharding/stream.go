// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// stream lists and watches the selected pods for an informer. The mutex of its Watches guards it.
type stream struct {
	watches *Watches
	from    toolscache.ListerWatcherWithContext
	// store is that of the informer.
	store toolscache.Store
	// generation is that of the selector of the last list.
	generation int
	// before is the version of the store when the list began.
	before string
	// version is that of the list; empty until it has ended. ended is when it did.
	version string
	ended   time.Time
	// open is the open watch; nil if there is none.
	open watch.Interface
}

// list lists the selected pods.
func (s *stream) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := s.begin(&options, options.Continue == ""); err != nil {
		return nil, err
	}
	list, err := s.from.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	read, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("reading a list of pods: %w", err)
	}
	if read.GetContinue() == "" {
		s.listed(read.GetResourceVersion())
	}
	return list, nil
}

// watch watches the selected pods. A watch may send a list first.
func (s *stream) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	isList := options.SendInitialEvents != nil && *options.SendInitialEvents
	if err := s.begin(&options, isList); err != nil {
		return nil, err
	}
	opened, err := s.from.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	if isList {
		opened = s.observe(opened)
	}
	s.watches.mutex.Lock()
	defer s.watches.mutex.Unlock()
	s.open = opened
	if s.generation != s.watches.generation {
		opened.Stop()
	}
	return opened, nil
}

// begin adds the selector to a request. It refuses one that continues a list with another selector, so that the informer lists
// again.
func (s *stream) begin(options *metav1.ListOptions, isNew bool) error {
	w := s.watches
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if isNew {
		s.generation, s.version, s.before = w.generation, "", s.store.LastStoreSyncResourceVersion()
	}
	if s.generation != w.generation {
		return apierrors.NewResourceExpired("other shards are watched now")
	}
	switch selector := w.selector(); {
	case options.LabelSelector == "":
		options.LabelSelector = selector
	case selector != "":
		options.LabelSelector += "," + selector
	}
	return nil
}

// listed records that a list has ended with a version.
func (s *stream) listed(version string) {
	s.watches.mutex.Lock()
	defer s.watches.mutex.Unlock()
	s.version, s.ended = version, s.watches.clock.Now()
}

// has reports whether the store has the list. A list that is as old as what the store had before does not show in the store's
// version. The caller holds the mutex.
func (s *stream) has() bool {
	if s.before == "" || s.before == s.version {
		return s.watches.clock.Since(s.ended) >= settleTime
	}
	order, err := resourceversion.CompareResourceVersion(s.store.LastStoreSyncResourceVersion(), s.version)
	return err == nil && order >= 0
}

// observed is a watch whose list has an end that its stream records.
type observed struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

// observe returns a watch that records the end of its list. It ends with the one that it observes.
func (s *stream) observe(of watch.Interface) watch.Interface {
	o := &observed{Interface: of, events: make(chan watch.Event), stopped: make(chan struct{})}
	go func() {
		defer close(o.events)
		for event := range of.ResultChan() {
			if object, err := meta.Accessor(event.Object); err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				s.listed(object.GetResourceVersion())
			}
			select {
			case o.events <- event:
			case <-o.stopped:
				return
			}
		}
	}()
	return o
}

// ResultChan implements watch.Interface.
func (o *observed) ResultChan() <-chan watch.Event { return o.events }

// Stop implements watch.Interface.
func (o *observed) Stop() {
	o.stop.Do(func() { close(o.stopped) })
	o.Interface.Stop()
}
