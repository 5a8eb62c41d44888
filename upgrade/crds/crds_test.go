// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/upgrade/crds"
)

const dijobs = "dijobs.diengine.opendilab.org"

var environment *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(testkit.RunOnBareAPI(m, &environment))
}

func newAPI(t *testing.T) client.Client {
	t.Helper()
	api, err := testkit.NewClient(environment.Config)
	expect.NoError(t, err)
	return api
}

// install installs the definitions and returns the printed lines.
func install(t *testing.T, api client.Client) string {
	t.Helper()
	var out bytes.Buffer
	expect.NoError(t, (&crds.Installer{API: api, Namespace: "di-elsewhere", OwnCertificates: true, Out: &out}).Install(t.Context()))
	return out.String()
}

func get(t *testing.T, api client.Client) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	expect.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: dijobs}, definition))
	return definition
}

func update(t *testing.T, api client.Client, change func(*apiextensionsv1.CustomResourceDefinition)) {
	t.Helper()
	definition := get(t, api)
	change(definition)
	expect.NoError(t, api.Update(t.Context(), definition))
}

// The specs share one API server, which has one copy of each definition, so they run sequentially.
func TestInstallingAndRetiringDefinitions(t *testing.T) {
	api := newAPI(t)
	t.Run("a bare cluster gets all definitions, whose conversion leads to the given namespace", func(t *testing.T) {
		if printed := install(t, api); strings.Count(printed, "created") != 4 {
			t.Errorf("got %q, want four definitions created", printed)
		}
		if service := get(t, api).Spec.Conversion.Webhook.ClientConfig.Service; service.Namespace != "di-elsewhere" {
			t.Errorf("got service %v", service)
		}
	})
	t.Run("installing again writes nothing", func(t *testing.T) {
		before := get(t, api)
		if printed := install(t, api); strings.Count(printed, "up to date") != 4 {
			t.Errorf("got %q, want four definitions up to date", printed)
		}
		if after := get(t, api); after.ResourceVersion != before.ResourceVersion {
			t.Error("the definition was written")
		}
	})
	t.Run("an older schema is brought up to date, and what the operator published stays", func(t *testing.T) {
		update(t, api, func(definition *apiextensionsv1.CustomResourceDefinition) {
			definition.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/convert")}
			version := &definition.Spec.Versions[1]
			delete(version.Schema.OpenAPIV3Schema.Properties["spec"].Properties, "suspend")
			definition.Annotations["other"] = "tool"
		})
		if printed := install(t, api); strings.Count(printed, "updated") != 1 {
			t.Errorf("got %q, want one definition updated", printed)
		}
		updated := get(t, api)
		if _, known := updated.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["spec"].Properties["suspend"]; !known {
			t.Error("the schema is not up to date")
		}
		if url := updated.Spec.Conversion.Webhook.ClientConfig.URL; url == nil || updated.Annotations["other"] != "tool" {
			t.Errorf("got conversion %v and annotations %v", updated.Spec.Conversion, updated.Annotations)
		}
	})
	t.Run("a retired definition serves stored jobs without a webhook", func(t *testing.T) { retires(t, api) })
	t.Run("installing after that serves both versions again, by the webhook", func(t *testing.T) {
		install(t, api)
		installed := get(t, api)
		if slices.ContainsFunc(installed.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool { return !version.Served }) {
			t.Error("a version is not served")
		}
		if installed.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter || installed.Annotations[crds.AnnotationRetired] != "" {
			t.Errorf("got conversion %v and annotations %v", installed.Spec.Conversion, installed.Annotations)
		}
	})
	t.Run("a definition of v1.0.0 is left alone, and the error says why", func(t *testing.T) { refuses(t, api) })
	t.Run("of a definition of v0.2.2 only cert-manager's annotation is taken away", func(t *testing.T) { releases(t, api) })
	t.Run("one write gives it both versions and the conversion between them, and what is stored stays", func(t *testing.T) { prepares(t, api) })
}

