// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds installs the CustomResourceDefinitions that the program was
// built with, brings older ones up to date, and prepares those that are left
// behind when the operator is uninstalled. Helm does not own them: they and
// their objects outlive a release, and a rollback is not to delete them.
package crds

import (
	"context"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/config/crd"
)

// AnnotationRetired is on a definition that is left without an operator.
const AnnotationRetired = v2alpha1.GroupName + "/retired"

// establishInterval is how often to look whether the API server serves a definition.
const establishInterval = 200 * time.Millisecond

// fieldManager owns what is installed.
const fieldManager = client.FieldOwner("di-orchestrator-install-crds")

// Installer writes definitions.
type Installer struct {
	// API reads and writes them; its scheme knows them and webhook configurations.
	API client.Client
	// Namespace has the Service of the webhooks.
	Namespace string
	// Out is told each step, a line at a time.
	Out io.Writer
}

// Install creates what is missing, brings the rest up to date, and returns when
// the API server serves all. It can be repeated, and resumed after an error.
func (i *Installer) Install(ctx context.Context) error {
	stopped, err := i.stopped(ctx)
	if err != nil {
		return err
	}
	for _, content := range crd.All() {
		built, err := i.read(content)
		if err != nil {
			return err
		}
		if err := retry.OnError(retry.DefaultBackoff, otherWasFirst, func() error { return i.install(ctx, built, stopped) }); err != nil {
			return err
		}
		if err := i.waitEstablished(ctx, built.Name); err != nil {
			return err
		}
	}
	return nil
}

// read returns a definition as it is built, its stanza leading to our Service.
func (i *Installer) read(content []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	built := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, built); err != nil {
		return nil, fmt.Errorf("reading a built definition: %w", err)
	}
	if conversion := built.Spec.Conversion; isServedByWebhook(conversion) {
		conversion.Webhook.ClientConfig.Service.Namespace = i.Namespace
	}
	return built, nil
}

// stopped returns the version that an administrator wants to be served no more,
// which the definition of DIJobs tells; empty for none.
func (i *Installer) stopped(ctx context.Context) (string, error) {
	jobs, err := i.read(crd.DIJobs())
	if err != nil {
		return "", err
	}
	stored := &apiextensionsv1.CustomResourceDefinition{}
	if err := client.IgnoreNotFound(i.API.Get(ctx, client.ObjectKeyFromObject(jobs), stored)); err != nil {
		return "", fmt.Errorf("getting customresourcedefinition %s: %w", jobs.Name, err)
	}
	return stored.Annotations[AnnotationStopServing], nil
}

func (i *Installer) install(ctx context.Context, built *apiextensionsv1.CustomResourceDefinition, stopped string) error {
	stored := &apiextensionsv1.CustomResourceDefinition{}
	err := i.API.Get(ctx, client.ObjectKeyFromObject(built), stored)
	if apierrors.IsNotFound(err) {
		if err := i.API.Create(ctx, built.DeepCopy(), fieldManager); err != nil {
			return fmt.Errorf("creating customresourcedefinition %s: %w", built.Name, err)
		}
		return i.tell("%s: created", built.Name)
	}
	if err != nil {
		return fmt.Errorf("getting customresourcedefinition %s: %w", built.Name, err)
	}
	merged, err := merge(built, stored, stopped)
	if err != nil {
		return err
	}
	if isSame(merged, stored) {
		return i.tell("%s: up to date", built.Name)
	}
	if err := i.API.Update(ctx, merged, fieldManager); err != nil {
		return fmt.Errorf("updating customresourcedefinition %s: %w", built.Name, err)
	}
	return i.tell("%s: updated", built.Name)
}

// isSame tells whether a write would change nothing. Defaults of the API server
// are in the stored definition only, so they are taken over before comparing.
func isSame(merged, stored *apiextensionsv1.CustomResourceDefinition) bool {
	defaulted := merged.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(defaulted)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&defaulted.Spec)
	return equality.Semantic.DeepEqual(defaulted.Spec, stored.Spec) && equality.Semantic.DeepEqual(defaulted.Annotations, stored.Annotations)
}

func (i *Installer) waitEstablished(ctx context.Context, name string) error {
	var last string
	err := wait.PollUntilContextCancel(ctx, establishInterval, true, func(ctx context.Context) (bool, error) {
		stored := &apiextensionsv1.CustomResourceDefinition{}
		if err := i.API.Get(ctx, client.ObjectKey{Name: name}, stored); err != nil {
			return false, err
		}
		for _, condition := range stored.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
			if condition.Status == apiextensionsv1.ConditionFalse {
				last = fmt.Sprintf("%s: %s", condition.Reason, condition.Message)
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server to serve %s (%s): %w", name, last, err)
	}
	return nil
}

// Retire prepares for a cluster without the operator, so that no webhook blocks
// it: the webhook configurations are deleted, and DIJobs are served only as they
// are stored. No object is touched, and Install undoes it.
func (i *Installer) Retire(ctx context.Context, mutating, validating, definition string) error {
	configurations := []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}}
	configurations[0].SetName(mutating)
	configurations[1].SetName(validating)
	for _, configuration := range configurations {
		if err := client.IgnoreNotFound(i.API.Delete(ctx, configuration)); err != nil {
			return fmt.Errorf("deleting webhook configuration %s: %w", configuration.GetName(), err)
		}
		if err := i.tell("%s: deleted", configuration.GetName()); err != nil {
			return err
		}
	}
	return retry.OnError(retry.DefaultBackoff, otherWasFirst, func() error { return i.retire(ctx, definition) })
}

func (i *Installer) retire(ctx context.Context, name string) error {
	stored := &apiextensionsv1.CustomResourceDefinition{}
	err := i.API.Get(ctx, client.ObjectKey{Name: name}, stored)
	if apierrors.IsNotFound(err) {
		return i.tell("%s: not there", name)
	}
	if err != nil {
		return fmt.Errorf("getting customresourcedefinition %s: %w", name, err)
	}
	retired, err := retire(stored)
	if err != nil {
		return err
	}
	if retired == nil {
		return i.tell("%s: needs no webhook", name)
	}
	if err := i.API.Update(ctx, retired, fieldManager); err != nil {
		return fmt.Errorf("updating customresourcedefinition %s: %w", name, err)
	}
	return i.tell("%s: served as it is stored, without a webhook", name)
}

func (i *Installer) tell(format string, args ...any) error {
	if _, err := fmt.Fprintf(i.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("telling what was done: %w", err)
	}
	return nil
}

// otherWasFirst tells whether a write was refused as another came before it.
func otherWasFirst(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
