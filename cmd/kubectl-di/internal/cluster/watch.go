// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Change is a change of an object or, without an object, of the watch itself.
type Change struct {
	Object client.Object
	Gone   bool
	// Complete reports that all objects of the first list have been sent.
	Complete bool
	// Broken is the reason why the watch failed. It is retried.
	Broken error
	// Restored reports that the watch works again.
	Restored bool
}

// Watched describes the objects of a watch.
type Watched struct {
	Object  client.Object
	purpose string
	list    client.ObjectList
	options client.ListOptions
	// reduce replaces an object by what the watch keeps of it; nil to keep all but managed fields.
	reduce func(client.Object) client.Object
	// early sends the objects of the first list as they arrive, too.
	early bool
}

// WatchJob watches a job.
func WatchJob(namespace, name string) Watched {
	return Watched{
		Object: &v2alpha1.DIJob{}, purpose: "watching job " + namespace + "/" + name, list: &v2alpha1.DIJobList{}, options: named(namespace, name),
	}
}

// WatchMembership watches the Membership of a coordinator-led job.
func WatchMembership(job *v2alpha1.DIJob) Watched {
	return Watched{
		Object: &v2alpha1.Membership{}, purpose: "watching the Membership of job " + job.Namespace + "/" + job.Name, list: &v2alpha1.MembershipList{},
		options: named(job.Namespace, job.Name),
	}
}

// WatchPods watches the pods of a job.
func WatchPods(job *v2alpha1.DIJob) Watched {
	return Watched{
		Object: &corev1.Pod{}, purpose: "watching the pods of job " + job.Namespace + "/" + job.Name, list: &corev1.PodList{},
		options: client.ListOptions{Namespace: job.Namespace, LabelSelector: labels.SelectorFromSet(podLabels(job))},
	}
}

// WatchEvents watches the events of a namespace.
func WatchEvents(namespace string) Watched {
	return watchAll(namespace, "the events of namespace "+namespace, &corev1.Event{}, &corev1.EventList{})
}

