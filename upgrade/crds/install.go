// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds installs the CustomResourceDefinitions that the program was built with and updates
// older ones. It also prepares those that stay when the operator is uninstalled. Helm does not own
// them: they and their objects outlive a release, and a rollback must not delete them.
package crds

import (
	"context"
	"fmt"
	"io"
	"strings"
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
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// AnnotationRetired is on a definition that has no operator.
	AnnotationRetired = v2alpha1.GroupName + "/retired"
	// AnnotationTakeover is on the definition of DIJobs and records the progress of the takeover of
	// an earlier release.
	AnnotationTakeover = v2alpha1.GroupName + "/takeover"
	// AnnotationInject makes cert-manager write its bundle into an object.
	AnnotationInject = "cert-manager.io/inject-ca-from"
	// AnnotationRelease is on objects that Helm owns, and names the release.
	AnnotationRelease = "meta.helm.sh/release-name"
	// annotationPolicy with the value policyKeep makes Helm keep objects that a release no longer
	// contains.
	annotationPolicy, policyKeep = "helm.sh/resource-policy", "keep"
)

// establishInterval is how often to check whether the API server serves a definition.
const establishInterval = 200 * time.Millisecond

// fieldManager owns the installed fields.
const fieldManager = client.FieldOwner("di-orchestrator-install-crds")

// Installer writes definitions.
type Installer struct {
	// API reads and writes definitions. Its scheme knows them and webhook configurations.
	API client.Client
	// Namespace is the namespace of the webhooks' Service.
	Namespace string
	// OwnCertificates means that the operator signs its certificate, so that no other tool may
	// write bundles.
	OwnCertificates bool
	// NoTakeover rejects definitions of an earlier release whose takeover is not done.
	NoTakeover bool
	// Out receives a line for each step.
	Out io.Writer

	// earlier is the release that created the definitions.
	earlier Origin
}

// Install creates missing definitions, updates the others, and returns when the API server serves
// all of them. From definitions of an earlier release it removes only what would block the
// operator. The operator takes them over once its webhooks serve. Install can be repeated, and
// resumed after an error.
func (i *Installer) Install(ctx context.Context) error {
	if err := i.checkTakenOver(ctx); err != nil {
		return err
	}
	stopped, err := i.stopped(ctx)
	if err != nil {
		return err
	}
	i.earlier = ""
	for _, content := range crd.All() {
		built, err := read(content, i.Namespace)
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
	if i.earlier == "" {
		return nil
	}
	if err := i.releaseConfigurations(ctx); err != nil {
		return err
	}
	return i.printf("next: start the webhooks and the operator. The operator takes over what %s has left in namespace %s, "+
		"and reports its progress in the annotation %s of dijobs.%s",
		i.earlier, i.Namespace, AnnotationTakeover, v2alpha1.GroupName)
}

// checkTakenOver checks all definitions before the first one is written.
func (i *Installer) checkTakenOver(ctx context.Context) error {
	if !i.NoTakeover {
		return nil
	}
	for _, content := range crd.All() {
		built, err := read(content, i.Namespace)
		if err != nil {
			return err
		}
		stored, err := get(ctx, i.API, built.Name)
		if err != nil {
			return err
		}
		if stored == nil {
			continue
		}
		if err := checkTakenOver(stored); err != nil {
			return err
		}
	}
	return nil
}

// read returns a built definition whose conversion stanza refers to our Service.
func read(content []byte, namespace string) (*apiextensionsv1.CustomResourceDefinition, error) {
	built := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, built); err != nil {
		return nil, fmt.Errorf("reading a built definition: %w", err)
	}
	if conversion := built.Spec.Conversion; isServedByWebhook(conversion) {
		conversion.Webhook.ClientConfig.Service.Namespace = namespace
	}
	return built, nil
}

// stopped returns the version that an administrator wants to stop serving, as the definition of
// DIJobs records it. It returns "" for none.
func (i *Installer) stopped(ctx context.Context) (string, error) {
	jobs, err := read(crd.DIJobs(), i.Namespace)
	if err != nil {
		return "", err
	}
	stored, err := get(ctx, i.API, jobs.Name)
	if stored == nil || err != nil {
		return "", err
	}
	return stored.Annotations[AnnotationStopServing], nil
}

func (i *Installer) install(ctx context.Context, built *apiextensionsv1.CustomResourceDefinition, stopped string) error {
	stored, err := get(ctx, i.API, built.Name)
	if err != nil {
		return err
	}
	switch origin := OriginOf(stored); {
	case origin == OriginNone:
		if err := i.API.Create(ctx, built.DeepCopy(), fieldManager); err != nil {
			return fmt.Errorf("creating customresourcedefinition %s: %w", built.Name, err)
		}
		return i.printf("%s: created", built.Name)
	case origin.IsEarlier():
		i.earlier = origin
		return i.release(ctx, built, stored)
	}
	if err := checkOrigin(stored); err != nil {
		return err
	}
	merged, err := merge(built, stored, stopped)
	if err != nil {
		return err
	}
	keep(merged)
	return i.update(ctx, merged, stored)
}

