// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/upgrade/migration"
)

const definitions = "customresourcedefinitions"

// Definition reads the CustomResourceDefinition of a resource; nil where there is none.
func (c *Cluster) Definition(ctx context.Context, resource string) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	name := resource + "." + v2alpha1.GroupName
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, definition)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		// Of all definitions: each that is read would want a role of the same name else.
		need := Right{Verb: "get", Group: apiextensionsv1.GroupName, Resource: definitions}
		return nil, need.Denied("getting customresourcedefinition "+name, err)
	}
	return definition, nil
}

// Annotate merges annotations into a definition; one without a value is taken away.
func (c *Cluster) Annotate(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, annotations map[string]*string) error {
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding annotations: %w", err)
	}
	if err := c.client.Patch(ctx, definition, client.RawPatch(types.MergePatchType, content)); err != nil {
		need := Right{Verb: "patch", Group: apiextensionsv1.GroupName, Resource: definitions, Name: definition.Name}
		return need.Denied("annotating customresourcedefinition "+definition.Name, err)
	}
	return nil
}

// MigrationRecords reads how far storage migrations are, by resource; nothing of
// resources without one.
func (c *Cluster) MigrationRecords(ctx context.Context, namespace string) (map[string]migration.Record, error) {
	stored := &corev1.ConfigMap{}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: migration.RecordName}, stored)
	if client.IgnoreNotFound(err) != nil {
		need := Right{Verb: "get", Resource: "configmaps", Namespace: namespace, Name: migration.RecordName}
		return nil, need.Denied("getting configmap "+namespace+"/"+migration.RecordName, err)
	}
	records := map[string]migration.Record{}
	for resource, content := range stored.Data {
		var record migration.Record
		if err := json.Unmarshal([]byte(content), &record); err != nil {
			return nil, fmt.Errorf("reading configmap %s/%s: %s: %w", namespace, migration.RecordName, resource, err)
		}
		records[resource] = record
	}
	return records, nil
}

// Misruns names the jobs of all namespaces, with the reasons, that a release would
// misrun.
func (c *Cluster) Misruns(ctx context.Context, release migration.Release) ([]string, error) {
	var found []string
	var jobs v2alpha1.DIJobList
	for {
		if err := c.client.List(ctx, &jobs, client.Limit(500), client.Continue(jobs.Continue)); err != nil {
			need := Right{Verb: "list", Group: v2alpha1.GroupName, Resource: "dijobs"}
			return nil, need.Denied("listing the jobs of all namespaces", err)
		}
		for i := range jobs.Items {
			if reasons := migration.Misruns(&jobs.Items[i], release); len(reasons) > 0 {
				found = append(found, migration.Describe(&jobs.Items[i], reasons))
			}
		}
		if jobs.Continue == "" {
			return found, nil
		}
	}
}
