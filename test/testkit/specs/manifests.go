// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Object decodes a manifest as clients do: whole numbers are int64.
func Object(manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(utiljson.Unmarshal(Must(yaml.YAMLToJSON([]byte(manifest))), &object.Object)).To(Succeed())
	return object
}

// Job returns a job at a version. The manifest has all but the job's kind and name.
func Job(version, namespace, name, manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	return named(Object(manifest), version, namespace, name)
}

// GetJob reads a job at a version.
func GetJob(ctx context.Context, api client.Reader, version, namespace, name string) *unstructured.Unstructured {
	GinkgoHelper()
	job := named(&unstructured.Unstructured{}, version, namespace, name)
	Expect(api.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
	return job
}

// Definition returns a CustomResourceDefinition with only a name, which a client reads or patches.
func Definition(name string) *unstructured.Unstructured {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	definition.SetName(name)
	return definition
}

func named(job *unstructured.Unstructured, version, namespace, name string) *unstructured.Unstructured {
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: "DIJob"})
	job.SetNamespace(namespace)
	job.SetName(name)
	return job
}
