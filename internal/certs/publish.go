// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager owns the published fields.
const fieldManager = client.FieldOwner("di-orchestrator-webhook")

// Endpoint is the address of the webhooks for the API server: a Service in its cluster, or a URL of
// scheme, host and port.
type Endpoint struct {
	// URL takes precedence if it is not empty.
	URL string
	// Namespace, Service and Port identify the Service.
	Namespace, Service string
	Port               int32
}

// Hosts returns the names that a serving certificate must have.
func (e Endpoint) Hosts(hostOfURL string) []string {
	if e.URL != "" {
		return []string{hostOfURL}
	}
	name := e.Service + "." + e.Namespace + ".svc"
	return []string{name, e.Service + "." + e.Namespace, name + ".cluster.local"}
}

// clientConfig returns the client configuration of a path.
func (e Endpoint) clientConfig(path string, bundle []byte) map[string]any {
	config := map[string]any{"caBundle": base64.StdEncoding.EncodeToString(bundle)}
	if e.URL != "" {
		config["url"] = e.address(path)
		return config
	}
	config["service"] = map[string]any{
		"namespace": e.Namespace, "name": e.Service, "path": path, "port": int64(e.Port),
	}
	return config
}

// address returns the URL of a path.
func (e Endpoint) address(path string) string {
	return strings.TrimSuffix(e.URL, "/") + path
}

// Publication describes where the bundle and the endpoint are published. All the objects must
// exist.
type Publication struct {
	// CRD is the CustomResourceDefinition whose objects ConversionPath converts.
	CRD, ConversionPath string
	// Mutating and Validating are the names of the webhook configurations, and
	// MutatingPaths and ValidatingPaths the paths of their webhooks by name.
	Mutating, Validating           string
	MutatingPaths, ValidatingPaths map[string]string
	// GuardedPaths are the paths of further webhooks of Validating. The published paths end with a token.
	GuardedPaths map[string]string
	// Endpoint is the address of the webhooks.
	Endpoint Endpoint
}

// Publish writes the endpoint, the bundle and the token of guarded paths to all objects that differ. If
// it returns no error, it has read them back from all of them.
func (p *Publication) Publish(ctx context.Context, api client.Client, trust *Trust, token string) (*Outcome, error) {
	outcome := &Outcome{}
	var failures []error
	for _, at := range p.places(token) {
		failures = append(failures, p.publish(ctx, api, trust, at, outcome))
	}
	return outcome, errors.Join(failures...)
}

func (p *Publication) places(token string) []place {
	validating := configuration("ValidatingWebhookConfiguration", p.Validating, maps.Clone(p.ValidatingPaths))
	validating.guarded = p.GuardedPaths
	for name, path := range p.GuardedPaths {
		validating.paths[name] = path + "/" + token
	}
	return []place{
		conversion(p.CRD, p.ConversionPath),
		configuration("MutatingWebhookConfiguration", p.Mutating, p.MutatingPaths),
		validating,
	}
}

// Conversion returns the conversion stanza with the endpoint and a bundle, for a definition that
// has none yet.
func (p *Publication) Conversion(bundle []byte) *apiextensionsv1.CustomResourceConversion {
	config := &apiextensionsv1.WebhookClientConfig{CABundle: bundle}
	if p.Endpoint.URL != "" {
		config.URL = ptr.To(p.Endpoint.address(p.ConversionPath))
	} else {
		config.Service = &apiextensionsv1.ServiceReference{
			Namespace: p.Endpoint.Namespace, Name: p.Endpoint.Service, Path: ptr.To(p.ConversionPath), Port: ptr.To(p.Endpoint.Port),
		}
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: config, ConversionReviewVersions: []string{"v1"}},
	}
}

