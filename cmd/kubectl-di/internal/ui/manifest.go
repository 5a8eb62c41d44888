// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
)

// manifest returns a job as YAML, as the API server converts it.
func (s *Server) manifest(r *http.Request) (any, error) {
	version := cmp.Or(r.URL.Query().Get("version"), v2alpha1.Version)
	if version != v1alpha1.Version && version != v2alpha1.Version {
		return nil, gate.BadRequest(fmt.Errorf("version %q: want %s or %s", version[:min(len(version), 20)], v1alpha1.Version, v2alpha1.Version))
	}
	text, err := s.yaml(r, version)
	if err != nil {
		return nil, err
	}
	return api.Manifest{Version: version, YAML: text}, nil
}

func (s *Server) yaml(r *http.Request, version string) (string, error) {
	found, job, err := s.readJob(r)
	if err != nil {
		return "", err
	}
	manifest, err := found.Manifest(r.Context(), version, job.Name)
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(manifest.Object)
	return string(text), err
}

// difference compares both versions of a job line by line.
func (s *Server) difference(r *http.Request) (any, error) {
	texts := map[string][]string{}
	for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
		text, err := s.yaml(r, version)
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
