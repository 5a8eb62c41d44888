// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// deployments returns the Deployments of an earlier release.
func deployments() []string {
	return []string{names.EarlierOperator, names.EarlierWebhook, names.EarlierServer}
}

// configurations returns the webhook configurations of an earlier release. Only their names are
// read.
func configurations() []*metav1.PartialObjectMetadata {
	named := func(kind, name string) *metav1.PartialObjectMetadata {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		object.SetName(name)
		return object
	}
	return []*metav1.PartialObjectMetadata{
		named("MutatingWebhookConfiguration", names.EarlierMutating),
		named("ValidatingWebhookConfiguration", names.EarlierValidating),
	}
}

func (r *Runner) observe(ctx context.Context) (*Observed, error) {
	observed := &Observed{Replicas: map[string]int32{}, Pods: map[string][]string{}, Acting: r.acting, Probed: r.probed}
	for _, configuration := range configurations() {
		err := r.options.API.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting webhook configuration %s: %w", configuration.Name, err)
		}
		if err == nil {
			observed.Configurations = append(observed.Configurations, configuration.Name)
		}
	}
	for _, name := range deployments() {
		scale, err := r.scaleOf(ctx, name)
		if err != nil {
			return nil, err
		}
		if scale != nil {
			observed.Replicas[name] = scale.Spec.Replicas
		}
	}
	var pods corev1.PodList
	if err := r.options.API.List(ctx, &pods, client.InNamespace(r.options.Namespace)); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", r.options.Namespace, err)
	}
	var ours []string
	for i := range pods.Items {
		observed.count(&pods.Items[i])
		if isOurServer(&pods.Items[i]) && podstate.Ready(&pods.Items[i]) {
			ours = append(ours, pods.Items[i].Name)
		}
	}
	found, err := r.route(ctx)
	if err != nil {
		return nil, err
	}
	found.observe(observed, ours, observed.Pods[names.EarlierServer])
	r.settle(observed, found.ports())
	return observed, nil
}

// settle records what nodes have learned. It is not part of the plan, because the plan must not
// depend on the memory of one process: its successor would describe the same state differently.
func (r *Runner) settle(observed *Observed, ports string) {
	now := r.options.Clock.Now()
	r.portsKnown = r.ports.observe(ports, now) >= r.options.Settle
	since := r.drained.observe(strconv.FormatBool(observed.leadsToEarlier()), now)
	r.drainKnown = since >= r.options.Settle && !observed.leadsToEarlier()
}

// scaleOf returns the scale of a Deployment, and nil if there is none.
func (r *Runner) scaleOf(ctx context.Context, name string) (*autoscalingv1.Scale, error) {
	scale := &autoscalingv1.Scale{}
	err := r.options.API.SubResource("scale").Get(ctx, r.deployment(name), scale)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting the scale of Deployment %s/%s: %w", r.options.Namespace, name, err)
	}
	return scale, nil
}

func (r *Runner) deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: name}}
}

// count counts a pod of the namespace if it belongs to an earlier release.
func (o *Observed) count(pod *corev1.Pod) {
	if name := earlierOf(pod); name != "" {
		// A finished pod counts too: its container may be started again.
		o.Pods[name] = append(o.Pods[name], pod.Name)
	}
}

// earlierOf returns the earlier Deployment that a pod belongs to, and "" if there is none. Pods of
// an earlier di-server have the same labels as ours. The name of the ReplicaSet that owns them
// differs, even after the Deployment is deleted.
func earlierOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return ""
	}
	for _, name := range deployments() {
		if owner.Name == name+"-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] {
			return name
		}
	}
	return ""
}

func isOurServer(pod *corev1.Pod) bool {
	return pod.Labels[ourLabel] == ourName && pod.Labels[componentLabel] == serverComponent
}
