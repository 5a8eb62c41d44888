// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conversion maps the kinds of v1alpha1 to those of v2alpha1 and back. It also serves this
// mapping as the conversion endpoint of the CRD.
//
// The mapping is pure, total and exact. It converts every object that either schema accepts, and
// the way back restores the object. It works on JSON and interprets only what differs between the
// versions. Everything else, pod templates first of all, keeps the bytes that were read.
//
// Fields that only v2alpha1 has are kept in spec.extended and status.extended of v1alpha1, never in
// annotations. Fields that v1alpha1 has itself take precedence; extended completes them.
//
// The package must not default, validate, read a cluster, or touch metadata.
package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Convert returns the object, which is JSON, in the API version, such as
// diengine.opendilab.org/v2alpha1. It fails if the input is not an object of a kind and version of
// this group. It never fails because of an object's content.
func Convert(raw []byte, apiVersion string) ([]byte, error) {
	if !json.Valid(raw) {
		return nil, errors.New("the object is not valid JSON")
	}
	return convertValid(raw, apiVersion)
}

// convertValid is Convert for input that is known to be valid JSON.
func convertValid(raw []byte, apiVersion string) ([]byte, error) {
	in, ok := parseObject(raw)
	if !ok {
		return nil, errors.New("the object is not a JSON object")
	}
	from := in.text("apiVersion")
	fromVersion, err := knownVersion(from)
	if err != nil {
		return nil, fmt.Errorf("apiVersion: %w", err)
	}
	toVersion, err := knownVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("desired version: %w", err)
	}
	kind := in.text("kind")
	if kind != "DIJob" && kind != "AggregatorConfig" {
		return nil, fmt.Errorf("kind: %q is not one of those with several versions, DIJob and AggregatorConfig", kind)
	}
	if fromVersion == toVersion {
		return raw, nil
	}
	out := append(object(nil), in...)
	out.set("apiVersion", quote(apiVersion))
	if kind == "DIJob" {
		convertJob(out, toVersion)
	}
	return out.bytes(), nil
}

// knownVersion returns the version of an apiVersion of this group.
func knownVersion(apiVersion string) (string, error) {
	group, version, _ := strings.Cut(apiVersion, "/")
	if group != v2alpha1.GroupName || (version != v1alpha1.Version && version != v2alpha1.Version) {
		return "", fmt.Errorf("%q is neither %s nor %s", apiVersion, v1alpha1.GroupVersion, v2alpha1.GroupVersion)
	}
	return version, nil
}

// convertJob converts the spec and the status of a DIJob in place. Parts that are missing, or that
// are not objects, stay unchanged.
func convertJob(job object, toVersion string) {
	specToOther, statusToOther := specToHub, statusToHub
	if toVersion == v1alpha1.Version {
		specToOther, statusToOther = specFromHub, statusFromHub
	}
	// The v1alpha1 form of the spec determines the keys of a status, in both directions.
	var v1 object
	replace(job, "spec", func(spec object) object {
		converted := specToOther(spec)
		if v1 = spec; toVersion == v1alpha1.Version {
			v1 = converted
		}
		return converted
	})
	replace(job, "status", func(status object) object { return statusToOther(status, taskKeys(v1)) })
}

// replace replaces a member that is an object by the result of the function.
func replace(o object, key string, convert func(object) object) {
	i := o.find(key, nil)
	if i < 0 {
		return
	}
	if part, ok := parseObject(o[i].value); ok {
		o[i].value = convert(part).bytes()
	}
}