// update writes a definition, unless the API server would store what it has. A server drops the fields that it does not
// know, such as selectableFields before Kubernetes 1.31.
func (i *Installer) update(ctx context.Context, merged, stored *apiextensionsv1.CustomResourceDefinition) error {
	kept := merged.DeepCopy()
	if !isSame(merged, stored) {
		if err := i.API.Update(ctx, kept, client.DryRunAll, fieldManager); err != nil {
			return fmt.Errorf("trying the update of customresourcedefinition %s: %w", stored.Name, err)
		}
	}
	if isSame(kept, stored) {
		return i.printf("%s: up to date", stored.Name)
	}
	if err := i.API.Update(ctx, merged, fieldManager); err != nil {
		return fmt.Errorf("updating customresourcedefinition %s: %w", stored.Name, err)
	}
	return i.printf("%s: updated", stored.Name)
}

// release removes the annotation by which cert-manager would overwrite the bundle that the operator
// publishes in a definition of an earlier release. It also makes Helm keep a definition that it
// owns. It changes nothing else, because no webhook converts yet.
func (i *Installer) release(ctx context.Context, built, stored *apiextensionsv1.CustomResourceDefinition) error {
	if err := checkStored(built, stored); err != nil {
		return err
	}
	if err := checkNamespace(stored, i.Namespace); err != nil {
		return err
	}
	released := stored.DeepCopy()
	var changes []string
	if removeInjection(released, i.OwnCertificates) {
		changes = append(changes, fmt.Sprintf(", but for the annotation %s, which is removed", AnnotationInject))
	}
	if keep(released) {
		changes = append(changes, fmt.Sprintf(", but for the annotation %s=%s, by which Helm leaves it alone", annotationPolicy, policyKeep))
	}
	if len(changes) == 0 {
		return i.printf("%s: left as %s made it", stored.Name, OriginOf(stored))
	}
	if err := i.API.Update(ctx, released, fieldManager); err != nil {
		return fmt.Errorf("updating customresourcedefinition %s: %w", stored.Name, err)
	}
	return i.printf("%s: left as %s made it%s", stored.Name, OriginOf(stored), strings.Join(changes, ""))
}

// releaseConfigurations removes the annotation from the webhook configurations too.
func (i *Installer) releaseConfigurations(ctx context.Context) error {
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	mutating.Name, validating.Name = names.EarlierMutating, names.EarlierValidating
	for _, configuration := range []client.Object{mutating, validating} {
		if err := retry.OnError(retry.DefaultBackoff, otherWasFirst, func() error { return i.releaseConfiguration(ctx, configuration) }); err != nil {
			return err
		}
	}
	return nil
}

func (i *Installer) releaseConfiguration(ctx context.Context, configuration client.Object) error {
	name := configuration.GetName()
	err := i.API.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting webhook configuration %s: %w", name, err)
	}
	if !removeInjection(configuration, i.OwnCertificates) {
		return nil
	}
	if err := i.API.Update(ctx, configuration, fieldManager); err != nil {
		return fmt.Errorf("updating webhook configuration %s: %w", name, err)
	}
	return i.printf("%s: the annotation %s is removed", name, AnnotationInject)
}

// get returns a definition, and nil if there is none.
func get(ctx context.Context, api client.Reader, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	stored := &apiextensionsv1.CustomResourceDefinition{}
	err := api.Get(ctx, client.ObjectKey{Name: name}, stored)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting customresourcedefinition %s: %w", name, err)
	}
	return stored, nil
}

// isSame reports whether a write would be a no-op. Only the stored definition has the defaults of
// the API server, so they are copied before the comparison.
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

// Retire prepares the cluster for running without the operator, so that no webhook blocks it. It
// deletes the webhook configurations and stops serving DIJobs in versions other than the storage
// version. It changes no object, and Install reverts it.
func (i *Installer) Retire(ctx context.Context, mutating, validating, definition string) error {
	configurations := []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}}
	configurations[0].SetName(mutating)
	configurations[1].SetName(validating)
	for _, configuration := range configurations {
		if err := client.IgnoreNotFound(i.API.Delete(ctx, configuration)); err != nil {
			return fmt.Errorf("deleting webhook configuration %s: %w", configuration.GetName(), err)
		}
		if err := i.printf("%s: deleted", configuration.GetName()); err != nil {
			return err
		}
	}
	return retry.OnError(retry.DefaultBackoff, otherWasFirst, func() error { return i.retire(ctx, definition) })
}

func (i *Installer) retire(ctx context.Context, name string) error {
	stored, err := get(ctx, i.API, name)
	if err != nil {
		return err
	}
	if stored == nil {
		return i.printf("%s: not there", name)
	}
	retired, err := retire(stored)
	if err != nil {
		return err
	}
	if retired == nil {
		return i.printf("%s: needs no webhook", name)
	}
	if err := i.API.Update(ctx, retired, fieldManager); err != nil {
		return fmt.Errorf("updating customresourcedefinition %s: %w", name, err)
	}
	return i.printf("%s: served as it is stored, without a webhook", name)
}

func (i *Installer) printf(format string, args ...any) error {
	if _, err := fmt.Fprintf(i.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("printing what was done: %w", err)
	}
	return nil
}

// otherWasFirst reports whether a write failed because another writer was faster.
func otherWasFirst(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
