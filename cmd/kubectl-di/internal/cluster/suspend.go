// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Jobs reads the jobs of the namespace that labels select.
func (c *Cluster) Jobs(ctx context.Context, selector labels.Selector) ([]v2alpha1.DIJob, error) {
	var jobs v2alpha1.DIJobList
	if err := c.client.List(ctx, &jobs, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		need := Right{Verb: "list", Group: v2alpha1.GroupName, Resource: "dijobs", Namespace: c.Namespace}
		return nil, need.Denied("listing the jobs of namespace "+c.Namespace, err)
	}
	return jobs.Items, nil
}

// SetSuspended writes whether a job is suspended, and nothing else of it, so
// that it conflicts with nobody. The job becomes what the API server has then. A
// trial is not written.
func (c *Cluster) SetSuspended(ctx context.Context, job *v2alpha1.DIJob, suspended, trial bool) error {
	var options []client.PatchOption
	if trial {
		options = append(options, client.DryRunAll)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspended))
	if err := c.client.Patch(ctx, job, patch, options...); err != nil {
		need := Right{Verb: "patch", Group: v2alpha1.GroupName, Resource: "dijobs", Namespace: job.Namespace}
		return need.Denied("changing spec.suspend of job "+job.Namespace+"/"+job.Name, err)
	}
	return nil
}
