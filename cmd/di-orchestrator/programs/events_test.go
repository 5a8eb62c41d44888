// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

func newTestQueue(t *testing.T, send func(context.Context, *eventsv1.Event) error) *eventQueue {
	t.Helper()
	queue, err := newEventQueue(clientgoscheme.Scheme, prometheus.NewRegistry(), send)
	if err != nil {
		t.Fatal(err)
	}
	queue.pause = func(context.Context) bool { return true }
	return queue
}

func TestOnlySoManyEventsWaitAndWarningsLongest(t *testing.T) {
	t.Parallel()
	queue := newTestQueue(t, nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "pod"}}
	queue.Eventf(pod, nil, corev1.EventTypeWarning, "First", "Sync", "first")
	for i := range 10 * queuedEvents {
		queue.Eventf(pod, pod, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "pod %d", i)
	}
	if got := len(queue.waiting); got != queuedEvents {
		t.Errorf("%d events wait, want %d", got, queuedEvents)
	}
	if got := testutil.ToFloat64(queue.dropped.WithLabelValues(corev1.EventTypeNormal)); got != 9*queuedEvents+1 {
		t.Errorf("%v events were dropped, want %d", got, 9*queuedEvents+1)
	}
	if first, second := queue.next(), queue.next(); first.Reason != "First" || second.Note != "pod "+strconv.Itoa(9*queuedEvents+1) {
		t.Errorf("the first events are %s and %s", first.Note, second.Note)
	}
}

func TestAnEventThatIsNotAnsweredIsSentAgainAndThenGivenUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var sent []string
	queue := newTestQueue(t, func(_ context.Context, event *eventsv1.Event) error {
		sent = append(sent, event.Note)
		if event.Note == "last" {
			cancel()
			return nil
		}
		return errors.New("no answer")
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "pod"}}
	queue.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Sync", "unanswered")
	queue.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Sync", "last")
	queue.run(ctx)
	if len(sent) != eventTries+1 || sent[eventTries] != "last" {
		t.Errorf("sent are %v", sent)
	}
}
