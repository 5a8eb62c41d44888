// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// scaling validates what resizes a job from outside of it: requests to dijobs/scale, and ScalePlans. Both
// name the job only, so that it is read from the API server.
type scaling struct {
	jobs client.Reader
	// maxPods is the maximum number of pods of a job; 0 for the default.
	maxPods int32
	// namespace is the one of the operator's account.
	namespace string
}

// job reads a job. It returns an error that IsNotFound recognizes if there is none.
func (s *scaling) job(ctx context.Context, namespace, name string) (*v2alpha1.DIJob, error) {
	if s.jobs == nil {
		return nil, errors.New("reading the job: there is no client")
	}
	job := &v2alpha1.DIJob{}
	if err := s.jobs.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job); err != nil {
		return nil, fmt.Errorf("reading job %s: %w", name, err)
	}
	return job, nil
}

// validateScale validates a request to dijobs/scale. Only the autoscaler writes the number of a task that
// follows a ratio rule.
func (s *scaling) validateScale(ctx context.Context, request admission.Request) admission.Response {
	scale := &autoscalingv1.Scale{}
	if err := decodeKind(request.Object.Raw, "Scale", scale); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if isAutoscaler(&request, s.namespace) {
		return admission.Allowed("")
	}
	job, err := s.job(ctx, request.Namespace, request.Name)
	switch {
	case apierrors.IsNotFound(err):
		// The API server says so itself.
		return admission.Allowed("")
	case err != nil:
		return admission.Errored(http.StatusServiceUnavailable, err)
	}
	return answer(kindDIJob, request.Name, validation.Rescale(job, scale.Spec.Replicas), nil)
}

// validatePlan validates a new ScalePlan by itself. Its spec is immutable.
func validatePlan(_ context.Context, request admission.Request) admission.Response {
	plan := &v2alpha1.ScalePlan{}
	if errs, err := readPlan(request.Object.Raw, plan); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	} else if len(errs) > 0 {
		return notValid(kindScalePlan, request.Name, errs)
	}
	return answer(kindScalePlan, request.Name, validation.ScalePlan(plan), nil)
}

// validatePlannedJob validates a new ScalePlan for the job that it names. The operator does the same before it
// executes the plan, so a plan passes while no webhook answers.
func (s *scaling) validatePlannedJob(ctx context.Context, request admission.Request) admission.Response {
	plan := &v2alpha1.ScalePlan{}
	if errs, err := readPlan(request.Object.Raw, plan); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	} else if len(errs) > 0 || len(validation.ScalePlan(plan)) > 0 {
		// Another webhook reports it.
		return admission.Allowed("")
	}
	job, err := s.job(ctx, request.Namespace, plan.Spec.Job)
	switch {
	case apierrors.IsNotFound(err):
		return notValid(kindScalePlan, request.Name, field.ErrorList{field.Invalid(field.NewPath("spec", "job"), plan.Spec.Job,
			"must be a job of namespace "+request.Namespace+", which has none of this name")})
	case err != nil:
		return admission.Errored(http.StatusServiceUnavailable, err)
	}
	return answer(kindScalePlan, request.Name, validation.ScalePlanOf(plan, job, s.maxPods), nil)
}

// readPlan decodes a ScalePlan. It returns errors for quantities that take too long to decode.
func readPlan(raw []byte, plan *v2alpha1.ScalePlan) (field.ErrorList, error) {
	if err := checkKind(raw, kindScalePlan); err != nil {
		return nil, err
	}
	if errs := validation.MistypedPlan(raw); len(errs) > 0 {
		return errs, nil
	}
	return nil, decodeKind(raw, kindScalePlan, plan)
}

// checkKind returns an error if JSON is not an object of the kind.
func checkKind(raw []byte, kind string) error {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(raw, &meta); err != nil {
		return fmt.Errorf("object: decoding the %s: %w", kind, err)
	}
	if meta.Kind != kind {
		return fmt.Errorf("object: kind %q, want %s", meta.Kind, kind)
	}
	return nil
}

func decodeKind(raw []byte, kind string, into any) error {
	if err := checkKind(raw, kind); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("object: decoding the %s: %w", kind, err)
	}
	return nil
}

// isAutoscaler reports whether the operator's autoscaler sends a request. Every client may name its field manager, so
// the account counts as well: one of the namespace of the installation.
func isAutoscaler(request *admission.Request, namespace string) bool {
	return fieldManagerOf(request) == names.AutoscalerName && slices.Contains(request.UserInfo.Groups, accountsOf+namespace)
}

// accountsOf begins the name of the group of a namespace's service accounts.
const accountsOf = "system:serviceaccounts:"

// fieldManagerOf returns the field manager that a request names, "" if it names none.
func fieldManagerOf(request *admission.Request) string {
	var options struct {
		FieldManager string `json:"fieldManager"`
	}
	// The API server encodes the options, so decoding cannot fail.
	_ = json.Unmarshal(request.Options.Raw, &options)
	return options.FieldManager
}
