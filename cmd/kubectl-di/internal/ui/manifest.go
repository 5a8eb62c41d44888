// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/fields"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
)

// manifest returns a job as YAML, as the API server converts it.
func (s *Server) manifest(r *http.Request) (any, error) {
	version := cmp.Or(r.URL.Query().Get("version"), v2alpha1.Version)
	if version != v1alpha1.Version && version != v2alpha1.Version {
		return nil, gate.BadRequest(fmt.Errorf("version %q: want %s or %s", version[:min(len(version), 20)], v1alpha1.Version, v2alpha1.Version))
	}
	clean, err := boolean(r.URL.Query().Get("clean"))
	if err != nil {
		return nil, gate.BadRequest(fmt.Errorf("clean %w", err))
	}
	text, err := s.yaml(r, version, clean)
	if err != nil {
		return nil, err
	}
	return api.Manifest{Version: version, YAML: text}, nil
}

// yaml returns a job as YAML; clean without what the server writes.
func (s *Server) yaml(r *http.Request, version string, clean bool) (string, error) {
	found, job, err := s.readJob(r)
	if err != nil {
		return "", err
	}
	manifest, err := found.Manifest(r.Context(), version, job.Name)
	if err != nil {
		return "", err
	}
	if clean {
		cleaned(manifest)
	}
	text, err := yaml.Marshal(manifest.Object)
	return string(text), err
}

// cleaned drops the status of a job and what the server writes.
func cleaned(manifest *unstructured.Unstructured) {
	delete(manifest.Object, "status")
	if metadata, isMap := manifest.Object["metadata"].(map[string]any); isMap {
		fields.Clean(metadata)
	}
}

// difference compares both versions of a job line by line.
func (s *Server) difference(r *http.Request) (any, error) {
	texts := map[string][]string{}
	for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
		text, err := s.yaml(r, version, false)
		if err != nil {
			return nil, err
		}
		texts[version] = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	left, right := texts[v1alpha1.Version], texts[v2alpha1.Version]
	result := api.Difference{Left: v1alpha1.Version, Right: v2alpha1.Version, Lines: []api.DiffLine{}}
	add := func(kind string, lines []string) {
		for _, line := range lines {
			result.Lines = append(result.Lines, api.DiffLine{Kind: kind, Text: line})
		}
	}
	for _, step := range difflib.NewMatcher(left, right).GetOpCodes() {
		if step.Tag == 'e' {
			add("same", left[step.I1:step.I2])
			continue
		}
		add("removed", left[step.I1:step.I2])
		add("added", right[step.J1:step.J2])
	}
	return result, nil
}
