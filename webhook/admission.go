// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves what the API server asks about DIJobs and
// AggregatorConfigs: the conversion of jobs between the versions, their
// defaults, and whether both are valid. An error names the path in the version
// that the user wrote.
//
// It reads and writes nothing but its own certificate authority and the places
// where that is published, needs no cache and is not leader-elected, so that
// it serves before anything that depends on it starts.
package webhook

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
)

// The paths that are served, one for each version and question.
const (
	PathConvert    = "/convert"
	PathMutateV1   = "/mutate-v1alpha1-dijob"
	PathMutateV2   = "/mutate-v2alpha1-dijob"
	PathValidateV1 = "/validate-v1alpha1-dijob"
	PathValidateV2 = "/validate-v2alpha1-dijob"
	// PathValidateAggregatorConfig is for both versions, which are alike.
	PathValidateAggregatorConfig = "/validate-aggregatorconfig"
)

const (
	kindDIJob            = "DIJob"
	kindAggregatorConfig = "AggregatorConfig"
	subresourceStatus    = "status"
)

// newHandler returns the handler of all paths.
func newHandler(log logr.Logger, metrics *hookMetrics, size bounds, fields podFields) (http.Handler, error) {
	schema, err := newHubSchema()
	if err != nil {
		return nil, fmt.Errorf("admission webhooks: %w", err)
	}
	mux, admitted := http.NewServeMux(), newIntake(metrics.Refused)
	mux.Handle(PathConvert, metrics.timed(conversion.NewHandler(conversion.Options{Observer: metrics, MaxReviewBytes: reviewBytes(debug.SetMemoryLimit(-1))})))
	for path, handle := range map[string]admission.HandlerFunc{
		PathMutateV1:   mutating(defaultV1),
		PathMutateV2:   mutating(defaultV2),
		PathValidateV1: validating(fields, within(size, inTurn(validateView, validateExtended, schema.validate, validateKept, validateV1))),
		PathValidateV2: validating(fields, within(size, validateV2)),

		PathValidateAggregatorConfig: validateAggregatorConfig(fields),
	} {
		handler, err := admissionHandler(log, path, metrics.counted(path, handle))
		if err != nil {
			return nil, err
		}
		mux.Handle(path, admitted.handler(handler))
	}
	return mux, nil
}

// reviewBytes returns up to which size a conversion review is read in a process with that
// memory limit, which is none where it is the largest number: body and answer together take
// less than half of it.
func reviewBytes(memoryLimit int64) int64 {
	const least = 8 << 20
	return min(conversion.DefaultMaxReviewBytes, max(least, memoryLimit/5))
}

// admissionHandler returns the handler of one path. A panic is the answer to
// its own request only.
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

// question is what an admission request asks: an object, and for an update
// what it replaces, each as it was sent and in the hub's form.
type question struct {
	create      bool
	subresource string
	raw, oldRaw []byte
	job, old    *v2alpha1.DIJob
	bounds
	// left returns an error once whoever asked has gone; nil where nobody waits.
	left func() error
}

// bounds are what the size of a job depends on beside the job.
type bounds struct {
	// maxPods is how many pods a job may have; 0 for as many as by default.
	maxPods int32
	// domain is that of the cluster's services, in which pods have their addresses;
	// the usual one where it is empty.
	domain string
}

func readQuestion(ctx context.Context, request *admission.Request) (*question, error) {
	asked := &question{
		create:      request.Operation == admissionv1.Create,
		subresource: request.SubResource,
		raw:         request.Object.Raw,
		oldRaw:      request.OldObject.Raw,
		left:        ctx.Err,
	}
	var err error
	if asked.job, err = decodeHub(asked.raw); err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	if asked.create || asked.hasLeft() {
		return asked, nil
	}
	if asked.old, err = decodeHub(asked.oldRaw); asked.old == nil {
		return nil, fmt.Errorf("oldObject: %w", err)
	}
	// What does not decode of a stored job must not keep anybody from mending it.
	return asked, nil
}

// hasLeft reports whether whoever asked has gone, so that nobody reads the answer.
func (q *question) hasLeft() bool {
	return q.left != nil && q.left() != nil
}