// place is one object with client configurations.
type place struct {
	gvk  schema.GroupVersionKind
	name string
	// paths maps the names of client configurations to their paths.
	paths map[string]string
	// guarded has the names of those whose paths end with a token.
	guarded map[string]string
	// configs returns the client configurations by name.
	configs func(*unstructured.Unstructured) map[string]map[string]any
	// field is the name of the client configurations' field in managed fields.
	field string
	// isWhole reports whether everything except the client configurations is as desired.
	isWhole func(*unstructured.Unstructured) bool
	// isNeedless reports whether the object needs no publication.
	isNeedless func(*unstructured.Unstructured) bool
	// patch returns the apply configuration of the desired client configurations. It keeps the
	// order of the object, because applying a list orders it.
	patch func(found *unstructured.Unstructured, wanted map[string]map[string]any) map[string]any
}

// publish updates one object. If it differs, publish writes it and reads it back, twice if the
// first write had to switch the endpoint.
func (p *Publication) publish(ctx context.Context, api client.Client, trust *Trust, at place, outcome *Outcome) error {
	for range 3 {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(at.gvk)
		if err := api.Get(ctx, client.ObjectKey{Name: at.name}, found); err != nil {
			return fmt.Errorf("publishing to %s %s: %w", at.gvk.Kind, at.name, err)
		}
		if at.isNeedless(found) {
			return nil
		}
		before := found.DeepCopy()
		wanted, reset := p.wanted(at, found, trust, outcome)
		upToDate, err := at.write(ctx, api, found, wanted)
		if apierrors.IsConflict(err) {
			// Another replica publishes at the same time.
			continue
		}
		if err != nil {
			return fmt.Errorf("publishing to %s %s: %w", at.gvk.Kind, at.name, err)
		}
		if upToDate {
			return nil
		}
		if len(reset) > 0 && !isOurs(before, reset) {
			outcome.Resets = append(outcome.Resets, Reset{Object: before, Parts: reset, Manager: managerOf(before, at.field)})
		}
	}
	return fmt.Errorf("publishing to %s %s: %w", at.gvk.Kind, at.name, errNotYet)
}

// wanted returns the desired client configurations of an object, and the parts that differ from
// them.
func (p *Publication) wanted(at place, found *unstructured.Unstructured, trust *Trust, outcome *Outcome) (wanted map[string]map[string]any, reset []string) {
	wanted = map[string]map[string]any{}
	current := at.configs(found)
	if !at.isWhole(found) {
		reset = append(reset, PartConversion)
	}
	for name, path := range at.paths {
		encoded, _ := current[name]["caBundle"].(string)
		// A value that does not decode has no bundle.
		there, _ := base64.StdEncoding.DecodeString(encoded)
		bundle, stands := trust.over(there)
		wanted[name] = p.Endpoint.clientConfig(path, bundle)
		outcome.Joined = outcome.Joined || stands.joins
		outcome.Shared = outcome.Shared || stands.shared
		_, guarded := at.guarded[name]
		reset = append(reset, partsOf(current[name], wanted[name], stands, guarded)...)
	}
	return wanted, sorted(reset)
}

// write writes the differences, and reports whether there were none.
func (at place) write(ctx context.Context, api client.Client, found *unstructured.Unstructured, wanted map[string]map[string]any) (bool, error) {
	configs := at.configs(found)
	upToDate, inTheWay := at.isWhole(found), false
	for name, config := range wanted {
		current, ok := configs[name]
		if !ok {
			return false, fmt.Errorf("it has no webhook %s: apply the manifest of this version", name)
		}
		upToDate = upToDate && equality.Semantic.DeepEqual(current, config)
		if excluded(config, current) {
			inTheWay = true
		}
	}
	if upToDate {
		return true, nil
	}
	if inTheWay {
		return false, switchEndpoint(ctx, api, found, configs, wanted)
	}
	patch := &unstructured.Unstructured{Object: at.patch(found, wanted)}
	patch.SetGroupVersionKind(at.gvk)
	patch.SetName(at.name)
	// The resource version prevents that the patch drops a bundle that another replica has added
	// since the read.
	patch.SetResourceVersion(found.GetResourceVersion())
	return false, api.Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), fieldManager, client.ForceOwnership)
}

