// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/webhook/validation"
)

// validateAggregatorConfig validates AggregatorConfigs, which have the same schema in both
// versions.
func validateAggregatorConfig(fields podFields) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		config, err := validation.ReadAggregator(request.Object.Raw, request.OldObject.Raw, request.Operation != admissionv1.Update)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("object: %w", err))
		}
		refused, unknown := fields.check(ctx, &request, func(known validation.PodFields) field.ErrorList {
			return config.UnknownFields(known)
		})
		return answer(kindAggregatorConfig, request.Name, append(config.Validate(), refused...), bounded(append(unknown, config.Warnings()...)))
	}
}
