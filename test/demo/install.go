// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	installTimeout = 3 * time.Minute
	pollInterval   = time.Second
)

// Deployments are the programs that the demo installs.
func Deployments() []string {
	return []string{"di-orchestrator-operator", "di-orchestrator-server"}
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, v2alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	return scheme, nil
}

// Install applies the manifests and waits until the operator and di-server
// are ready, all replicas of them, and jobs are admitted.
func (d *Demo) Install(ctx context.Context) error {
	d.step("Installing the operator and di-server, two replicas each, into namespace %s", names.SystemNamespace)
	installed, err := d.installed(ctx)
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, "apply", "-k", filepath.Join(d.Root, "config", "default")); err != nil {
		return err
	}
	// A rebuilt image has the same tag, so that only a restart picks it up.
	for _, name := range installed {
		if err := d.kubectl(ctx, "rollout", "restart", "-n", names.SystemNamespace, "deployment/"+name); err != nil {
			return err
		}
	}
	for _, name := range Deployments() {
		if err := d.waitRolledOut(ctx, name); err != nil {
			return err
		}
	}
	return d.waitAdmitted(ctx)
}

// waitAdmitted waits until the API server reaches the webhooks: it learns of
// ready pods behind a Service a moment after they are. A job that is created
// without being stored, in the version that is not stored, goes all the way.
func (d *Demo) waitAdmitted(ctx context.Context) error {
	template := v1alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(`{"spec":{"containers":[{"name":"di-container","image":"none"}]}}`)}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, installTimeout, true, func(ctx context.Context) (bool, error) {
		job := &v1alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: metav1.NamespaceDefault},
			Spec:       v1alpha1.DIJobSpec{Coordinator: v1alpha1.RoleSpec{Template: template}},
		}
		last = d.client.Create(ctx, job, client.DryRunAll)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server to reach the webhooks: %w", errors.Join(err, last))
	}
	return nil
}

// installed returns the deployments that are there already.
func (d *Demo) installed(ctx context.Context) ([]string, error) {
	var found []string
	for _, name := range Deployments() {
		err := d.client.Get(ctx, client.ObjectKey{Namespace: names.SystemNamespace, Name: name}, &appsv1.Deployment{})
		switch {
		case err == nil:
			found = append(found, name)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("looking for deployment %s: %w", name, err)
		}
	}
	return found, nil
}

func (d *Demo) waitRolledOut(ctx context.Context, name string) error {
	key := client.ObjectKey{Namespace: names.SystemNamespace, Name: name}
	var deployment appsv1.Deployment
	err := wait.PollUntilContextTimeout(ctx, pollInterval, installTimeout, true, func(ctx context.Context) (bool, error) {
		if err := d.client.Get(ctx, key, &deployment); err != nil {
			return false, err
		}
		status := deployment.Status
		return status.ObservedGeneration >= deployment.Generation && deployment.Spec.Replicas != nil &&
			status.UpdatedReplicas == *deployment.Spec.Replicas &&
			status.AvailableReplicas == status.UpdatedReplicas && status.Replicas == status.UpdatedReplicas, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for deployment %s, %d of its pods available: %w", name, deployment.Status.AvailableReplicas, err)
	}
	fmt.Fprintf(d.Out, "  %s: %d replicas available\n", name, deployment.Status.AvailableReplicas)
	return nil
}

// Submit deletes what an earlier demo left, and submits the AggregatorConfig
// and the example jobs.
func (d *Demo) Submit(ctx context.Context) ([]*unstructured.Unstructured, error) {
	d.step("Submitting the AggregatorConfig and the jobs of examples/cartpole")
	files, err := filepath.Glob(filepath.Join(d.Root, "examples", "cartpole", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the examples: %w", err)
	}
	var jobs []*unstructured.Unstructured
	for _, file := range files {
		objects, err := readObjects(file)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if object.GetKind() != "DIJob" {
				continue
			}
			if object.GetNamespace() == "" {
				object.SetNamespace("default")
			}
			if err := d.deleteAndWait(ctx, object); err != nil {
				return nil, err
			}
			jobs = append(jobs, object)
		}
		if err := d.kubectl(ctx, "apply", "-f", file); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

func (d *Demo) deleteAndWait(ctx context.Context, object *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(object)
	err := wait.PollUntilContextTimeout(ctx, pollInterval, installTimeout, true, func(ctx context.Context) (bool, error) {
		err := d.client.Delete(ctx, object.DeepCopy(), client.PropagationPolicy("Foreground"))
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("deleting job %s of an earlier demo: %w", key, err)
	}
	return nil
}

func readObjects(file string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading an example: %w", err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", file, err)
		}
		objects = append(objects, object)
	}
}

func (d *Demo) kubectl(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, d.Kubectl, args...)
	output, err := command.CombinedOutput()
	for line := range bytes.Lines(output) {
		fmt.Fprintf(d.Out, "  %s", line)
	}
	if err != nil {
		return fmt.Errorf("kubectl %v: %w", args, err)
	}
	return nil
}