// excluded reports whether the current stanza has a service and the desired one a URL, or the
// reverse. An apply cannot remove fields of other owners.
func excluded(wanted, current map[string]any) bool {
	for _, key := range []string{"url", "service"} {
		_, isWanted := wanted[key]
		_, isThere := current[key]
		if isThere && !isWanted {
			return true
		}
	}
	return false
}

// switchEndpoint replaces the stanzas with an update of the object.
func switchEndpoint(ctx context.Context, api client.Client, found *unstructured.Unstructured, configs, wanted map[string]map[string]any) error {
	for name, config := range wanted {
		clear(configs[name])
		for key, value := range config {
			configs[name][key] = value
		}
	}
	return api.Update(ctx, found, fieldManager)
}

// conversion returns the place of the conversion stanza of a CRD.
func conversion(name, path string) place {
	const stanza = "conversion"
	return place{
		gvk:   schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		name:  name,
		paths: map[string]string{stanza: path},
		field: stanza,
		isWhole: func(crd *unstructured.Unstructured) bool {
			versions, _, _ := unstructured.NestedStringSlice(crd.Object, "spec", stanza, "webhook", "conversionReviewVersions")
			return strategyOf(crd) == "Webhook" && slices.Equal(versions, []string{"v1"})
		},
		isNeedless: func(crd *unstructured.Unstructured) bool { return strategyOf(crd) != "Webhook" && !hasVersions(crd) },
		configs: func(crd *unstructured.Unstructured) map[string]map[string]any {
			// The stanza is absent while no webhook converts. In that case it cannot conflict.
			config, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "conversion", "webhook", "clientConfig")
			current, _ := config.(map[string]any)
			return map[string]map[string]any{stanza: current}
		},
		patch: func(_ *unstructured.Unstructured, wanted map[string]map[string]any) map[string]any {
			return map[string]any{"spec": map[string]any{"conversion": map[string]any{
				"strategy": "Webhook",
				"webhook": map[string]any{
					"clientConfig":             wanted[stanza],
					"conversionReviewVersions": []any{"v1"},
				},
			}}}
		},
	}
}

func strategyOf(crd *unstructured.Unstructured) string {
	strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
	return strategy
}

// hasVersions reports whether a CRD has more than one version that is served or stored, so that its
// objects need conversion. A retired CRD has only one.
func hasVersions(crd *unstructured.Unstructured) bool {
	live, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
	listed, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range listed {
		version, _ := item.(map[string]any)
		name, _ := version["name"].(string)
		if version["served"] == true || version["storage"] == true {
			live = append(live, name)
		}
	}
	slices.Sort(live)
	return len(slices.Compact(live)) > 1
}

// configuration returns the place of a webhook configuration.
func configuration(kind, name string, paths map[string]string) place {
	return place{
		gvk:   schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind},
		name:  name,
		paths: paths,
		field: "clientConfig",
		// The other fields belong to the manifests.
		isWhole:    func(*unstructured.Unstructured) bool { return true },
		isNeedless: func(*unstructured.Unstructured) bool { return false },
		configs: func(object *unstructured.Unstructured) map[string]map[string]any {
			configs := map[string]map[string]any{}
			listed, _, _ := unstructured.NestedFieldNoCopy(object.Object, "webhooks")
			webhooks, _ := listed.([]any)
			for _, item := range webhooks {
				webhook, _ := item.(map[string]any)
				hookName, _ := webhook["name"].(string)
				if config, ok := webhook["clientConfig"].(map[string]any); ok {
					configs[hookName] = config
				}
			}
			return configs
		},
		patch: func(found *unstructured.Unstructured, wanted map[string]map[string]any) map[string]any {
			webhooks := make([]any, 0, len(wanted))
			listed, _, _ := unstructured.NestedSlice(found.Object, "webhooks")
			for _, item := range listed {
				webhook, _ := item.(map[string]any)
				hookName, _ := webhook["name"].(string)
				if config, ours := wanted[hookName]; ours {
					webhooks = append(webhooks, map[string]any{"name": hookName, "clientConfig": config})
				}
			}
			return map[string]any{"webhooks": webhooks}
		},
	}
}
