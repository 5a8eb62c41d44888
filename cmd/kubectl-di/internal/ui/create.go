// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
)

// longestYAML bounds the YAML of a job, in bytes.
const longestYAML = 50_000

// create creates a job, or says what the API server finds in it.
func (s *Server) create(r *http.Request) (any, error) {
	request := &api.CreateRequest{}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(request); err != nil {
		return nil, gate.BadRequest(fmt.Errorf("the body is wrong: %w", err))
	}
	if request.DryRun == nil {
		return nil, gate.BadRequest(errors.New("dryRun is missing: want true or false"))
	}
	job, err := jobOf(request.YAML)
	if err != nil {
		return nil, gate.BadRequest(err)
	}
	job.SetNamespace(cmp.Or(job.GetNamespace(), s.Namespace, s.Cluster.Namespace))
	if s.Namespace != "" && job.GetNamespace() != s.Namespace {
		return nil, gate.Refuse(http.StatusForbidden, "Forbidden", fmt.Sprintf("metadata.namespace is %s: only the jobs of namespace %s are shown", job.GetNamespace(), s.Namespace))
	}
	if err := s.Cluster.In(job.GetNamespace()).Submit(r.Context(), job, metav1.FieldValidationStrict, *request.DryRun); err != nil {
		return nil, err
	}
	created := api.Created{Done: !*request.DryRun, Namespace: job.GetNamespace(), Name: cmp.Or(job.GetName(), job.GetGenerateName())}
	created.Effects = []string{fmt.Sprintf("Job %s is created in namespace %s.", created.Name, created.Namespace)}
	cleaned(job)
	text, err := yaml.Marshal(job.Object)
	created.YAML = string(text)
	return created, err
}

// jobOf returns the only job of a text.
func jobOf(text string) (*unstructured.Unstructured, error) {
	if len(text) > longestYAML {
		return nil, fmt.Errorf("yaml has %d bytes: want at most %d", len(text), longestYAML)
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), len(text)+1)
	job := &unstructured.Unstructured{}
	switch err := documents.Decode(&job.Object); {
	case errors.Is(err, io.EOF) || err == nil && len(job.Object) == 0:
		return nil, errors.New("yaml is empty: want a DIJob")
	case err != nil:
		return nil, fmt.Errorf("yaml is wrong: %w", err)
	}
	if err := documents.Decode(&map[string]any{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("yaml has several documents: want one DIJob. kubectl di submit -f creates several at once")
	}
	known := job.GetAPIVersion() == v2alpha1.GroupVersion.String() || job.GetAPIVersion() == v1alpha1.GroupVersion.String()
	if !known || job.GetKind() != "DIJob" {
		return nil, fmt.Errorf("kind is %q of %q: want DIJob of %s or %s", job.GetKind(), job.GetAPIVersion(), v2alpha1.GroupVersion, v1alpha1.GroupVersion)
	}
	return job, nil
}
