// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Change is an object that came, changed or went, or, without an object, a
// change of the watching itself.
type Change struct {
	Object client.Object
	Gone   bool
	// Complete says that all objects of the first list have been sent.
	Complete bool
	// Broken says why the watch failed. It is retried.
	Broken error
	// Mended says that it is watched again.
	Mended bool
}

// Watched says which objects are watched.
type Watched struct {
	purpose   string
	object    client.Object
	list      client.ObjectList
	group     string
	resource  string
	namespace string
	options   client.ListOptions
}

// WatchJob returns that a job is watched.
func WatchJob(namespace, name string) Watched {
	return Watched{
		purpose: "watching job " + namespace + "/" + name, object: &v2alpha1.DIJob{}, list: &v2alpha1.DIJobList{},
		group: v2alpha1.GroupName, resource: "dijobs", namespace: namespace, options: named(name),
	}
}

// WatchMembership returns that a coordinator-led job's list of replicas is watched.
func WatchMembership(job *v2alpha1.DIJob) Watched {
	return Watched{
		purpose: "watching the Membership of job " + job.Namespace + "/" + job.Name, object: &v2alpha1.Membership{}, list: &v2alpha1.MembershipList{},
		group: v2alpha1.GroupName, resource: "memberships", namespace: job.Namespace, options: named(job.Name),
	}
}

// WatchPods returns that a job's pods are watched.
func WatchPods(job *v2alpha1.DIJob) Watched {
	return Watched{
		purpose: "watching the pods of job " + job.Namespace + "/" + job.Name, object: &corev1.Pod{}, list: &corev1.PodList{},
		resource: "pods", namespace: job.Namespace, options: client.ListOptions{LabelSelector: labels.SelectorFromSet(podsOf(job))},
	}
}

// WatchEvents returns that a namespace's events are watched.
func WatchEvents(namespace string) Watched {
	return Watched{
		purpose: "watching the events of namespace " + namespace, object: &corev1.Event{}, list: &corev1.EventList{},
		resource: "events", namespace: namespace,
	}
}

// WatchEventsOf returns that the events of one object are watched.
func WatchEventsOf(of client.Object) Watched {
	watched := WatchEvents(of.GetNamespace())
	watched.purpose, watched.options = "watching the events of "+of.GetNamespace()+"/"+of.GetName(), eventsOf(of)
	return watched
}

func named(name string) client.ListOptions {
	return client.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
}

// podsOf returns the labels of a job's pods.
func podsOf(job *v2alpha1.DIJob) map[string]string {
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return names.JobLabels(job.Name)
	}
	return names.WorkerJobLabels(job.Name)
}

// Observe sends the objects that exist, and then each change, until the context ends
// or the user turns out to lack a right. It reconnects. Calls of tell do not overlap.
func (c *Cluster) Observe(ctx context.Context, watched Watched, tell func(Change)) error {
	// What goes wrong between is told, and would be written over a view.
	ctx, stop := context.WithCancelCause(klog.NewContext(ctx, klog.Logger{}))
	defer stop(nil)
	var one sync.Mutex
	told := func(change Change) {
		one.Lock()
		defer one.Unlock()
		tell(change)
	}
	informer := cache.NewSharedIndexInformer(watched.source(c.client, &link{tell: told}), watched.object, 0, nil)
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if isLasting(err) {
			stop(watched.denied(err))
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", watched.purpose, err)
	}
	// No command shows who owns which field.
	if err := informer.SetTransform(ctrlcache.TransformStripManagedFields()); err != nil {
		return fmt.Errorf("%s: %w", watched.purpose, err)
	}
	registered, err := informer.AddEventHandler(teller(told))
	if err != nil {
		return fmt.Errorf("%s: %w", watched.purpose, err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { informer.RunWithContext(ctx) })
	select {
	case <-registered.HasSyncedChecker().Done():
		told(Change{Complete: true})
	case <-ctx.Done():
	}
	ended.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// isLasting reports whether an error stays when it is tried again.
func isLasting(err error) bool {
	return IsDenied(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err)
}

// link tells that the API server cannot be watched, and that it is watched
// again, each once.
type link struct {
	tell   func(Change)
	mutex  sync.Mutex
	broken bool
}

// heed looks at how a call went, and returns the error for who called.
func (l *link) heed(ctx context.Context, err error) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case ctx.Err() != nil || isLasting(err):
		return err
	case err == nil:
		if l.broken {
			l.broken = false
			l.tell(Change{Mended: true})
		}
		return nil
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		// The reflector goes another way then.
		return err
	}
	if !l.broken {
		l.broken = true
		l.tell(Change{Broken: err})
	}
	// Some errors, known by what they wrap, the reflector waits out even though the
	// context has ended.
	return errors.New(err.Error())
}

