// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"strings"
)

// The groups that preceded v1alpha1: that of NerveX, and the first one under the new name.
const (
	nervexGroup = "nervex.sensetime.com"
	firstGroup  = "diengine.sensetime.com"
)

func isAncestor(head *header) bool {
	switch head.group() {
	case nervexGroup:
		return head.Kind == "NerveXJob" || head.Kind == "NervexJob" || head.Kind == "AggregatorConfig"
	case firstGroup:
		return head.Kind == "DIJob" || head.Kind == "AggregatorConfig"
	}
	return false
}

// importAncestor imports a manifest with the structure of v1alpha1 under an older name.
func importAncestor(m *manifest) any {
	metadata := m.takeMetadata()
	m.dropStatus()
	if namespace, _ := metadata["namespace"].(string); strings.Contains(namespace, "nervex") {
		m.note(Path{"metadata", "namespace"}, namespace, "names NerveX and stays as it is", "move it where it belongs now; the operator looks for the cluster's AggregatorConfig in di-system unless told otherwise")
	}
	kind := "DIJob"
	roles, fields := []string{"coordinator", "collector", "learner"}, []string{"group", "priorityClassName", "cleanPodPolicy", "volumes"}
	if m.rest["kind"] == "AggregatorConfig" {
		kind, roles, fields = "AggregatorConfig", []string{"aggregator"}, nil
	}
	spec := m.takeMembers(Path{"spec"}, append(fields, roles...))
	for _, role := range roles {
		content, _ := spec[role].(map[string]any)
		template, _ := content["template"].(map[string]any)
		renaming{container: "nervex-container", port: "nervex-port", toPort: mainPort}.apply(m, template, Path{"spec", role, "template"})
	}
	m.noteOldNames(Path{"metadata"}, metadata)
	m.noteOldNames(Path{"spec"}, spec)
	object := map[string]any{"apiVersion": legacyVersion(), "kind": kind}
	if metadata != nil {
		object["metadata"] = metadata
	}
	if spec != nil {
		object["spec"] = spec
	}
	return object
}

// takeMembers imports the known members of an object. It returns nil if there is no object.
func (m *manifest) takeMembers(at Path, known []string) map[string]any {
	if m.parent(at.Child("")) == nil {
		return nil
	}
	taken := map[string]any{}
	for _, key := range known {
		if value := m.take(at.Child(key)); value != nil {
			taken[key] = value
		}
	}
	return taken
}

// noteOldNames reports values that mention NerveX. They may be intended, so none is rewritten.
func (m *manifest) noteOldNames(at Path, value any) {
	eachLeaf(at, value, func(where Path, value any) {
		text, _ := value.(string)
		key := where[len(where)-1]
		if where.String() == "metadata.namespace" || !strings.Contains(strings.ToLower(text+" "+key), "nervex") {
			return
		}
		m.note(where, value, "names NerveX and stays as it is", adviceOn(where, text))
	})
}

// adviceOn returns the advice for a value that mentions NerveX.
func adviceOn(where Path, text string) string {
	switch key := where[len(where)-1]; {
	case key == "image":
		return "use an image of DI-engine"
	case strings.Contains(text, "nervex-server"):
		return "di-server is reached at di-server.di-system:8080, which pods are told in KUBERNETES_SERVER_URL"
	case strings.Contains(text, "nervex -m"):
		return "the program of DI-engine is called ding"
	}
	return "change it if it is not meant to stay"
}
