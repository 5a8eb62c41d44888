// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels of the Deployments of DI Orchestrator, which do not change.
const (
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
	nameOfAll      = "di-orchestrator"
)

// Deployments returns the Deployments of DI Orchestrator in a namespace, by
// their component: operator and server.
func (c *Cluster) Deployments(ctx context.Context, namespace string) (map[string]*appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{labelName: nameOfAll}); err != nil {
		need := Right{Verb: "list", Group: appsv1.GroupName, Resource: "deployments", Namespace: namespace}
		return nil, need.Denied("listing the deployments of namespace "+namespace, err)
	}
	found := map[string]*appsv1.Deployment{}
	for i := range list.Items {
		if component := list.Items[i].Labels[labelComponent]; component != "" {
			found[component] = &list.Items[i]
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("namespace %s has no deployment of DI Orchestrator: is it installed elsewhere (--server-namespace)?", namespace)
	}
	return found, nil
}