func teller(tell func(Change)) cache.ResourceEventHandler {
	told := func(object any, gone bool) {
		if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
			object = unknown.Obj
		}
		if known, is := object.(client.Object); is {
			tell(Change{Object: known, Gone: gone})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { told(object, false) },
		UpdateFunc: func(_, object any) { told(object, false) },
		DeleteFunc: func(object any) { told(object, true) },
	}
}

func (w *Watched) source(api client.WithWatch, link *link) cache.ListerWatcher {
	options := func(raw *metav1.ListOptions) *client.ListOptions {
		asked := w.options
		asked.Namespace, asked.Limit, asked.Continue, asked.Raw = w.namespace, raw.Limit, raw.Continue, raw
		return &asked
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list, is := w.list.DeepCopyObject().(client.ObjectList)
			if !is {
				return nil, fmt.Errorf("%T is no list", w.list)
			}
			return list, link.heed(ctx, api.List(ctx, list, options(&raw)))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			watching, err := api.Watch(ctx, w.list, options(&raw))
			return watching, link.heed(ctx, err)
		},
	}
}

// denied says which role allows to watch.
func (w *Watched) denied(err error) error {
	need := Right{Verb: "list,watch", Group: w.group, Resource: w.resource, Namespace: w.namespace}
	return need.Denied(w.purpose, err)
}

// JobOrWhich reads a job; where there is none, it says which there are.
func (c *Cluster) JobOrWhich(ctx context.Context, name string) (*v2alpha1.DIJob, error) {
	job, err := c.Job(ctx, name)
	if err == nil || !IsGone(err) {
		return job, err
	}
	there, listing := c.JobNames(ctx)
	switch {
	case listing != nil:
		return nil, err
	case len(there) == 0:
		return nil, fmt.Errorf("%w\nnamespace %s has no jobs: is another one meant (-n)?", err, c.Namespace)
	}
	return nil, fmt.Errorf("%w\nnamespace %s has %s", err, c.Namespace, Some(there))
}

// Some lists names, not all where there are many.
func Some(all []string) string {
	const most = 20
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// Pod reads a pod.
func (c *Cluster) Pod(ctx context.Context, name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &pod); err != nil {
		need := Right{Verb: "get", Resource: "pods", Namespace: c.Namespace}
		return nil, need.Denied("reading pod "+c.Namespace+"/"+name, err)
	}
	return &pod, nil
}

// Logs opens the log of a container.
func (c *Cluster) Logs(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	config := rest.CopyConfig(c.config)
	// A job has many pods; the API server paces those who ask.
	config.QPS = -1
	api, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	stream, err := api.Pods(c.Namespace).GetLogs(pod, options).Stream(ctx)
	if err != nil {
		need := Right{Verb: "get", Resource: "pods", Subresource: "log", Namespace: c.Namespace}
		return nil, need.Denied("reading the log of container "+options.Container+" of pod "+c.Namespace+"/"+pod, err)
	}
	return stream, nil
}

// IsDenied reports whether an error says that the user lacks a right.
func IsDenied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// Kind is the resource that is watched.
func (w *Watched) Kind() string { return w.resource }
