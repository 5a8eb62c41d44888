// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// validateAggregatorConfig holds the template of aggregators to the same rules
// as those of tasks. An AggregatorConfig has the same shape in both versions.
func validateAggregatorConfig(fields podFields) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		template, err := aggregatorTemplate(request.Object.Raw)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("object: %w", err))
		}
		at := field.NewPath("spec", "aggregator", "template")
		var old []byte
		errs, found := validateTemplate(template, at), warnAggregators(template, at)
		if request.Operation == admissionv1.Update {
			// What does not decode of a stored one must not keep anybody from mending it.
			old, _ = aggregatorTemplate(request.OldObject.Raw)
			errs, found = less(errs, validateTemplate(old, at)), fewer(found, warnAggregators(old, at))
		}
		refused, unknown := fields.judge(ctx).told(&request, func(j judge) field.ErrorList {
			return less(j.inTemplate(template, at), j.inTemplate(old, at))
		})
		return answer(kindAggregatorConfig, request.Name, append(errs, refused...), bounded(append(unknown, found...)))
	}
}

// aggregatorTemplate returns the template of an AggregatorConfig of either version.
func aggregatorTemplate(raw []byte) ([]byte, error) {
	config := &v2alpha1.AggregatorConfig{}
	if err := json.Unmarshal(raw, config); err != nil {
		return nil, fmt.Errorf("decoding the AggregatorConfig: %w", err)
	}
	if config.Kind != kindAggregatorConfig {
		return nil, fmt.Errorf("kind %q, want %s", config.Kind, kindAggregatorConfig)
	}
	return config.Spec.Aggregator.Template.Raw, nil
}

// warnAggregators says what the template holds that aggregators will not.
func warnAggregators(raw []byte, at *field.Path) []string {
	template, found := readRaw[corev1.PodTemplateSpec](raw, at)
	var w notes
	if len(found.mistyped) == 0 {
		w.overridden(template, replicaOverrides(names.ReplicaTypeAggregator), at)
		w.untoldPorts(names.ReplicaTypeAggregator, &template.Spec, at.Child("spec"))
	}
	return w
}
