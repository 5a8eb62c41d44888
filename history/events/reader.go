// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/history/record"
	recorder "opendilab.org/di-orchestrator/history/watch"
	"opendilab.org/di-orchestrator/internal/scope"
)

// maxWaiting bounds the Events that wait to be recorded. Later ones are dropped meanwhile.
const maxWaiting = 10_000

// selectors are the watches: what the API server sends of all Events.
func selectors() []string {
	return []string{"involvedObject.kind=" + controllers.JobKind, "involvedObject.kind=Pod,type=" + corev1.EventTypeWarning}
}

// Reader watches Events.
type Reader struct {
	API corev1client.EventsGetter
	// Cache has the pods.
	Cache      cache.Cache
	Namespaces scope.Namespaces
	Log        logr.Logger

	mutex sync.Mutex
	// noted is what was seen and is not taken yet, and waiting counts its Events.
	noted   map[types.NamespacedName]recorder.Noted
	waiting int
}

// NeedLeaderElection restricts it to the leader.
func (*Reader) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It runs until the context ends.
func (r *Reader) Start(ctx context.Context) error {
	if !r.Cache.WaitForCacheSync(ctx) {
		return nil
	}
	namespaces := r.Namespaces.Names()
	if r.Namespaces.IsAll() {
		namespaces = []string{metav1.NamespaceAll}
	}
	var group sync.WaitGroup
	for _, namespace := range namespaces {
		for _, selector := range selectors() {
			group.Go(func() { r.follow(ctx, namespace, selector) })
		}
	}
	group.Wait()
	return nil
}

// follow lists and watches Events until the context ends. It keeps none of them.
func (r *Reader) follow(ctx context.Context, namespace, selector string) {
	selected := func(options *metav1.ListOptions) { options.FieldSelector = selector }
	from := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			selected(&options)
			return r.API.Events(namespace).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			selected(&options)
			return r.API.Events(namespace).Watch(ctx, options)
		},
	}
	toolscache.NewReflectorWithOptions(from, &corev1.Event{}, &sink{ctx, r}, toolscache.ReflectorOptions{Name: "events " + selector, Logger: &r.Log}).RunWithContext(ctx)
}

// sink is the store of a reflector, which keeps nothing.
type sink struct {
	ctx    context.Context //nolint:containedctx // a store of a reflector gets none
	reader *Reader
}

func (s *sink) Add(object any) error {
	event, isEvent := object.(*corev1.Event)
	if !isEvent {
		return fmt.Errorf("%T is no Event", object)
	}
	return s.reader.note(s.ctx, event)
}

func (s *sink) Update(object any) error { return s.Add(object) }
func (*sink) Delete(any) error          { return nil }
func (*sink) Resync() error             { return nil }

func (s *sink) Replace(objects []any, _ string) error {
	for _, object := range objects {
		if err := s.Add(object); err != nil {
			return err
		}
	}
	return nil
}

// note notes an Event of a job or of its pod.
func (r *Reader) note(ctx context.Context, event *corev1.Event) error {
	of := &event.InvolvedObject
	key := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
	if of.Kind == controllers.JobKind {
		if strings.HasPrefix(of.APIVersion, v2alpha1.GroupName+"/") {
			r.add(key, of.UID, event)
		}
		return nil
	}
	pod, err := controllers.Find(ctx, r.Cache, key, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("reading pod %s of an Event: %w", key, err)
	}
	if pod == nil || pod.UID != of.UID {
		return nil
	}
	for i, uid := range controllers.OwnerUID(pod) {
		r.add(types.NamespacedName{Namespace: pod.Namespace, Name: controllers.OwnerName(pod)[i]}, types.UID(uid), event)
	}
	return nil
}

func (r *Reader) add(job types.NamespacedName, uid types.UID, event *corev1.Event) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.noted == nil {
		r.noted = map[types.NamespacedName]recorder.Noted{}
	}
	known := r.noted[job]
	if known.Job != uid {
		r.waiting -= len(known.Events)
		known = recorder.Noted{Job: uid}
	}
	if r.waiting < maxWaiting {
		known.Events = append(known.Events, eventOf(event))
		r.waiting++
		r.noted[job] = known
	}
}

// eventOf returns what is remembered of an Event, of either API of Events.
func eventOf(event *corev1.Event) record.Event {
	of := record.Event{
		UID: string(event.UID), Object: event.InvolvedObject.Kind + "/" + event.InvolvedObject.Name, Type: event.Type,
		Reason: event.Reason, Message: event.Message, Count: max(event.Count, 1),
	}
	of.First = firstSet(event.EventTime.Time, event.FirstTimestamp.Time, event.CreationTimestamp.Time)
	last := event.LastTimestamp.Time
	if series := event.Series; series != nil {
		of.Count, last = max(of.Count, series.Count), series.LastObservedTime.Time
	}
	of.Last = firstSet(last, of.First)
	return of
}

func firstSet(times ...time.Time) time.Time {
	for _, at := range times {
		if !at.IsZero() {
			return at.UTC()
		}
	}
	return time.Time{}
}

// Take returns the Events since the last call, by job.
func (r *Reader) Take() map[types.NamespacedName]recorder.Noted {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	taken := r.noted
	r.noted, r.waiting = nil, 0
	return taken
}
