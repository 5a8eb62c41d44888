// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Membership reads the desired replicas of a coordinator-led job; nil where
// nothing says so yet.
func (c *Cluster) Membership(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	var list v2alpha1.Membership
	err := c.client.Get(ctx, client.ObjectKeyFromObject(job), &list)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		need := Right{Verb: "get", Group: v2alpha1.GroupName, Resource: "memberships", Namespace: job.Namespace}
		return nil, need.Denied("reading the Membership of job "+job.Namespace+"/"+job.Name, err)
	case list.Spec.JobUID != job.UID:
		return nil, nil
	}
	return &list, nil
}
