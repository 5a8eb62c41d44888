// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

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
	// eventShare is the divisor of the rate limit for calls to the API server that gives the rate
	// limit for Events. When many pods are created at a time, Events wait and pods do not.
	eventShare = 4
	// queuedEvents is the maximum number of queued Events: 40 s at the default rate.
	queuedEvents = 2000
	// eventTries is the maximum number of attempts to send an Event when the API server does not
	// answer.
	eventTries = 5
	// eventRetry is the delay before the next attempt.
	eventRetry = 2 * time.Second
)

// eventQueue sends Events one after the other, while client-go's recorder starts a goroutine for
// each Event that lives until it is sent. When the queue is full, it drops the oldest Events of
// type Normal first. A repeated Event is sent again and not as a series, because its cause already
// backs off.
type eventQueue struct {
	scheme   *runtime.Scheme
	instance string
	send     func(context.Context, *eventsv1.Event) error
	dropped  *prometheus.CounterVec
	// pause waits before the next attempt; it reports whether there is one.
	pause func(context.Context) bool

	// mutex guards the fields below.
	mutex   sync.Mutex
	waiting []*eventsv1.Event
	// woken contains one token while Events may be queued.
	woken chan struct{}
}

// newEventRecorder returns a recorder that sends Events at its own rate limit until the context
// ends.
func newEventRecorder(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, registerer prometheus.Registerer) (events.EventRecorder, error) {
	shared := withShareOfPace(config, eventShare)
	// JSON, the default, costs the API server more.
	shared.ContentType, shared.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	api, err := kubernetes.NewForConfig(shared)
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
		// The related object is optional: without it the Event is still complete.
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

// add queues an Event, and drops one if the queue is full.
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

// next removes and returns the oldest Event; nil if there is none.
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

// try sends an Event, and retries while the API server does not answer.
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
