// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record/util"
	objectreference "k8s.io/client-go/tools/reference"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

const (
	// eventShare is the share of the calls to the API server that Events may have,
	// as one in so many. Where many pods are created at a time Events wait, so that
	// pods do not.
	eventShare = 4
	// queuedEvents is how many Events wait at most, for 40 s at the default rate.
	queuedEvents = 2000
	// eventTries is how often an Event is sent that the API server does not answer.
	eventTries = 5
	// eventRetry is the pause before another try.
	eventRetry = 2 * time.Second
)

// eventQueue sends Events one after the other, where client-go's recorder starts
// goroutines for each that last until it is sent. Where too many wait, the oldest
// ones that report nothing wrong are dropped. An Event that repeats itself is sent
// again, and not as a series: what repeats backs off where it is decided.
type eventQueue struct {
	scheme   *runtime.Scheme
	instance string
	send     func(context.Context, *eventsv1.Event) error
	dropped  *prometheus.CounterVec
	// pause waits before another try; it reports whether there is one.
	pause func(context.Context) bool

	// mutex guards what follows.
	mutex   sync.Mutex
	waiting []*eventsv1.Event
	// woken holds one token while Events may wait.
	woken chan struct{}
}

// newEventRecorder returns a recorder that sends Events at a rate of its own
// until the context ends.
func newEventRecorder(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, registerer prometheus.Registerer) (events.EventRecorder, error) {
	slower := rest.CopyConfig(config)
	slower.QPS, slower.Burst = config.QPS/eventShare, max(config.Burst/eventShare, 1)
	api, err := kubernetes.NewForConfig(slower)
	if err != nil {
		return nil, fmt.Errorf("making the client of Events: %w", err)
	}
	send := func(ctx context.Context, event *eventsv1.Event) error {
		_, err := api.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
		return err
	}
	queue, err := newEventQueue(scheme, registerer, send)
	if err != nil {
		return nil, err
	}
	go queue.run(ctx)
	return queue, nil
}

func newEventQueue(scheme *runtime.Scheme, registerer prometheus.Registerer, send func(context.Context, *eventsv1.Event) error) (*eventQueue, error) {
	var set telemetry.Set
	dropped := set.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_events_dropped_total", Unit: "events",
		Help:   "Events that were dropped because too many were queued, by type.",
		Labels: []telemetry.Label{{Name: "type", Values: []string{corev1.EventTypeNormal, corev1.EventTypeWarning}}},
	})
	if err := registerer.Register(&set); err != nil {
		return nil, fmt.Errorf("registering the metric of events: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding out whose events these are: %w", err)
	}
	return &eventQueue{
		scheme: scheme, instance: names.ControllerName + "-" + host, send: send, dropped: dropped,
		pause: func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(eventRetry):
				return true
			}
		},
		woken: make(chan struct{}, 1),
	}, nil
}

// Eventf implements events.EventRecorder.
func (q *eventQueue) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	about, err := objectreference.GetReference(q.scheme, regarding)
	if err != nil {
		ctrl.Log.Error(err, "Event refers to an unknown object", "reason", reason)
		return
	}
	var other *corev1.ObjectReference
	if related != nil {
		// An event without what it is related to says as much.
		other, _ = objectreference.GetReference(q.scheme, related)
	}
	now := time.Now()
	q.add(&eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: util.GenerateEventName(about.Name, now.UnixNano()), Namespace: namespaceOfEvent(about),
		},
		EventTime: metav1.NewMicroTime(now), ReportingController: names.ControllerName, ReportingInstance: q.instance,
		Type: kind, Reason: reason, Action: action, Note: fmt.Sprintf(note, args...), Regarding: *about, Related: other,
	})
}

func namespaceOfEvent(about *corev1.ObjectReference) string {
	if about.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return about.Namespace
}

// add lets an Event wait, and drops one where too many do.
func (q *eventQueue) add(event *eventsv1.Event) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if len(q.waiting) >= queuedEvents {
		i := max(slices.IndexFunc(q.waiting, func(old *eventsv1.Event) bool { return old.Type == corev1.EventTypeNormal }), 0)
		q.dropped.WithLabelValues(q.waiting[i].Type).Inc()
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.waiting = append(q.waiting, event)
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// next takes the oldest Event; nil for none.
func (q *eventQueue) next() *eventsv1.Event {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if len(q.waiting) == 0 {
		return nil
	}
	event := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return event
}

// run sends Events until the context ends.
func (q *eventQueue) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.woken:
		}
		for event := q.next(); event != nil; event = q.next() {
			q.try(ctx, event)
		}
	}
}

// try sends an Event, and again where the API server does not answer.
func (q *eventQueue) try(ctx context.Context, event *eventsv1.Event) {
	for tries := 1; ; tries++ {
		err := q.send(ctx, event)
		status := apierrors.APIStatus(nil)
		switch {
		case err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil:
			return
		case errors.As(err, &status) || tries == eventTries || !q.pause(ctx):
			ctrl.Log.Error(err, "Cannot send event", "event", event.Reason, "namespace", event.Namespace, "note", event.Note)
			return
		}
	}
}
