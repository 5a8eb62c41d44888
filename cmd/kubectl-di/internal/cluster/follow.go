// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// FollowJob shows a job as it is, and each time that it changed, until it is
// told that this is enough. A job that is gone is an error. It reports that
// the connection broke, and continues.
func (c *Cluster) FollowJob(ctx context.Context, namespace, name string, say func(string), seen func(*v2alpha1.DIJob) (bool, error)) error {
	there := false
	return c.follow(ctx, WatchJob(namespace, name), say, func(change Change) (bool, error) {
		job, isJob := change.Object.(*v2alpha1.DIJob)
		switch {
		case isJob && !change.Gone:
			there = true
			return seen(job)
		case isJob || change.Complete && !there:
			return false, fmt.Errorf("job %s/%s is gone: it was deleted", namespace, name)
		}
		return false, nil
	})
}

// FollowEvents shows the events of an object until the context ends.
func (c *Cluster) FollowEvents(ctx context.Context, of client.Object, say func(string), seen func(*corev1.Event)) error {
	return c.follow(ctx, WatchEventsOf(of), say, func(change Change) (bool, error) {
		if event, isEvent := change.Object.(*corev1.Event); isEvent && !change.Gone {
			seen(event)
		}
		return false, nil
	})
}

// follow observes until it is told that this is enough or the context ends,
// which is an error then.
func (c *Cluster) follow(ctx context.Context, watched Watched, say func(string), tell func(Change) (bool, error)) error {
	observing, stop := context.WithCancel(ctx)
	defer stop()
	isEnough := false
	var failed error
	err := c.Observe(observing, watched, func(change Change) {
		if isEnough {
			return
		}
		if change.Broken != nil {
			say(fmt.Sprintf("kubectl-di: %s: %v; trying again", watched.purpose, change.Broken))
		}
		if isEnough, failed = tell(change); failed != nil {
			isEnough = true
		}
		if isEnough {
			stop()
		}
	})
	if isEnough {
		return failed
	}
	return errors.Join(err, ctx.Err())
}

// Events returns the events of an object.
func (c *Cluster) Events(ctx context.Context, of client.Object) ([]corev1.Event, error) {
	var list corev1.EventList
	options := eventsOf(of)
	if err := c.client.List(ctx, &list, &options); err != nil {
		need := Right{Verb: "list", Resource: "events", Namespace: of.GetNamespace()}
		return nil, need.Denied("listing the events of "+of.GetNamespace()+"/"+of.GetName(), err)
	}
	return list.Items, nil
}

func eventsOf(of client.Object) client.ListOptions {
	return client.ListOptions{
		Namespace:     of.GetNamespace(),
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(of.GetUID())),
	}
}

// PodWarnings returns the warnings about the pods of a namespace.
func (c *Cluster) PodWarnings(ctx context.Context, namespace string) ([]corev1.Event, error) {
	var list corev1.EventList
	options := client.ListOptions{
		Namespace:     namespace,
		FieldSelector: fields.SelectorFromSet(fields.Set{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning}),
	}
	if err := c.client.List(ctx, &list, &options); err != nil {
		need := Right{Verb: "list", Resource: "events", Namespace: namespace}
		return nil, need.Denied("listing the events of namespace "+namespace, err)
	}
	return list.Items, nil
}
