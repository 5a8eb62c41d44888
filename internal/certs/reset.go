// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The parts of what is published that others reset.
const (
	// PartConversion is the strategy of the conversion, and how reviews are asked for.
	PartConversion = "conversion"
	// PartBundle is whom the API server is to trust.
	PartBundle = "caBundle"
	// PartEndpoint is where the API server is to call.
	PartEndpoint = "endpoint"
)

// Reset is what was found to be something else than what was published, and was
// published again.
type Reset struct {
	// Object is what was reset, as it was found.
	Object *unstructured.Unstructured
	// Parts are those that were reset, in the order of the constants.
	Parts []string
	// Manager is the field manager that has written them last, as far as it is known.
	Manager string
}

// Outcome is what publishing came to.
type Outcome struct {
	// Joined says that the bundle was put beside others, by which somebody may serve.
	Joined bool
	// Shared says that others are published beside the bundle.
	Shared bool
	// Resets are the objects that somebody else had reset.
	Resets []Reset
}

// managerOf returns who has reset a field of an object, of those who have written since
// it was published: the last of those who own the most of the field. It is nothing where
// nobody is recorded, as a writer who only removes fields may not be.
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

// share returns how much of a field somebody owns: 2 for what is in it, 1 for the field
// alone, and 0 for nothing. Who created an object owns the field for as long as it is
// there, whoever sets what is in it; and times, of a second, often are the same.
func share(entry *metav1.ManagedFieldsEntry, field string) int {
	if !owns(entry, field) {
		return 0
	}
	if strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+field+`":{".":{}}`) {
		return 1
	}
	return 2
}

func owns(entry *metav1.ManagedFieldsEntry, field string) bool {
	return entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+field+`"`)
}

// isOurs reports whether nobody else has reset what is not as wanted: replicas that
// follow each other have bundles of their own.
func isOurs(object *unstructured.Unstructured, reset []string) bool {
	return slices.Equal(reset, []string{PartBundle}) && slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == string(fieldManager) && owns(&entry, "caBundle")
	})
}

// partsOf tells which parts of one client configuration are not as wanted. That
// others are trusted besides is nobody's fault.
func partsOf(current, wanted map[string]any, stands beside) []string {
	var parts []string
	if stands.missing {
		parts = append(parts, PartBundle)
	}
	same := func(config map[string]any) string {
		return fmt.Sprint(config["url"], config["service"])
	}
	if same(current) != same(wanted) {
		parts = append(parts, PartEndpoint)
	}
	return parts
}

// sorted brings parts into their order, each once.
func sorted(parts []string) []string {
	var once []string
	for _, part := range []string{PartConversion, PartBundle, PartEndpoint} {
		if slices.Contains(parts, part) {
			once = append(once, part)
		}
	}
	return once
}

// String says what was reset, and by whom.
func (r *Reset) String() string {
	by := ""
	if r.Manager != "" {
		by = ", by " + r.Manager
	}
	return fmt.Sprintf("%s of %s %s was overwritten%s", strings.Join(r.Parts, ", "), r.Object.GetKind(), r.Object.GetName(), by)
}

// Watch calls back whenever one of the places has changed, until the context
// ends. Where it cannot watch it tries again later, and tells why by the other
// callback.
func (p *Publication) Watch(ctx context.Context, api client.WithWatch, clk clock.WithTicker, changed func(), failed func(error)) {
	for _, at := range p.places() {
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

// watch watches one object until the API server ends that.
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

// errNotYet says that somebody else was faster.
var errNotYet = errors.New("somebody else keeps changing it")
