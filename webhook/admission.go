// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves the webhooks of DIJobs and AggregatorConfigs: the conversion of jobs
// between versions, their defaulting, and the validation of both kinds. An error names the path in
// the version that the user wrote.
//
// The server reads and writes nothing but its own certificate authority and the objects that
// publish it. It needs no cache and no leader election, so that it serves before its dependents
// start.
package webhook

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/webhook/crdschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// The served paths, one for each version and operation.
const (
	PathConvert    = "/convert"
	PathMutateV1   = "/mutate-v1alpha1-dijob"
	PathMutateV2   = "/mutate-v2alpha1-dijob"
	PathValidateV1 = "/validate-v1alpha1-dijob"
	PathValidateV2 = "/validate-v2alpha1-dijob"
	// PathValidateAggregatorConfig is for both versions, which have the same schema.
	PathValidateAggregatorConfig = "/validate-aggregatorconfig"
	PathValidateScalePlan        = "/validate-scaleplan"
)

// The served paths whose answers depend on objects that the webhooks read. A secret token follows each.
const (
	// PathValidateScale is for the scale subresource of jobs.
	PathValidateScale = "/validate-dijob-scale"
	// PathValidatePlannedJob is for the job that a ScalePlan names.
	PathValidatePlannedJob = "/validate-planned-dijob"
	// PathCheckPods is for dry runs of both versions.
	PathCheckPods = "/check-dijob-pods"
)

const (
	kindDIJob            = "DIJob"
	kindAggregatorConfig = "AggregatorConfig"
	kindScalePlan        = "ScalePlan"
)

// hooks is what the webhooks decide by.
type hooks struct {
	bounds     validation.Bounds
	fields     podFields
	jobs       client.Reader
	checks     *podChecks
	namespaces scope.Namespaces
	// namespace is the one of the installation.
	namespace string
	guard     *guard
}

// newHandler returns the handler of all paths.
func newHandler(log logr.Logger, metrics *hookMetrics, by hooks) (http.Handler, error) {
	schema, err := crdschema.New()
	if err != nil {
		return nil, fmt.Errorf("admission webhooks: %w", err)
	}
	rules := validation.NewRules(schema, by.bounds)
	resizes := &scaling{jobs: by.jobs, maxPods: by.bounds.MaxPods, namespace: by.namespace}
	mux, admitted := http.NewServeMux(), newIntake(metrics.Refused)
	mux.Handle(PathConvert, metrics.timed(conversion.NewHandler(conversion.Options{Observer: metrics, MaxReviewBytes: reviewBytes(debug.SetMemoryLimit(-1))})))
	for path, handle := range map[string]admission.HandlerFunc{
		PathMutateV1:   mutating(validation.DefaultV1),
		PathMutateV2:   mutating(validation.DefaultV2),
		PathValidateV1: by.validating(rules.ValidateV1),
		PathValidateV2: by.validating(rules.ValidateV2),

		PathValidateAggregatorConfig: validateAggregatorConfig(by.fields),
		PathValidateScalePlan:        validatePlan,
		PathValidateScale:            resizes.validateScale,
		PathValidatePlannedJob:       resizes.validatePlannedJob,
	} {
		handler, err := admissionHandler(log, path, metrics.counted(path, handle))
		if err != nil {
			return nil, err
		}
		by.handle(mux, path, admitted.handler(handler))
	}
	// Its reviews take no room of others.
	handler, err := admissionHandler(log, PathCheckPods, metrics.counted(PathCheckPods, by.checks.check))
	if err != nil {
		return nil, err
	}
	by.handle(mux, PathCheckPods, newIntake(metrics.Refused).handler(handler))
	return mux, nil
}

// handle registers the handler of a path, behind the guard if its answers depend on objects that the webhooks
// read.
func (h *hooks) handle(mux *http.ServeMux, path string, handler http.Handler) {
	if slices.Contains(guardedPaths(), path) {
		h.guard.handle(mux, path, handler)
		return
	}
	mux.Handle(path, handler)
}

func guardedPaths() []string {
	return []string{PathValidateScale, PathValidatePlannedJob, PathCheckPods}
}

// reviewBytes returns the maximum size of a conversion review in a process with a memory limit; the
// largest number means no limit. A body and its answer together use less than half of the limit.
func reviewBytes(memoryLimit int64) int64 {
	const least = 8 << 20
	return min(conversion.DefaultMaxReviewBytes, max(least, memoryLimit/5))
}

// admissionHandler returns the handler of one path. A panic fails only its own request.
func admissionHandler(log logr.Logger, path string, handle admission.HandlerFunc) (http.Handler, error) {
	recovering := true
	handler, err := admission.StandaloneWebhook(
		&admission.Webhook{Handler: handle, RecoverPanic: &recovering},
		admission.StandaloneOptions{Logger: log, MetricsPath: path},
	)
	if err != nil {
		return nil, fmt.Errorf("admission webhook %s: %w", path, err)
	}
	return handler, nil
}

