// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// MistypedPlan returns errors for the values of a ScalePlan that do not fit its Go type.
func MistypedPlan(raw []byte) field.ErrorList {
	return jsontype.Compare(raw, reflect.TypeFor[v2alpha1.ScalePlan](), nil).Mistyped
}

// ScalePlan returns the errors of a plan that concern no job. The schema bounds its lists.
func ScalePlan(plan *v2alpha1.ScalePlan) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if job := plan.Spec.Job; len(validation.IsDNS1123Subdomain(job)) > 0 {
		errs = append(errs, field.Invalid(at.Child("job"), jsontype.Shorten(job), "must be the name of a job: lower-case letters, digits and -"))
	}
	for i := range plan.Spec.Tasks[:min(len(plan.Spec.Tasks), limits.Tasks)] {
		errs = append(errs, validateResources(plan.Spec.Tasks[i].Resources, at.Child("tasks").Index(i).Child("resources"))...)
	}
	for i := range plan.Spec.Migrate[:min(len(plan.Spec.Migrate), limits.PlanPods)] {
		if full(errs) {
			break
		}
		errs = append(errs, validateResources(plan.Spec.Migrate[i].Resources, at.Child("migrate").Index(i).Child("resources"))...)
	}
	return errs
}

// ScalePlanOf returns why a plan cannot be executed on its job. The members of a coordinator-led job are
// unknown, so its pods are checked when the plan is reviewed.
func ScalePlanOf(plan *v2alpha1.ScalePlan, job *v2alpha1.DIJob, maxPods int32) field.ErrorList {
	if maxPods == 0 {
		maxPods = limits.PodsPerJob
	}
	_, problems := scaling.Read(plan, job, nil, maxPods)
	errs := make(field.ErrorList, 0, len(problems))
	for _, problem := range problems {
		path, detail, _ := strings.Cut(problem, ": ")
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{}, Detail: detail})
	}
	return errs
}
