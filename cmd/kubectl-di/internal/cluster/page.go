// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/podmetrics"
)

// In returns the same connection for another namespace.
func (c *Cluster) In(namespace string) *Cluster {
	copied := *c
	copied.Namespace = namespace
	return &copied
}

// User returns the name that the API server knows the user by.
func (c *Cluster) User(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	err := c.client.Create(ctx, review)
	return review.Status.UserInfo.Username, explain("asking who the user is", err)
}

// Version returns the version of Kubernetes.
func (c *Cluster) Version() (string, error) {
	api, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return "", err
	}
	version, err := api.ServerVersion()
	if err != nil {
		return "", explain("asking for the version of Kubernetes", err)
	}
	return version.GitVersion, nil
}

// May reports whether the user may do something.
func (c *Cluster) May(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	err := c.client.Create(ctx, review)
	return review.Status.Allowed, explain("asking what the user may do", err)
}

// Manifest reads a job in a version, without its managed fields.
func (c *Cluster) Manifest(ctx context.Context, version, name string) (*unstructured.Unstructured, error) {
	job := &unstructured.Unstructured{}
	job.SetAPIVersion(v2alpha1.GroupName + "/" + version)
	job.SetKind("DIJob")
	err := c.Get(ctx, c.Namespace, name, job)
	job.SetManagedFields(nil)
	return job, err
}

// Delete deletes exactly this object. A dry run deletes nothing.
func (c *Cluster) Delete(ctx context.Context, object client.Object, dryRun bool) error {
	uid := object.GetUID()
	options := []client.DeleteOption{client.Preconditions{UID: &uid}, client.PropagationPolicy("Background")}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	return explain("deleting "+c.kind(object)+" "+object.GetNamespace()+"/"+object.GetName(), c.client.Delete(ctx, object, options...))
}

// NodeUsage returns what nodes use, by their names. Without a metrics API the error is podmetrics.ErrAbsent.
func (c *Cluster) NodeUsage(ctx context.Context) (map[string]podmetrics.Used, error) {
	used, err := podmetrics.ListNodes(ctx, c.client)
	return used, explain("reading what nodes use", err)
}

// Reduce returns the part of an object that a watch is for.
type Reduce func(client.Object) client.Object

// Reduced returns the same watch, whose changes have what reduce returns of an object.
func (w Watched) Reduced(reduce Reduce) Watched {
	w.reduce = reduce
	return w
}

// Early returns the same watch, which sends the objects of the first list as they arrive, and again once it has all. A list of
// thousands then shows its first objects long before its last.
func (w Watched) Early() Watched {
	w.early = true
	return w
}

// WatchJobs watches the jobs of a namespace, or of all.
func WatchJobs(namespace string) Watched {
	return watchAll(namespace, "jobs", &v2alpha1.DIJob{}, &v2alpha1.DIJobList{})
}

// WatchPlans watches the ScalePlans of a namespace, or of all.
func WatchPlans(namespace string) Watched {
	return watchAll(namespace, "ScalePlans", &v2alpha1.ScalePlan{}, &v2alpha1.ScalePlanList{})
}

// WatchNodes watches the nodes.
func WatchNodes() Watched { return watchAll("", "nodes", &corev1.Node{}, &corev1.NodeList{}) }

// WatchAllPods watches the pods of a namespace, or of all.
func WatchAllPods(namespace string) Watched {
	return watchAll(namespace, "pods", &corev1.Pod{}, &corev1.PodList{})
}

func watchAll(namespace, what string, object client.Object, list client.ObjectList) Watched {
	return Watched{Object: object, purpose: "watching " + what, list: list, options: client.ListOptions{Namespace: namespace}}
}
