// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// tokenSeconds is the lifetime of a token: the minimum of the API server.
const tokenSeconds = 600

// Job reads a job. If the job does not exist, the error names the one that may be meant, or those
// that exist.
func (c *Cluster) Job(ctx context.Context, name string) (*v2alpha1.DIJob, error) {
	job := &v2alpha1.DIJob{}
	err := c.Get(ctx, c.Namespace, name, job)
	if !apierrors.IsNotFound(err) {
		return job, err
	}
	jobs, listing := c.Jobs(ctx, c.Namespace, "")
	if listing != nil {
		return nil, err
	}
	missing := &MissingJobError{cause: err, Namespace: c.Namespace}
	for i := range jobs {
		missing.Others = append(missing.Others, jobs[i].Name)
	}
	missing.Near = Nearest(name, missing.Others)
	return nil, missing
}

// MissingJobError says that a job does not exist, and which others do. Near is the one that may be meant.
type MissingJobError struct {
	cause           error
	Namespace, Near string
	Others          []string
}

// Error implements error.
func (e *MissingJobError) Error() string {
	switch {
	case len(e.Others) == 0:
		return fmt.Sprintf("%v\nnamespace %s has no jobs: is another one meant (-n)?", e.cause, e.Namespace)
	case e.Near != "":
		return fmt.Sprintf("%v\ndid you mean %s?", e.cause, e.Near)
	}
	return fmt.Sprintf("%v\nnamespace %s has %s", e.cause, e.Namespace, Some(e.Others))
}

// Unwrap returns the error of the API server.
func (e *MissingJobError) Unwrap() error { return e.cause }

// pageSize is the number of jobs that one call lists.
const pageSize = 500

// Jobs lists the jobs of a namespace, or of all namespaces if it is empty, that match a label selector.
func (c *Cluster) Jobs(ctx context.Context, namespace, selector string) ([]v2alpha1.DIJob, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var jobs []v2alpha1.DIJob
	var page v2alpha1.DIJobList
	for {
		err := c.List(ctx, namespace, &page, client.MatchingLabelsSelector{Selector: parsed}, client.Limit(pageSize), client.Continue(page.Continue))
		jobs = append(jobs, page.Items...)
		if err != nil || page.Continue == "" {
			return jobs, err
		}
	}
}

// ServesKueue reports whether the API server serves Kueue's API. Every user may ask this.
func (c *Cluster) ServesKueue(ctx context.Context) (bool, error) {
	api, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return false, fmt.Errorf("making a client: %w", err)
	}
	err = api.RESTClient().Get().AbsPath("/apis", queueing.GroupName).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, explain("looking for Kueue", err)
}

// Some joins names, and truncates a long list.
func Some(all []string) string {
	const most = 20
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// Pods returns the pods of a job.
func (c *Cluster) Pods(ctx context.Context, job *v2alpha1.DIJob) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	err := c.List(ctx, job.Namespace, &pods, client.MatchingLabels(podLabels(job)))
	var own []*corev1.Pod
	for i := range pods.Items {
		if metav1.IsControlledBy(&pods.Items[i], job) {
			own = append(own, &pods.Items[i])
		}
	}
	return own, err
}

// LocalQueues returns the names of Kueue's queues of the namespace; none in a cluster without Kueue, or without the right to list them.
func (c *Cluster) LocalQueues(ctx context.Context) []string {
	for _, version := range []string{"v1beta2", "v1beta1"} {
		queues := &metav1.PartialObjectMetadataList{}
		queues.SetGroupVersionKind(schema.GroupVersionKind{Group: queueing.GroupName, Version: version, Kind: "LocalQueueList"})
		if err := c.client.List(ctx, queues, client.InNamespace(c.Namespace)); err != nil {
			continue
		}
		names := make([]string, 0, len(queues.Items))
		for i := range queues.Items {
			names = append(names, queues.Items[i].Name)
		}
		return names
	}
	return nil
}

// SeesPods returns an error unless the user may list the pods of a job.
func (c *Cluster) SeesPods(ctx context.Context, job *v2alpha1.DIJob) error {
	return c.List(ctx, job.Namespace, &corev1.PodList{}, client.MatchingLabels(podLabels(job)), client.Limit(1))
}

// podLabels returns the labels of a job's pods.
func podLabels(job *v2alpha1.DIJob) map[string]string {
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return names.JobLabels(job.Name)
	}
	return names.WorkerJobLabels(job.Name)
}