// decodeHub reads a job of either version in the hub's form. Where a value does
// not fit, it returns the rest of the job with the error.
func decodeHub(raw []byte) (*v2alpha1.DIJob, error) {
	converted, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	job := &v2alpha1.DIJob{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(converted, job); err != nil {
		return job, fmt.Errorf("decoding the job: %w", err)
	}
	return job, nil
}

// mistyped returns what of an object its version's type cannot hold.
func mistyped(raw []byte) field.ErrorList {
	if writtenInV2(raw) {
		return compare(raw, reflect.TypeFor[v2alpha1.DIJob](), nil).mistyped
	}
	return compare(raw, reflect.TypeFor[v1alpha1.DIJob](), nil).mistyped
}

// mutating answers with the patch that the function wants. It is asked before
// the schema is, whose answer about a value of the wrong type names neither the
// value nor, for an integer that is too large, the path.
func mutating(defaults func(*question) (patch, error)) admission.HandlerFunc {
	return answering(func(_ context.Context, request *admission.Request, asked *question) admission.Response {
		operations, err := defaults(asked)
		if err != nil {
			return unreadable(request, err)
		}
		return admission.Patched("", operations...)
	})
}

// validating answers with the errors that the function finds, and with what the
// writer should know besides.
func validating(fields podFields, validate func(*question) field.ErrorList) admission.HandlerFunc {
	return answering(func(ctx context.Context, request *admission.Request, asked *question) admission.Response {
		errs := validate(asked)
		if asked.hasLeft() {
			return admission.Response{}
		}
		refused, unknown := fields.judge(ctx).told(request, func(j judge) field.ErrorList { return j.ofJob(asked) })
		return answer(kindDIJob, request.Name, append(errs, refused...), bounded(append(unknown, warnings(asked)...)))
	})
}

// answering reads what is asked and has it answered. A job whose lists are too long, which
// no rule is made for, is refused for that alone.
func answering(about func(context.Context, *admission.Request, *question) admission.Response) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		asked, err := readQuestion(ctx, &request)
		if err != nil {
			return unreadable(&request, err)
		}
		var response admission.Response
		if !asked.hasLeft() {
			if errs := validateLists(asked, pathsOf(asked.raw, asked.job)); len(errs) > 0 {
				return notValid(kindDIJob, request.Name, errs)
			}
			response = about(ctx, &request, asked)
		}
		if err := ctx.Err(); err != nil {
			return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("the caller has gone: %w", err))
		}
		return response
	}
}

// within lets a validation hold jobs to a size.
func within(size bounds, validate func(*question) field.ErrorList) func(*question) field.ErrorList {
	return func(asked *question) field.ErrorList {
		asked.bounds = size
		return validate(asked)
	}
}

// answer is the answer that an object is valid if there are no errors, and what
// its writer should know.
func answer(kind, name string, errs field.ErrorList, warnings []string) admission.Response {
	if len(errs) > 0 {
		return notValid(kind, name, errs).WithWarnings(warnings...)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// unreadable is the answer about a job that does not decode.
func unreadable(request *admission.Request, err error) admission.Response {
	if errs := mistyped(request.Object.Raw); len(errs) > 0 && members(request.Object.Raw) != nil {
		return notValid(kindDIJob, request.Name, errs)
	}
	return admission.Errored(http.StatusBadRequest, err)
}

// mostErrors is how many errors an answer has: their text is put together in a
// time that grows with its square.
const mostErrors = 20

// errorLength is how long each part of an error may be, in bytes.
const errorLength = 1024

// cut cuts a part of an error.
func cut(text string) string {
	if len(text) <= errorLength {
		return text
	}
	return strings.ToValidUTF8(text[:errorLength], "") + "..."
}

// notValid is the answer that an object is not valid, with the first errors.
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

// patch is a JSON patch of what defaults change, and nothing else: encoding
// the decoded job would lose what its type does not know.
type patch []jsonpatch.Operation

// set adds or replaces the member at the path, whose parent must exist.
func (p *patch) set(path string, value any) {
	*p = append(*p, jsonpatch.NewOperation("add", path, value))
}

// remove removes the member at the path, which must exist.
func (p *patch) remove(path string) {
	*p = append(*p, jsonpatch.NewOperation("remove", path, nil))
}