// readRequest decodes the objects of an admission request.
func readRequest(ctx context.Context, request *admission.Request) (*validation.Request, error) {
	read := &validation.Request{
		Create:      request.Operation == admissionv1.Create,
		Subresource: request.SubResource,
		Raw:         request.Object.Raw,
		OldRaw:      request.OldObject.Raw,
		Left:        ctx.Err,

		FieldManager: fieldManagerOf(request),
	}
	if err := read.Decode(); err != nil {
		return nil, err
	}
	return read, nil
}

type (
	// defaulter returns the defaults of a job as a patch.
	defaulter func(*validation.Request) (validation.Patch, error)
	// validator returns the errors of a job.
	validator func(*validation.Request) field.ErrorList
	// answerer answers a request that was read.
	answerer func(context.Context, *admission.Request, *validation.Request) admission.Response
)

// mutating answers with the patch of the defaulting function. The API server calls it before it
// validates the schema. The schema's errors about a value of a wrong type do not name the value
// and, for an integer that is too large, not the path.
func mutating(defaults defaulter) admission.HandlerFunc {
	return answering(func(_ context.Context, request *admission.Request, read *validation.Request) admission.Response {
		operations, err := defaults(read)
		if err != nil {
			return unreadable(request, err)
		}
		operations = append(operations, validation.Creator(read, request.UserInfo.Username)...)
		return admission.Patched("", operations...).WithWarnings(validation.ApplyWarnings(read)...)
	})
}

// validating answers with the errors of the validation function, and with warnings.
func (h hooks) validating(validate validator) admission.HandlerFunc {
	return answering(func(ctx context.Context, request *admission.Request, read *validation.Request) admission.Response {
		read.ByAutoscaler = isAutoscaler(request, h.namespace)
		errs := validate(read)
		if read.HasLeft() {
			return admission.Response{}
		}
		refused, unknown := h.fields.check(ctx, request, func(known validation.PodFields) field.ErrorList {
			return validation.UnknownFields(read, known)
		})
		warnings := slices.Concat(h.warnNamespace(request), unknown, validation.Warnings(read))
		return answer(kindDIJob, request.Name, append(errs, refused...), bounded(warnings))
	})
}

// answering decodes a request and passes it to a function. It refuses a job whose lists are too
// long for that reason alone, because no other rule handles such lists.
func answering(about answerer) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		read, err := readRequest(ctx, &request)
		if err != nil {
			return unreadable(&request, err)
		}
		var response admission.Response
		if !read.HasLeft() {
			if errs := validation.CheckLists(read); len(errs) > 0 {
				return notValid(kindDIJob, request.Name, errs)
			}
			response = about(ctx, &request, read)
		}
		if err := ctx.Err(); err != nil {
			return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("the caller has gone: %w", err))
		}
		return response
	}
}

// answer returns an admission response: allowed if there are no errors, with the warnings.
func answer(kind, name string, errs field.ErrorList, warnings []string) admission.Response {
	if len(errs) > 0 {
		return notValid(kind, name, errs).WithWarnings(warnings...)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// unreadable returns the response for a job that does not decode.
func unreadable(request *admission.Request, err error) admission.Response {
	if errs := validation.Mistyped(request.Object.Raw); len(errs) > 0 && validation.IsObject(request.Object.Raw) {
		return notValid(kindDIJob, request.Name, errs)
	}
	return admission.Errored(http.StatusBadRequest, err)
}

// mostErrors is the maximum number of errors in a response. The time to format them grows with the
// square of their number.
const mostErrors = 20

// errorLength is the maximum length of each part of an error, in bytes.
const errorLength = 1024

// cut truncates a part of an error.
func cut(text string) string {
	if len(text) <= errorLength {
		return text
	}
	return strings.ToValidUTF8(text[:errorLength], "") + "..."
}

// notValid returns the response for an invalid object, with the first errors.
func notValid(kind, name string, errs field.ErrorList) admission.Response {
	told := make(field.ErrorList, 0, mostErrors+1)
	for _, err := range errs[:min(len(errs), mostErrors)] {
		short := *err
		if text, ok := short.BadValue.(string); ok {
			short.BadValue = cut(text)
		}
		short.Field, short.Detail = cut(short.Field), cut(short.Detail)
		told = append(told, &short)
	}
	if more := len(errs) - mostErrors; more > 0 {
		told = append(told, &field.Error{
			Type: field.ErrorTypeInvalid, Field: "object", BadValue: field.OmitValueType{}, Detail: fmt.Sprintf("and %d more errors", more),
		})
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.GroupName, Kind: kind}, name, told).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &invalid}}
}