func named(namespace, name string) client.ListOptions {
	return client.ListOptions{Namespace: namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

type (
	// Report tells the user of a problem that is retried.
	Report func(problem string)
	// Handle takes a change.
	Handle func(Change)
	// Step takes a change, and reports whether it was the last one.
	Step func(Change) (isLast bool, err error)
	// JobSeen takes a job, and reports whether it was the last state to see.
	JobSeen func(*v2alpha1.DIJob) (isLast bool, err error)
	// PodsSeen takes the number of pods, and reports whether it was the last to see.
	PodsSeen func(left int) (isLast bool)
	// EventSeen takes an Event.
	EventSeen func(*corev1.Event)
)

// FollowJob passes a job to seen now and after each change, until seen returns true. A deleted job
// is an error. It reports a broken connection, and retries.
func (c *Cluster) FollowJob(ctx context.Context, of client.Object, report Report, seen JobSeen) error {
	namespace, name, exists := of.GetNamespace(), of.GetName(), false
	return c.follow(ctx, WatchJob(namespace, name), report, func(change Change) (bool, error) {
		job, isJob := change.Object.(*v2alpha1.DIJob)
		switch {
		case isJob && job.UID != of.GetUID():
			return false, fmt.Errorf("job %s/%s is gone: another has its name now", namespace, name)
		case isJob && !change.Gone:
			exists = true
			return seen(job)
		case isJob || change.Complete && !exists:
			return false, fmt.Errorf("job %s/%s is gone: it was deleted", namespace, name)
		}
		return false, nil
	})
}

// FollowGone returns when a job is gone, also if another has its name by then.
func (c *Cluster) FollowGone(ctx context.Context, job *v2alpha1.DIJob, report Report) error {
	exists := false
	return c.follow(ctx, WatchJob(job.Namespace, job.Name), report, func(change Change) (bool, error) {
		if change.Object != nil && change.Object.GetUID() == job.UID {
			exists = !change.Gone
			return change.Gone, nil
		}
		return change.Complete && !exists, nil
	})
}

// FollowPods passes the number of a job's pods to seen now and after each change, until seen returns
// true.
func (c *Cluster) FollowPods(ctx context.Context, job *v2alpha1.DIJob, report Report, seen PodsSeen) error {
	existing, isComplete := map[types.UID]bool{}, false
	return c.follow(ctx, WatchPods(job), report, func(change Change) (bool, error) {
		isComplete = isComplete || change.Complete
		if pod := change.Object; pod != nil && metav1.IsControlledBy(pod, job) {
			existing[pod.GetUID()] = true
			if change.Gone {
				delete(existing, pod.GetUID())
			}
		}
		return isComplete && seen(len(existing)), nil
	})
}

// FollowEvents passes the Events of an object to seen until the context ends.
func (c *Cluster) FollowEvents(ctx context.Context, of client.Object, report Report, seen EventSeen) error {
	watched := WatchEvents(of.GetNamespace())
	watched.purpose, watched.options = "watching the events of "+of.GetNamespace()+"/"+of.GetName(), eventsOf(of)
	watched.options.Namespace = of.GetNamespace()
	return c.follow(ctx, watched, report, func(change Change) (bool, error) {
		if event, isEvent := change.Object.(*corev1.Event); isEvent && !change.Gone {
			seen(event)
		}
		return false, nil
	})
}

// follow observes until a step is the last one or fails. The end of the context is also an error.
func (c *Cluster) follow(ctx context.Context, watched Watched, report Report, step Step) error {
	observing, stop := context.WithCancel(ctx)
	defer stop()
	done := false
	var failed error
	err := c.Observe(observing, watched, func(change Change) {
		if done {
			return
		}
		if change.Broken != nil {
			report(fmt.Sprintf("kubectl-di: %s: %v; trying again", watched.purpose, change.Broken))
		}
		if done, failed = step(change); done || failed != nil {
			done = true
			stop()
		}
	})
	if done {
		return failed
	}
	return errors.Join(err, ctx.Err())
}

// Observe sends the objects that exist, and then each change, until the context ends or a right is
// denied. It reconnects. Calls of handle do not overlap.
func (c *Cluster) Observe(ctx context.Context, watched Watched, handle Handle) error {
	// The library's logs would be written over a view.
	ctx, stop := context.WithCancelCause(klog.NewContext(ctx, klog.Logger{}))
	defer stop(nil)
	var one sync.Mutex
	send := func(change Change) {
		one.Lock()
		defer one.Unlock()
		handle(change)
	}
	first := &arrivals{send: send, over: !watched.early, sent: map[string]client.Object{}}
	informer := cache.NewSharedIndexInformer(watched.source(c.client, &link{send: send}, first), watched.Object, 0, nil)
	registered, err := informer.AddEventHandler(handler(send))
	err = errors.Join(err,
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if isLasting(err) {
				stop(explain(watched.purpose, err, "list", "watch"))
			}
		}),
		// No command prints managed fields.
		informer.SetTransform(watched.transform(first)))
	if err != nil {
		return fmt.Errorf("%s: %w", watched.purpose, err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { informer.RunWithContext(ctx) })
	select {
	case <-registered.HasSyncedChecker().Done():
		first.withdraw(informer.GetStore())
		send(Change{Complete: true})
	case <-ctx.Done():
	}
	ended.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// transform returns what the informer does to objects before it keeps them. It sees those of the first list as they arrive.
func (w *Watched) transform(first *arrivals) cache.TransformFunc {
	strip := ctrlcache.TransformStripManagedFields()
	return func(object any) (_ any, err error) {
		if known, is := object.(client.Object); is && w.reduce != nil {
			object = w.reduce(known)
		} else {
			object, err = strip(object)
		}
		if known, is := object.(client.Object); is {
			first.arrive(known)
		}
		return object, err
	}
}

// isLasting reports whether a retry would fail for the same reason.
func isLasting(err error) bool {
	return IsDenied(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err)
}

// link reports once that the connection is broken, and once that it is restored.
type link struct {
	send   func(Change)
	mutex  sync.Mutex
	broken bool
}

// check records the result of a call, and returns the error for the reflector.
func (l *link) check(ctx context.Context, err error) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case ctx.Err() != nil || isLasting(err):
		return err
	case err == nil:
		if l.broken {
			l.broken = false
			l.send(Change{Restored: true})
		}
		return nil
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		// The error makes the reflector list again.
		return err
	}
	if !l.broken {
		l.broken = true
		l.send(Change{Broken: err})
	}
	// The reflector retries some wrapped errors even if the context has ended. A new error hides
	// them.
	return errors.New(err.Error())
}

func handler(send Handle) cache.ResourceEventHandler {
	forward := func(object any, gone bool) {
		if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
			object = unknown.Obj
		}
		if known, is := object.(client.Object); is {
			send(Change{Object: known, Gone: gone})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { forward(object, false) },
		UpdateFunc: func(_, object any) { forward(object, false) },
		DeleteFunc: func(object any) { forward(object, true) },
	}
}

func (w *Watched) source(api client.WithWatch, link *link, first *arrivals) cache.ListerWatcher {
	options := func(raw *metav1.ListOptions) *client.ListOptions {
		asked := w.options
		if raw.ResourceVersion == "0" {
			// The API server may answer this from a stale cache, which lacks what was just created.
			raw.ResourceVersion = ""
		}
		asked.Limit, asked.Continue, asked.Raw = raw.Limit, raw.Continue, raw
		return &asked
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list, is := w.list.DeepCopyObject().(client.ObjectList)
			if !is {
				return nil, fmt.Errorf("%T is no list", w.list)
			}
			first.end()
			return list, link.check(ctx, api.List(ctx, list, options(&raw)))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			watching, err := api.Watch(ctx, w.list, options(&raw))
			if err == nil && w.early {
				watching = watch.Filter(watching, first.pass)
			}
			return watching, link.check(ctx, err)
		},
	}
}
