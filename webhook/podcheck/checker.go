// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Checker creates pods in dry run.
type Checker struct {
	api rest.Interface
}

// NewChecker returns a checker with the rights of a client configuration.
func NewChecker(config *rest.Config) (*Checker, error) {
	own := rest.CopyConfig(config)
	// Warnings are findings.
	own.WarningHandler, own.WarningHandlerWithContext = rest.NoWarnings{}, nil
	own.APIPath, own.GroupVersion = "/api", &corev1.SchemeGroupVersion
	own.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	// Without Accept the client asks for the configured content type; statuses come as JSON.
	own.ContentType, own.AcceptContentTypes = "application/json", "application/json"
	api, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("client of pods: %w", err)
	}
	return &Checker{api: api}, nil
}

// Check creates a pod in dry run. Unknown fields are handled as the field validation says. It returns
// an error if the API server does not answer, or if the caller may not create pods.
func (c *Checker) Check(ctx context.Context, pod *Pod, fieldValidation string) (Findings, error) {
	found := Findings{Task: pod.Task}
	body, err := json.Marshal(pod.content)
	if err != nil {
		return found, fmt.Errorf("encoding pod %s: %w", pod.name, err)
	}
	answer := c.api.Post().Namespace(pod.Namespace).Resource("pods").
		VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: fieldValidation}, scheme.ParameterCodec).
		Body(body).Do(ctx)
	for _, warning := range answer.Warnings() {
		found.Warnings = append(found.Warnings, pod.findings(warning.Text)...)
	}
	err = answer.Error()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), noDryRun):
		found.Unchecked = err.Error()
	default:
		if found.Refused = pod.refusals(err); len(found.Refused) == 0 {
			return found, err
		}
	}
	return found, nil
}