// Membership reads the Membership of a coordinator-led job; nil if it does not exist yet.
func (c *Cluster) Membership(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	list := &v2alpha1.Membership{}
	err := c.Get(ctx, job.Namespace, job.Name, list)
	if apierrors.IsNotFound(err) || err == nil && list.Spec.JobUID != job.UID {
		return nil, nil
	}
	return list, err
}

// Plans returns the ScalePlans of a job, the newest last.
func (c *Cluster) Plans(ctx context.Context, namespace, job string) ([]v2alpha1.ScalePlan, error) {
	var list v2alpha1.ScalePlanList
	err := c.List(ctx, namespace, &list)
	own := slices.DeleteFunc(list.Items, func(plan v2alpha1.ScalePlan) bool { return plan.Spec.Job != job })
	slices.SortFunc(own, func(a, b v2alpha1.ScalePlan) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return own, err
}

// Events returns the events of an object.
func (c *Cluster) Events(ctx context.Context, of client.Object) ([]corev1.Event, error) {
	var list corev1.EventList
	options := eventsOf(of)
	err := c.List(ctx, of.GetNamespace(), &list, &options)
	return list.Items, err
}

func eventsOf(of client.Object) client.ListOptions {
	return client.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(of.GetUID()))}
}

// PodWarnings returns the warnings about the pods of a namespace.
func (c *Cluster) PodWarnings(ctx context.Context, namespace string) ([]corev1.Event, error) {
	var list corev1.EventList
	err := c.List(ctx, namespace, &list, client.MatchingFields{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning})
	return list.Items, err
}

// PodEvents returns the events of the pods of a namespace.
func (c *Cluster) PodEvents(ctx context.Context, namespace string) ([]corev1.Event, error) {
	var list corev1.EventList
	err := c.List(ctx, namespace, &list, client.MatchingFields{"involvedObject.kind": "Pod"})
	return list.Items, err
}

// Logs streams the log of a container.
func (c *Cluster) Logs(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	api, err := corev1client.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	stream, err := api.Pods(c.Namespace).GetLogs(pod, options).Stream(ctx)
	return stream, explain("reading the log of container "+options.Container+" of pod "+c.Namespace+"/"+pod, err)
}

// Token returns a token that identifies the caller to di-server as one of the job's pods: its
// coordinator, or any active pod of a worker-led job. Its audience is di-server alone.
func (c *Cluster) Token(ctx context.Context, job *v2alpha1.DIJob) (string, error) {
	pod, err := c.activePod(ctx, job)
	if err != nil {
		return "", err
	}
	account := cmp.Or(pod.Spec.ServiceAccountName, "default")
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:         []string{names.ServerAudience},
		ExpirationSeconds: ptr.To[int64](tokenSeconds),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: account}}
	err = c.client.SubResource("token").Create(ctx, of, request)
	return request.Status.Token, explain("making a token for di-server, bound to pod "+pod.Name, err)
}

// activePod returns the pod of a job whose identity the token has.
func (c *Cluster) activePod(ctx context.Context, job *v2alpha1.DIJob) (*corev1.Pod, error) {
	var pods []*corev1.Pod
	var err error
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		pods, err = c.Pods(ctx, job)
	} else {
		pods = []*corev1.Pod{{}}
		err = c.Get(ctx, job.Namespace, names.CoordinatorPod(job.Name), pods[0])
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	at := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return podstate.Active(pod) && metav1.IsControlledBy(pod, job) })
	if at < 0 {
		return nil, whyNoPod(job)
	}
	return pods[at], nil
}

// whyNoPod returns why a job has no pod for a token.
func whyNoPod(job *v2alpha1.DIJob) error {
	key := client.ObjectKeyFromObject(job)
	phase := cmp.Or(job.Status.Phase, v2alpha1.JobPending)
	if err := Finished(job); err != nil {
		return err
	}
	switch {
	case ptr.Deref(job.Spec.Suspend, false):
		return fmt.Errorf("job %s is suspended: resume it first", key)
	case job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed:
		return fmt.Errorf("job %s is in phase %s and has no coordinator yet: try again when pod %s exists", key, phase,
			names.CoordinatorPod(job.Name))
	}
	return fmt.Errorf("job %s is in phase %s and has no pods yet: try again when it has", key, phase)
}

// Finished returns an error if a job is terminating or has finished.
func Finished(job *v2alpha1.DIJob) error {
	switch {
	case job.DeletionTimestamp != nil:
		return fmt.Errorf("job %s/%s is being deleted", job.Namespace, job.Name)
	case replicas.IsFinished(job):
		return fmt.Errorf("job %s/%s has finished: %s", job.Namespace, job.Name, job.Status.Phase)
	}
	return nil
}