func retires(t *testing.T, api client.Client) {
	t.Helper()
	job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tasks": []any{}}}}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: "diengine.opendilab.org", Version: "v2alpha1", Kind: "DIJob"})
	job.SetNamespace(metav1.NamespaceDefault)
	job.SetName("kept")
	expect.NoError(t, api.Create(t.Context(), job))
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mutating"}}
	expect.NoError(t, api.Create(t.Context(), configuration))
	installer := &crds.Installer{API: api, Namespace: "di-elsewhere", Out: &bytes.Buffer{}}
	for range 2 {
		expect.NoError(t, installer.Retire(t.Context(), "mutating", "validating", dijobs))
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want the webhook configuration deleted", err)
	}
	eventually(t, "the job is written without a webhook", func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		job.SetLabels(map[string]string{"touched": "yes"})
		return api.Update(t.Context(), job)
	})
	job.SetAPIVersion("diengine.opendilab.org/v1alpha1")
	eventually(t, "v1alpha1 is not served", func() error {
		err := api.Get(t.Context(), client.ObjectKeyFromObject(job), job)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil
		}
		return fmt.Errorf("got %w", err)
	})
}

func refuses(t *testing.T, api client.Client) {
	t.Helper()
	update(t, api, func(definition *apiextensionsv1.CustomResourceDefinition) {
		definition.Spec.Versions = definition.Spec.Versions[1:]
		definition.Spec.Conversion = nil
		*definition.Spec.Versions[0].Schema = *withSpec("template", "engineFields")
		definition.Spec.Versions[0].SelectableFields = nil
	})
	before := get(t, api)
	err := (&crds.Installer{API: api, Namespace: "di-elsewhere", Out: &bytes.Buffer{}}).Install(t.Context())
	if err == nil || !strings.Contains(err.Error(), dijobs) || !strings.Contains(err.Error(), "v1.0.0") {
		t.Errorf("got error %v", err)
	}
	if after := get(t, api); after.ResourceVersion != before.ResourceVersion {
		t.Error("the definition was written")
	}
}

// withSpec returns a schema that knows these fields of the spec.
func withSpec(fields ...string) *apiextensionsv1.CustomResourceValidation {
	return known("", fields...).Schema
}

const inject = "cert-manager.io/inject-ca-from"

// makeEarlier changes a definition to the one that v0.2.2 installed, in a namespace.
func makeEarlier(t *testing.T, api client.Client, namespace string) {
	t.Helper()
	definition := get(t, api)
	expect.NoError(t, api.Delete(t.Context(), definition))
	eventually(t, "the definition is gone", func() error {
		err := api.Get(t.Context(), client.ObjectKey{Name: dijobs}, definition)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("got %w", err)
	})
	earlier := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: dijobs, Annotations: map[string]string{inject: namespace + "/di-serving-cert", "other": "tool"},
	}}
	definition.Spec.DeepCopyInto(&earlier.Spec)
	version := known("v1alpha1", "coordinator")
	version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	earlier.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
	earlier.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"},
		ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
			Namespace: namespace, Name: "di-webhook-service", Path: ptr.To("/mutate"),
		}},
	}}
	expect.NoError(t, api.Create(t.Context(), earlier))
}

func releases(t *testing.T, api client.Client) {
	t.Helper()
	makeEarlier(t, api, "di-elsewhere")
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: "di-validating-webhook-configuration", Annotations: map[string]string{inject: "di-elsewhere/di-serving-cert"},
	}}
	expect.NoError(t, api.Create(t.Context(), configuration))
	before := get(t, api)
	if printed := install(t, api); !strings.Contains(printed, "left as v0.2.2 made it") || !strings.Contains(printed, "next: start the webhooks and the operator") {
		t.Errorf("got %q", printed)
	}
	after := get(t, api)
	if !equality.Semantic.DeepEqual(after.Spec, before.Spec) {
		t.Errorf("got spec %v", after.Spec)
	}
	if _, injected := after.Annotations[inject]; injected || after.Annotations["other"] != "tool" {
		t.Errorf("got annotations %v", after.Annotations)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); err != nil || len(configuration.Annotations) > 0 {
		t.Errorf("got error %v and annotations %v", err, configuration.Annotations)
	}
	install(t, api)
	if again := get(t, api); again.ResourceVersion != after.ResourceVersion {
		t.Error("the definition was written again")
	}
}

