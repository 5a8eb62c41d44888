// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/webhook/podschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// The API server truncates warnings to 256 characters each and 4096 in total.
const (
	mostWarnings  = 10
	warningLength = 256
)

// bounded returns the first warnings, and how many were omitted.
func bounded(warnings []string) []string {
	if more := len(warnings) - mostWarnings; more > 0 {
		warnings = append(warnings[:mostWarnings:mostWarnings], fmt.Sprintf("and %d more warnings", more))
	}
	for i, warning := range warnings {
		if len(warning) > warningLength {
			warnings[i] = strings.ToValidUTF8(warning[:warningLength-3], "") + "..."
		}
	}
	return warnings
}

// warnNamespace warns that no operator runs the job of a request.
func (h hooks) warnNamespace(request *admission.Request) []string {
	if request.Operation != admissionv1.Create || h.namespaces.Has(request.Namespace) {
		return nil
	}
	return []string{fmt.Sprintf("metadata.namespace: %s is none of the namespaces whose jobs this installation runs (common.watchNamespaces): nothing runs this one",
		request.Namespace)}
}

// podFields returns the schema of the API server's pods; nil if the API server does not publish it.
type podFields func(context.Context) *podschema.Schema

// check finds unknown fields and handles them according to the request's fieldValidation: error,
// warning or nothing. Without the API server's schema it returns no errors, because the API
// server's pods may have fields that these Go types do not know.
func (fields podFields) check(
	ctx context.Context, request *admission.Request, find func(validation.PodFields) field.ErrorList,
) (errs field.ErrorList, warnings []string) {
	var options struct {
		FieldValidation string `json:"fieldValidation"`
	}
	// The API server encodes the options, so decoding cannot fail. The default is Warn.
	_ = json.Unmarshal(request.Options.Raw, &options)
	if options.FieldValidation == metav1.FieldValidationIgnore {
		return nil, nil
	}
	// A nil schema must become a nil interface.
	var known validation.PodFields
	if fields != nil {
		if schema := fields(ctx); schema != nil {
			known = schema
		}
	}
	unknown := find(known)
	if options.FieldValidation == metav1.FieldValidationStrict && known != nil {
		return unknown, nil
	}
	warnings = make([]string, len(unknown))
	for i, err := range unknown {
		// The API server uses the same text for fields in the schemas that it knows.
		warnings[i] = fmt.Sprintf("unknown field %q", err.Field)
	}
	return nil, warnings
}
