// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Scale sets the number of replicas of a job's elastic task by its scale
// subresource, as kubectl scale does, and returns the number that was there
// before. The check may refuse it for what is there. A trial is not written.
func (c *Cluster) Scale(ctx context.Context, job *v2alpha1.DIJob, replicas int32, check func(current int32) error, trial bool) (int32, error) {
	var options []client.SubResourceUpdateOption
	if trial {
		options = append(options, client.DryRunAll)
	}
	var before int32
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale := &autoscalingv1.Scale{}
		if err := c.client.SubResource("scale").Get(ctx, job, scale); err != nil {
			return c.scaleFailure(job, replicas, "get", err)
		}
		if before = scale.Spec.Replicas; replicas == before {
			return check(before)
		}
		if err := check(before); err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		return c.scaleFailure(job, replicas, "update", c.client.SubResource("scale").Update(ctx, job, append(options, client.WithSubResourceBody(scale))...))
	})
	return before, err
}

// scaleFailure explains why the scale could not be read or written.
func (c *Cluster) scaleFailure(job *v2alpha1.DIJob, replicas int32, verb string, err error) error {
	switch {
	case err == nil, apierrors.IsConflict(err):
		return err
	case apierrors.IsInvalid(err):
		return fmt.Errorf("job %s cannot be scaled so: %w", client.ObjectKeyFromObject(job), err)
	case apierrors.IsInternalError(err) && (job.Spec.Elastic == nil || job.Spec.Elastic.Replicas == nil):
		return fmt.Errorf("job %s says no spec.elastic.replicas yet, which the operator writes into jobs of earlier releases; to say it yourself:\n"+
			"  kubectl -n %s patch dijob %s --type merge -p '{\"spec\":{\"elastic\":{\"replicas\":%d}}}'\n%w",
			client.ObjectKeyFromObject(job), job.Namespace, job.Name, replicas, err)
	}
	need := Right{Verb: verb, Group: v2alpha1.GroupName, Resource: "dijobs", Subresource: "scale", Namespace: c.Namespace}
	return need.Denied("scaling job "+client.ObjectKeyFromObject(job).String(), err)
}

// IsGone reports whether an error says that what was asked for is not there.
func IsGone(err error) bool { return apierrors.ReasonForError(err) == metav1.StatusReasonNotFound }
