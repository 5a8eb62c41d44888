// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conversion maps the kinds of v1alpha1 to those of v2alpha1 and back,
// and serves that as the conversion endpoint of the CRD.
//
// The mapping is pure, total and exact: every object that either schema can
// hold converts, and comes back as it was. It works on JSON, of which it
// interprets only what the two versions say differently; all the rest, pod
// templates first of all, travels as the bytes that were read. What only
// v2alpha1 can say is kept, seen from v1alpha1, in spec.extended and
// status.extended, never in annotations. For all that v1alpha1 can say its own
// fields win; extended completes them.
//
// It must not default, validate, read a cluster, or touch metadata.
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
// diengine.opendilab.org/v2alpha1. It fails for what is no object of a kind and
// version of this group, and never for an object's content.
func Convert(raw []byte, apiVersion string) ([]byte, error) {
	if !json.Valid(raw) {
		return nil, errors.New("the object is not valid JSON")
	}
	return convertValid(raw, apiVersion)
}

// convertValid is Convert for what is known to be valid JSON.
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

// convertJob converts the spec and the status of a DIJob in place. Parts that
// are missing, or that are no objects, stay as they are.
func convertJob(job object, toVersion string) {
	specToOther, statusToOther := specToHub, statusToHub
	if toVersion == v1alpha1.Version {
		specToOther, statusToOther = specFromHub, statusFromHub
	}
	// The keys of a status follow from the spec in v1alpha1's form, whichever way
	// it goes.
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

// replace replaces a member that is an object by what the function makes of it.
func replace(o object, key string, convert func(object) object) {
	i := o.find(key, nil)
	if i < 0 {
		return
	}
	if part, ok := parseObject(o[i].value); ok {
		o[i].value = convert(part).bytes()
	}
}