func prepares(t *testing.T, api client.Client) {
	t.Helper()
	conversion := &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"},
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/convert")},
	}}
	before := get(t, api)
	elsewhere := &crds.Preparer{API: api, Namespace: "di-third", OwnCertificates: true}
	if err := elsewhere.Prepare(t.Context(), conversion); err == nil || !strings.Contains(err.Error(), "di-elsewhere") {
		t.Errorf("got error %v, want the namespace of the earlier release", err)
	}
	idle := &crds.Preparer{API: api, Namespace: "di-elsewhere", OwnCertificates: true, NoTakeover: true}
	refusesBeside(t, api, idle, conversion)
	here := &crds.Preparer{API: api, Namespace: "di-elsewhere", OwnCertificates: true}
	both := make(chan error)
	for range 2 {
		go func() { both <- here.Prepare(t.Context(), conversion) }()
	}
	expect.NoError(t, errors.Join(<-both, <-both))
	refusesBeside(t, api, idle, conversion)
	after := get(t, api)
	if after.Generation != before.Generation+1 {
		t.Errorf("got generation %d after %d, want one write", after.Generation, before.Generation)
	}
	if origin, storage := crds.OriginOf(after), crds.StorageOf(after); origin != crds.OriginOurs || storage != "v1alpha1" || len(after.Spec.Versions) != 2 {
		t.Errorf("got a definition of %s that stores %s", origin, storage)
	}
	if url := after.Spec.Conversion.Webhook.ClientConfig.URL; url == nil || *url != "https://127.0.0.1:1/convert" || after.Annotations["other"] != "tool" {
		t.Errorf("got conversion %v and annotations %v", after.Spec.Conversion, after.Annotations)
	}
	servesLater(t, api, conversion)
	after = get(t, api)
	after.Annotations[crds.AnnotationTakeover] = crds.TakenOver + " nothing is left"
	expect.NoError(t, api.Update(t.Context(), after))
	if err := idle.Prepare(t.Context(), conversion); err != nil {
		t.Errorf("got error %v of a takeover that is done", err)
	}
}

// servesLater expects that the added version is served once Serve is called, and not by an earlier
// installation or preparation.
func servesLater(t *testing.T, api client.Client, conversion *apiextensionsv1.CustomResourceConversion) {
	t.Helper()
	install(t, api)
	expect.NoError(t, (&crds.Preparer{API: api, Namespace: "di-elsewhere", OwnCertificates: true}).Prepare(t.Context(), conversion))
	before := get(t, api)
	if served := servedVersions(before); !slices.Equal(served, []string{"v1alpha1"}) || !crds.AwaitsWebhooks(before) {
		t.Errorf("got versions %q served before the webhooks answer", served)
	}
	expect.NoError(t, crds.Serve(t.Context(), api, before))
	if err := crds.Serve(t.Context(), api, before); !apierrors.IsConflict(err) {
		t.Errorf("got error %v of a process that is late, want a conflict", err)
	}
	install(t, api)
	after := get(t, api)
	if served := servedVersions(after); len(served) != 2 || crds.AwaitsWebhooks(after) || crds.StorageOf(after) != "v1alpha1" {
		t.Errorf("got versions %q served and %s stored", served, crds.StorageOf(after))
	}
}

func servedVersions(definition *apiextensionsv1.CustomResourceDefinition) []string {
	var served []string
	for _, version := range definition.Spec.Versions {
		if version.Served {
			served = append(served, version.Name)
		}
	}
	return served
}

// refusesBeside expects that nothing is written while the takeover of an earlier release is not
// done.
func refusesBeside(t *testing.T, api client.Client, idle *crds.Preparer, conversion *apiextensionsv1.CustomResourceConversion) {
	t.Helper()
	before := get(t, api)
	installer := &crds.Installer{API: api, Namespace: idle.Namespace, NoTakeover: true, Out: io.Discard}
	for _, err := range []error{idle.Prepare(t.Context(), conversion), installer.Install(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "takeover.enabled=true") {
			t.Errorf("got error %v, want the value that lets the operator take over", err)
		}
	}
	if get(t, api).ResourceVersion != before.ResourceVersion {
		t.Error("the definition was written")
	}
}

// eventually retries until the API server has observed a change.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	gomega.NewWithT(t).Eventually(try).WithContext(t.Context()).WithTimeout(testkit.Patience).WithPolling(50*time.Millisecond).Should(gomega.Succeed(), what)
}
