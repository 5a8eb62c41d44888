// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package legacy creates on an API server what earlier releases leave there: definitions,
// deployments, services and webhooks, and jobs in every state with their pods. All objects are
// written here as those releases wrote them. Code under test must not define them because it would
// then prove nothing.
package legacy

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit"
)

// SystemNamespace is where every earlier release runs.
const SystemNamespace = "di-system"

// pollInterval is the interval at which legacy checks whether the API server has applied a change.
const pollInterval = 50 * time.Millisecond

var (
	//go:embed manifests/v0.2.2.yaml
	manifestV022 []byte
	//go:embed manifests/v1.0.0.yaml
	manifestV100 []byte
	//go:embed manifests/v1.1.yaml
	manifestV11 []byte
)

// Release is an earlier release.
type Release struct {
	// Name is its version, such as v0.2.2.
	Name string
	// Version is the only API version of the release's DIJobs.
	Version string

	manifest []byte
	// states are the states of the release's jobs.
	states []state
}

// V022 returns the last coordinator-led release, with webhooks by cert-manager.
func V022() Release {
	return Release{Name: "v0.2.2", Version: "v1alpha1", manifest: manifestV022, states: coordinatedStates()}
}

// V100 returns the first worker-led release, whose jobs have one template.
func V100() Release {
	return Release{Name: "v1.0.0", Version: "v2alpha1", manifest: release(manifestV100, "v1.0.0"), states: templateStates()}
}

// V111 returns the last release whose jobs' Services are named dijob-JOB.
func V111() Release {
	return Release{Name: "v1.1.1", Version: "v2alpha1", manifest: release(manifestV11, "v1.1.1"), states: workerStates(worker{
		service: "dijob-", subdomain: "",
	})}
}

// V113 returns the last worker-led release.
func V113() Release {
	return Release{Name: "v1.1.3", Version: "v2alpha1", manifest: release(manifestV11, "v1.1.3"), states: workerStates(worker{
		service: "di-", subdomain: "di-", taskLabels: true,
	})}
}

func release(manifest []byte, name string) []byte {
	return bytes.ReplaceAll(manifest, []byte("RELEASE"), []byte(name))
}

// Install creates an installation and the given number of jobs in a new namespace. It creates the
// webhooks last because no program serves them.
func (r Release) Install(ctx context.Context, api client.Client, namespace string, jobs int) ([]Job, error) {
	if err := r.System(ctx, api); err != nil {
		return nil, err
	}
	made, err := r.Jobs(ctx, api, namespace, jobs)
	if err != nil {
		return nil, err
	}
	return made, r.Webhooks(ctx, api)
}

// System creates everything except jobs and webhooks: definitions, deployments, services, RBAC
// objects, and the AggregatorConfig if the release has one.
func (r Release) System(ctx context.Context, api client.Client) error {
	return r.create(ctx, api, func(kind string) bool { return !isWebhook(kind) })
}

// Webhooks creates the webhook configurations, if the release has any. Afterwards no job can be
// created or changed because no program serves them.
func (r Release) Webhooks(ctx context.Context, api client.Client) error {
	return r.create(ctx, api, isWebhook)
}

func isWebhook(kind string) bool {
	return kind == "MutatingWebhookConfiguration" || kind == "ValidatingWebhookConfiguration"
}

func (r Release) create(ctx context.Context, api client.Client, wanted func(kind string) bool) error {
	objects, err := r.Objects()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if !wanted(object.GetKind()) {
			continue
		}
		if err := create(ctx, api, object); err != nil {
			return err
		}
	}
	return nil
}

// create creates an object. For definitions it returns when they are served.
func create(ctx context.Context, api client.Client, object *unstructured.Unstructured) error {
	err := api.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) && object.GetKind() == "Namespace" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if object.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	return waitServed(ctx, api, object)
}

// Objects returns the objects of the release's manifest in order.
func (r Release) Objects() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(r.manifest)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the manifest of %s: %w", r.Name, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("decoding the manifest of %s: %w", r.Name, err)
		}
		objects = append(objects, object)
	}
}

// waitServed waits until objects of a definition can be listed.
func waitServed(ctx context.Context, api client.Client, definition *unstructured.Unstructured) error {
	kind, _, err := unstructured.NestedString(definition.Object, "spec", "names", "listKind")
	if err != nil {
		return fmt.Errorf("reading a definition: %w", err)
	}
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return fmt.Errorf("reading a definition: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	version, _ := versions[0].(map[string]any)["name"].(string)
	list.SetAPIVersion("diengine.opendilab.org/" + version)
	list.SetKind(kind)
	return poll(ctx, "the API server to serve "+definition.GetName(), func(ctx context.Context) error {
		return api.List(ctx, list, client.Limit(1))
	})
}

// Remove deletes what Install created, except namespaces: only an API server runs, so no controller
// empties them. Therefore it also deletes the pods and services of the jobs' namespaces.
func (r Release) Remove(ctx context.Context, api client.Client, namespaces ...string) error {
	objects, err := r.Objects()
	if err != nil {
		return err
	}
	slices.Reverse(objects)
	for _, namespace := range namespaces {
		for _, kind := range []string{"Pod", "Service"} {
			children := &unstructured.UnstructuredList{}
			children.SetAPIVersion("v1")
			children.SetKind(kind + "List")
			if err := api.List(ctx, children, client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("listing what jobs of %s had: %w", namespace, err)
			}
			for i := range children.Items {
				objects = append(objects, &children.Items[i])
			}
		}
	}
	for _, object := range objects {
		if err := remove(ctx, api, object); err != nil {
			return err
		}
	}
	return nil
}

func remove(ctx context.Context, api client.Client, object *unstructured.Unstructured) error {
	if object.GetKind() == "Namespace" {
		return nil
	}
	if err := client.IgnoreNotFound(api.Delete(ctx, object, client.GracePeriodSeconds(0))); err != nil {
		return fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return poll(ctx, object.GetKind()+" "+object.GetName()+" to go", func(ctx context.Context) error {
		err := api.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("is still there"))
	})
}

func poll(ctx context.Context, awaited string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", awaited, errors.Join(err, last))
	}
	return nil
}
