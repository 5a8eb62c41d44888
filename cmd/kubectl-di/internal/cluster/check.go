// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/webhook/podcheck"
)

// CheckPods creates a pod of each task of a job in dry run. The job is of either version, with its
// defaults.
func (c *Cluster) CheckPods(ctx context.Context, written *unstructured.Unstructured, validation string) ([]podcheck.Findings, error) {
	title := "checking the pods of job " + written.GetNamespace() + "/" + written.GetName()
	raw, err := written.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	job, err := podcheck.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	config, missing, err := c.aggregatorConfig(ctx, job.DIJob)
	if err != nil {
		return nil, err
	}
	pods, err := podcheck.Pods(job, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	checker, err := podcheck.NewChecker(c.config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	var all []podcheck.Findings
	for i := range pods {
		found, err := checker.Check(ctx, &pods[i], validation)
		if err != nil {
			return nil, explain(title, err)
		}
		all = append(all, found)
	}
	if missing != "" {
		all = append(all, podcheck.Findings{Task: "aggregator", Unchecked: missing})
	}
	return all, nil
}

// aggregatorConfig returns the AggregatorConfig that a job names, or why there is none; nil if it names
// none.
func (c *Cluster) aggregatorConfig(ctx context.Context, job *v2alpha1.DIJob) (config *v2alpha1.AggregatorConfig, missing string, err error) {
	reference := job.Spec.AggregatorConfig
	if reference == nil {
		return nil, "", nil
	}
	namespace := reference.Namespace
	if namespace == "" {
		namespace = job.Namespace
	}
	config = &v2alpha1.AggregatorConfig{}
	switch err := c.Get(ctx, namespace, reference.Name, config); {
	case apierrors.IsNotFound(err), IsDenied(err):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	return config, "", nil
}
