// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// tokenSeconds is for how long a token is valid: the least that the API server
// gives.
const tokenSeconds = 600

// Job reads a job.
func (c *Cluster) Job(ctx context.Context, name string) (*v2alpha1.DIJob, error) {
	var job v2alpha1.DIJob
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &job); err != nil {
		need := Right{Verb: "get", Group: v2alpha1.GroupName, Resource: "dijobs", Namespace: c.Namespace}
		return nil, need.Denied("reading job "+c.Namespace+"/"+name, err)
	}
	return &job, nil
}

// JobNames returns the names of the jobs of the namespace.
func (c *Cluster) JobNames(ctx context.Context) ([]string, error) {
	var jobs v2alpha1.DIJobList
	if err := c.client.List(ctx, &jobs, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("listing jobs: %w", err)
	}
	found := make([]string, 0, len(jobs.Items))
	for i := range jobs.Items {
		found = append(found, jobs.Items[i].Name)
	}
	return found, nil
}

// ReplicaNames returns the names of the pods of a coordinator-led job that can
// be replaced.
func (c *Cluster) ReplicaNames(ctx context.Context, job string) ([]string, error) {
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(c.Namespace), client.MatchingLabels(names.JobLabels(job))); err != nil {
		return nil, fmt.Errorf("listing the pods of job %s/%s: %w", c.Namespace, job, err)
	}
	var found []string
	for i := range pods.Items {
		if pods.Items[i].Labels[names.LabelReplicaType] != string(names.ReplicaTypeCoordinator) {
			found = append(found, pods.Items[i].Name)
		}
	}
	return found, nil
}

// Token returns a token that tells di-server that the caller is one of the
// job's pods: its coordinator, or of a worker-led job any that lives. It is of
// use for nothing else, and soon for nothing at all.
func (c *Cluster) Token(ctx context.Context, job *v2alpha1.DIJob) (string, error) {
	pod, err := c.livePod(ctx, job)
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
	if err := c.client.SubResource("token").Create(ctx, of, request); err != nil {
		need := Right{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: pod.Namespace, Name: account}
		return "", need.Denied("making a token for di-server, bound to pod "+pod.Name, err)
	}
	return request.Status.Token, nil
}

// livePod returns the pod of a job in whose name di-server is called.
func (c *Cluster) livePod(ctx context.Context, job *v2alpha1.DIJob) (*corev1.Pod, error) {
	pods, err := c.callers(ctx, job)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return !podstate.Active(&pod) || !metav1.IsControlledBy(&pod, job)
	})
	if len(pods) == 0 {
		return nil, whyNoPod(job)
	}
	return &pods[0], nil
}

// callers returns the pods that may call for a job.
func (c *Cluster) callers(ctx context.Context, job *v2alpha1.DIJob) ([]corev1.Pod, error) {
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		var pods corev1.PodList
		err := c.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels(names.WorkerJobLabels(job.Name)))
		if err != nil {
			need := Right{Verb: "list", Resource: "pods", Namespace: job.Namespace}
			return nil, need.Denied("listing the pods of job "+job.Namespace+"/"+job.Name, err)
		}
		return pods.Items, nil
	}
	var pod corev1.Pod
	key := client.ObjectKey{Namespace: job.Namespace, Name: names.CoordinatorPod(job.Name)}
	err := c.client.Get(ctx, key, &pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		need := Right{Verb: "get", Resource: "pods", Namespace: job.Namespace}
		return nil, need.Denied("reading pod "+key.String(), err)
	}
	return []corev1.Pod{pod}, nil
}

// whyNoPod says why a job has no pod that could call for it.
func whyNoPod(job *v2alpha1.DIJob) error {
	key := client.ObjectKeyFromObject(job)
	phase := cmp.Or(job.Status.Phase, v2alpha1.JobPending)
	switch {
	case job.DeletionTimestamp != nil:
		return fmt.Errorf("job %s is being deleted", key)
	case phase == v2alpha1.JobSucceeded || phase == v2alpha1.JobFailed:
		return fmt.Errorf("job %s has finished: %s", key, phase)
	case ptr.Deref(job.Spec.Suspend, false):
		return fmt.Errorf("job %s is suspended: resume it first", key)
	case job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed:
		return fmt.Errorf("job %s is in phase %s and has no coordinator yet that could be given replicas: try again when pod %s is there",
			key, phase, names.CoordinatorPod(job.Name))
	}
	return fmt.Errorf("job %s is in phase %s and none of its pods is there yet: try again when one is", key, phase)
}

// Pods returns the pods of a job, by name.
func (c *Cluster) Pods(ctx context.Context, job *v2alpha1.DIJob) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels(podsOf(job))); err != nil {
		need := Right{Verb: "list", Resource: "pods", Namespace: job.Namespace}
		return nil, need.Denied("listing the pods of job "+job.Namespace+"/"+job.Name, err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) }), nil
}
