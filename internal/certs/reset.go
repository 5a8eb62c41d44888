// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The parts of the published configuration that other tools may reset.
const (
	// PartConversion is the strategy of the conversion and the versions of its reviews.
	PartConversion = "conversion"
	// PartBundle is the CA bundle.
	PartBundle = "caBundle"
	// PartEndpoint is the URL or Service of the webhooks.
	PartEndpoint = "endpoint"
)

// Reset is a difference from the published configuration that was found and restored.
type Reset struct {
	// Object is the object as it was found.
	Object *unstructured.Unstructured
	// Parts are the parts that were reset, in the order of the constants.
	Parts []string
	// Manager is the field manager that last wrote them, if known.
	Manager string
}

// Outcome is the result of publishing.
type Outcome struct {
	// Joined reports whether the bundle was added to the authorities of others, which may still
	// serve.
	Joined bool
	// Shared reports whether other authorities are published beside the bundle.
	Shared bool
	// Resets are the objects that another tool had reset.
	Resets []Reset
}

// managerOf returns the field manager that reset a field of an object. Candidates have written
// since the publication. It chooses the candidate that owns the most of the field, and among those
// the latest. It returns "" if there is no candidate: a manager that only removes fields may not be
// recorded.
func managerOf(object *unstructured.Unstructured, field string) string {
	var published *metav1.Time
	var others []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		switch {
		case entry.Subresource != "":
		case entry.Manager == string(fieldManager):
			published = entry.Time
		default:
			others = append(others, entry)
		}
	}
	others = slices.DeleteFunc(others, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Time == nil || entry.Time.Before(published)
	})
	slices.SortStableFunc(others, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(share(&a, field), share(&b, field)), a.Time.Compare(b.Time.Time))
	})
	if len(others) == 0 {
		return ""
	}
	return others[len(others)-1].Manager
}

// share returns how much of a field a manager owns: 2 for its content, 1 for the field alone, 0 for
// nothing. The creator of an object owns the field as long as it exists, even if other managers set
// its content. Times have a resolution of a second and are often equal.
func share(entry *metav1.ManagedFieldsEntry, field string) int {
	if !owns(entry, field) {
		return 0
	}
	fields := entry.FieldsV1.GetRawString()
	for _, alone := range []string{`{".":{}}`, `{}`} {
		if strings.Contains(fields, `"f:`+field+`":`+alone) {
			return 1
		}
	}
	return 2
}

func owns(entry *metav1.ManagedFieldsEntry, field string) bool {
	return entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+field+`"`)
}

// isOurs reports whether only another replica changed the parts: replicas that follow each other
// have different bundles.
func isOurs(object *unstructured.Unstructured, reset []string) bool {
	return slices.Equal(reset, []string{PartBundle}) && slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == string(fieldManager) && owns(&entry, "caBundle")
	})
}

// partsOf returns the parts of one client configuration that differ from the desired ones.
// Additional authorities are not a difference, and neither is a guarded path: manifests leave it out, and
// replicas with different authorities have different tokens.
func partsOf(current, wanted map[string]any, stands beside, guarded bool) []string {
	var parts []string
	if stands.missing {
		parts = append(parts, PartBundle)
	}
	if endpointOf(current, guarded) != endpointOf(wanted, guarded) {
		parts = append(parts, PartEndpoint)
	}
	return parts
}

// endpointOf returns the endpoint of a client configuration, without its path if that is guarded.
func endpointOf(config map[string]any, guarded bool) string {
	address, _ := config["url"].(string)
	service, _ := config["service"].(map[string]any)
	if guarded {
		service = maps.Clone(service)
		delete(service, "path")
		if parsed, err := url.Parse(address); err == nil {
			parsed.Path = ""
			address = parsed.String()
		}
	}
	return fmt.Sprint(address, service)
}

// sorted returns the distinct parts in the order of the constants.
func sorted(parts []string) []string {
	var once []string
	for _, part := range []string{PartConversion, PartBundle, PartEndpoint} {
		if slices.Contains(parts, part) {
			once = append(once, part)
		}
	}
	return once
}

// String describes what was reset, and by which manager.
func (r *Reset) String() string {
	by := ""
	if r.Manager != "" {
		by = ", by " + r.Manager
	}
	return fmt.Sprintf("%s of %s %s was overwritten%s", strings.Join(r.Parts, ", "), r.Object.GetKind(), r.Object.GetName(), by)
}

// Watch calls changed whenever a published object has changed, until the context ends. If a watch
// fails, it calls failed and retries later.
func (p *Publication) Watch(ctx context.Context, api client.WithWatch, clk clock.WithTicker, changed func(), failed func(error)) {
	for _, at := range p.places("") {
		go func() {
			for ctx.Err() == nil {
				err := at.watch(ctx, api, changed)
				if err != nil && ctx.Err() == nil {
					failed(err)
				}
				// Only the end of the context is an error.
				_ = pause(ctx, clk)
			}
		}()
	}
}

// watch watches one object until the API server ends the watch.
func (at place) watch(ctx context.Context, api client.WithWatch, changed func()) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: at.gvk.Group, Version: at.gvk.Version, Kind: at.gvk.Kind + "List"})
	watching, err := api.Watch(ctx, list, client.MatchingFields{metav1.ObjectNameField: at.name})
	if err != nil {
		return fmt.Errorf("watching %s %s: %w", at.gvk.Kind, at.name, err)
	}
	defer watching.Stop()
	for range watching.ResultChan() {
		changed()
	}
	return nil
}

// errNotYet reports that each attempt conflicted with another writer.
var errNotYet = errors.New("somebody else keeps changing it")
