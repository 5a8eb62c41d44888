// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
)

// toldChanges is the maximum number of changes that are printed.
const toldChanges = 10

// storedAs reports whether a stored job has a version.
func storedAs(raw []byte, version string) bool {
	var kind struct {
		APIVersion string `json:"apiVersion"`
	}
	// A value that cannot be decoded has no version.
	return json.Unmarshal(raw, &kind) == nil && kind.APIVersion == v2alpha1.GroupName+"/"+version
}

// comparison compares jobs before and after.
type comparison struct {
	objects int
	// old is the number of jobs that do not have the new version, and missing the number that no
	// longer exist.
	old, missing int
	// changed are the fields that have changed, by job.
	changed []string
}

// add compares one job as stored before and now.
func (c *comparison) add(key string, then, now []byte) error {
	before, after, err := bothSeen(key, then, now)
	if err != nil {
		return err
	}
	c.note(key, differing("", before, after))
	return nil
}

// addLost compares only the earlier values: operators add fields to jobs, and write the status of
// jobs that have not finished.
func (c *comparison) addLost(key string, then, now []byte) error {
	before, after, err := bothSeen(key, then, now)
	if err != nil {
		return err
	}
	if status, ok := before["status"].(map[string]any); ok && status["phase"] != "Succeeded" && status["phase"] != "Failed" {
		delete(before, "status")
	}
	c.note(key, differing("", before, only(before, after)))
	return nil
}

// only returns the part of value whose keys also exist in in, at any depth.
func only(in, value any) any {
	wanted, isWanted := in.(map[string]any)
	from, isObject := value.(map[string]any)
	if !isWanted || !isObject {
		return value
	}
	kept := map[string]any{}
	for key := range wanted {
		if field, there := from[key]; there {
			kept[key] = only(wanted[key], field)
		}
	}
	return kept
}

func (c *comparison) note(key string, paths []string) {
	if len(paths) > 0 {
		c.changed = append(c.changed, key+": "+strings.Join(paths[:min(len(paths), toldChanges)], ", "))
	}
}

func bothSeen(key string, then, now []byte) (before, after map[string]any, err error) {
	if before, err = seen(then); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", key, err)
	}
	if after, err = seen(now); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", key, err)
	}
	return before, after, nil
}

// seen returns a stored job as read at v1alpha1, without fields that the other clients change on
// purpose and fields that every write changes.
func seen(raw []byte) (map[string]any, error) {
	converted, err := conversion.Convert(raw, v1alpha1.GroupVersion.String())
	if err != nil {
		return nil, fmt.Errorf("converting: %w", err)
	}
	var job map[string]any
	if err := json.Unmarshal(converted, &job); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	if metadata, ok := job["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		delete(metadata, "resourceVersion")
		if labels, ok := metadata["labels"].(map[string]any); ok {
			delete(labels, "touched")
		}
	}
	return job, nil
}

// differing returns the paths at which two values differ.
func differing(path string, before, after any) []string {
	was, wasObject := before.(map[string]any)
	is, isObject := after.(map[string]any)
	if !wasObject || !isObject {
		if reflect.DeepEqual(before, after) {
			return nil
		}
		return []string{fmt.Sprintf("%s was %.60v, is %.60v", path, before, after)}
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		paths = append(paths, differing(path+"."+key, was[key], is[key])...)
	}
	return paths
}
