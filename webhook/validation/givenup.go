// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// applied are the fields of managers at v1alpha1.
type applied struct {
	// before and after are what the manager of a request owned and owns.
	before, after *fieldpath.Set
	// others are the fields of all other managers.
	others *fieldpath.Set
	// isShared is set if a manager owns a part of the spec at another version.
	isShared bool
}

// givenUp is what a server-side apply at v1alpha1 left out and that is still there.
type givenUp struct {
	// paths are JSON pointers of it, in order. object is the object without it.
	paths  []string
	object map[string]any
	// isShared is set if a manager of v2alpha1 owns a part of the spec: it may own what was left out.
	isShared bool
}

// readGivenUp returns what a request gave up; nothing if it does not apply at v1alpha1.
func readGivenUp(request *Request) (found givenUp) {
	if request.Create || request.Subresource != "" || writtenInV2(request.Raw) {
		return found
	}
	if fields := readApplied(request); fields != nil {
		found.isShared = fields.isShared
		found.object, found.paths = fields.dropped(request.Raw)
	}
	return found
}

// dropGivenUp removes the fields of the spec that a server-side apply gave up, and returns the resulting
// object. The API server keeps them once another manager has written at v2alpha1, as the operator does with
// each status: it compares what remains at that version, where all tasks are one value. Fields that a manager of
// v2alpha1 may own stay.
func dropGivenUp(changes *Patch, request *Request) []byte {
	found := readGivenUp(request)
	if found.isShared || len(found.paths) == 0 {
		return request.Raw
	}
	for _, path := range found.paths {
		changes.remove(path)
	}
	// A decoded object encodes again.
	raw, _ := json.Marshal(found.object)
	return raw
}

// ApplyWarnings returns a warning about fields that a server-side apply at v1alpha1 gave up and that stay.
func ApplyWarnings(request *Request) []string {
	found := readGivenUp(request)
	if !found.isShared || len(found.paths) == 0 {
		return nil
	}
	shown := strings.ReplaceAll(strings.TrimPrefix(found.paths[0], "/"), "/", ".")
	if more := len(found.paths) - 1; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return []string{shown + ": is left out but stays, because another field manager owns a part of the spec in v2alpha1: remove it by kubectl edit, or apply v2alpha1"}
}

// dropped returns an object without the fields of the spec that a manager gave up, and the JSON pointers of what
// was removed, in order.
func (a *applied) dropped(raw []byte) (object map[string]any, removed []string) {
	gone := a.before.Difference(a.after).Difference(a.others).Leaves()
	object, isObject := decodeObject(raw)
	if gone.Empty() || !isObject {
		return nil, nil
	}
	kept := a.after.Union(a.others)
	paths := map[string]bool{}
	gone.Iterate(func(path fieldpath.Path) {
		if names := memberNames(path); len(names) > 1 && names[0] == "spec" {
			if pointer := drop(object, names, kept); pointer != nil {
				paths["/"+strings.Join(pointer, "/")] = true
			}
		}
	})
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if !hasParent(paths, path) {
			removed = append(removed, path)
		}
	}
	return object, removed
}

// decodeObject decodes the object of a request.
func decodeObject(raw []byte) (map[string]any, bool) {
	value, err := jsontype.DecodeAny(raw)
	object, isObject := value.(map[string]any)
	return object, err == nil && isObject
}

// hasParent reports whether another path contains a path.
func hasParent(paths map[string]bool, path string) bool {
	for at := strings.LastIndexByte(path, '/'); at > 0; at = strings.LastIndexByte(path[:at], '/') {
		if paths[path[:at]] {
			return true
		}
	}
	return false
}

// memberNames returns the names of a path of members; nil if it leads through a list.
func memberNames(path fieldpath.Path) []string {
	names := make([]string, len(path))
	for i := range path {
		if path[i].FieldName == nil {
			return nil
		}
		names[i] = *path[i].FieldName
	}
	return names
}

// drop removes a member, and objects that it leaves empty unless a manager owns them. It returns the path of
// what it removed, as parts of a JSON pointer; nil if the member is not there.
func drop(object map[string]any, names []string, kept *fieldpath.Set) []string {
	parents := []map[string]any{object}
	for _, name := range names[:len(names)-1] {
		child, isObject := parents[len(parents)-1][name].(map[string]any)
		if !isObject {
			return nil
		}
		parents = append(parents, child)
	}
	last := len(names) - 1
	if _, exists := parents[last][names[last]]; !exists {
		return nil
	}
	delete(parents[last], names[last])
	for last > 1 && len(parents[last]) == 0 && !kept.Has(fieldpath.MakePathOrDie(asAny(names[:last])...)) {
		last--
		delete(parents[last], names[last])
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	removed := slices.Clone(names[:last+1])
	for i := range removed {
		removed[i] = escape.Replace(removed[i])
	}
	return removed
}

func asAny(names []string) []any {
	parts := make([]any, len(names))
	for i := range names {
		parts[i] = names[i]
	}
	return parts
}

// readApplied returns the fields of the managers of a request that applies at v1alpha1; nil for another request.
func readApplied(request *Request) *applied {
	old, written := managedFields(request.OldRaw), managedFields(request.Raw)
	found := &applied{before: &fieldpath.Set{}, others: &fieldpath.Set{}}
	for i := range written {
		entry := &written[i]
		isV1 := entry.APIVersion == v1alpha1.GroupVersion.String()
		set, ok := fieldsOf(entry)
		switch {
		case !ok:
			return nil
		case request.applies(entry):
			found.after = set
		case isV1:
			found.others = found.others.Union(set)
		case entry.Subresource == "":
			found.isShared = found.isShared || !set.WithPrefix(fieldpath.MakePathOrDie("spec")[0]).Empty()
		}
	}
	if found.after == nil {
		return nil
	}
	for i := range old {
		if set, ok := fieldsOf(&old[i]); ok && request.applies(&old[i]) {
			found.before = set
		}
	}
	return found
}

// applies reports whether an entry is that of the manager of the request, which applies at v1alpha1.
func (r *Request) applies(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == r.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
		entry.APIVersion == v1alpha1.GroupVersion.String() && entry.Subresource == ""
}

// managedFields returns the managers of an object.
func managedFields(raw []byte) []metav1.ManagedFieldsEntry {
	var object struct {
		Metadata struct {
			ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	return object.Metadata.ManagedFields
}

// fieldsOf returns the fields of a manager. It reports whether they decode.
func fieldsOf(entry *metav1.ManagedFieldsEntry) (*fieldpath.Set, bool) {
	set := &fieldpath.Set{}
	if entry.FieldsV1 == nil {
		return set, true
	}
	return set, set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) == nil
}
