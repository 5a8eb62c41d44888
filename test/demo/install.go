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
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	installTimeout = 10 * time.Minute
	pollInterval   = time.Second
)

// defaultClass is the annotation of the StorageClass of claims without one.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// reader is the account that reads the history.
const reader = "history-reader"

// Release is the name of the chart's release.
const Release = "di-orchestrator"

// Deployments returns the names of the programs that the demo installs.
func Deployments() []string {
	return []string{"di-orchestrator-operator", "di-orchestrator-webhook", "di-orchestrator-server"}
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

// Install installs or upgrades the chart, and waits until all replicas of the programs are ready
// and jobs are admitted.
func (d *Demo) Install(ctx context.Context) error {
	d.step("Installing the operator, its webhooks and di-server, two replicas each, into namespace %s", names.SystemNamespace)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: names.SystemNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := d.client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", namespace.Name, err)
	}
	// A rebuilt image has the same tag, so only new pods use it.
	built := fmt.Sprintf("built=%d", d.clock.Now().Unix())
	args := []string{
		"upgrade", "--install", Release, filepath.Join(d.Root, "charts", "di-orchestrator"),
		"--namespace", names.SystemNamespace, "--wait", "--timeout", installTimeout.String(),
	}
	for _, program := range []string{"operator", "webhook", "server", "history"} {
		args = append(args, "--set-string", program+".podAnnotations."+built)
	}
	if d.History {
		persists, err := d.hasVolumes(ctx)
		if err != nil {
			return err
		}
		args = append(args, "--set", fmt.Sprintf("history.enabled=true,history.persistence.enabled=%t", persists))
	}
	return d.call(ctx, d.Helm, args...)
}

// hasVolumes reports whether the cluster provides volumes of a default class.
func (d *Demo) hasVolumes(ctx context.Context) (bool, error) {
	var classes storagev1.StorageClassList
	if err := d.client.List(ctx, &classes); err != nil {
		return false, fmt.Errorf("listing StorageClasses: %w", err)
	}
	return slices.ContainsFunc(classes.Items, func(class storagev1.StorageClass) bool {
		return class.Annotations[defaultClass] == "true"
	}), nil
}

// remember deletes a job, and shows that the history has it.
func (d *Demo) remember(ctx context.Context, of *Result) error {
	d.step("The history, after job %s is deleted", of.Name)
	// The certificate of an administrator is no token, so that an account reads.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: reader}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: reader},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: of.Namespace, Name: reader}},
	}
	for _, object := range []client.Object{account, binding} {
		if err := d.client.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("giving an account the right to read: %w", err)
		}
	}
	for _, args := range [][]string{
		{"delete", "dijob", of.Name, "--namespace", of.Namespace},
		{"di", "history", "list", "--namespace", of.Namespace, "--service-account", reader},
	} {
		fmt.Fprintf(d.Out, "  $ kubectl %s\n", strings.Join(args, " "))
		if err := d.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Submit deletes the objects of an earlier demo, and creates the AggregatorConfig and the example
// jobs.
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
	return d.call(ctx, d.Kubectl, args...)
}

// call runs a program and shows its output.
func (d *Demo) call(ctx context.Context, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	output, err := command.CombinedOutput()
	for line := range bytes.Lines(output) {
		fmt.Fprintf(d.Out, "  %s", line)
	}
	if err != nil {
		return fmt.Errorf("%s %v: %w", filepath.Base(program), args, err)
	}
	return nil
}
