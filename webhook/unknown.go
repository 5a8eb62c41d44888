// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/podschema"
)

// The CRD keeps whatever stands in a template, so the API server's own check of
// unknown fields ends above it. It is continued here, as the writer asked for
// it: with an error, with a warning, or not at all.

// podFields returns what the API server has fields for in a pod, nil where that
// cannot be had.
type podFields func(context.Context) *podschema.Schema

// judge finds the members of templates and volumes that no pod has a field for.
type judge struct {
	// schema is the API server's; without it the types of this program judge.
	schema *podschema.Schema
}

// judge decides by whose word fields are unknown. Where the API server's schema
// cannot be had, nothing is refused: its pods may have fields that these types lack.
func (fields podFields) judge(ctx context.Context) judge {
	if fields == nil {
		return judge{}
	}
	return judge{fields(ctx)}
}

// told returns the unknown fields as the writer asked for them.
func (j judge) told(request *admission.Request, find func(judge) field.ErrorList) (errs field.ErrorList, warnings []string) {
	var options struct {
		FieldValidation string `json:"fieldValidation"`
	}
	// The API server encodes what it has decoded. None is its own default, Warn.
	_ = json.Unmarshal(request.Options.Raw, &options)
	if options.FieldValidation == metav1.FieldValidationIgnore {
		return nil, nil
	}
	unknown := find(j)
	if options.FieldValidation == metav1.FieldValidationStrict && j.schema != nil {
		return unknown, nil
	}
	warnings = make([]string, len(unknown))
	for i, err := range unknown {
		// In the words of the API server, which so warns about the fields whose schema it has.
		warnings[i] = fmt.Sprintf("unknown field %q", err.Field)
	}
	return nil, warnings
}

// ofJob returns the unknown fields of a job that were not there before.
func (j judge) ofJob(asked *question) field.ErrorList {
	if asked.subresource == subresourceStatus {
		return nil
	}
	unknown := j.inSpec(&asked.job.Spec, pathsOf(asked.raw, asked.job))
	if asked.create || len(unknown) == 0 {
		return unknown
	}
	return lessByTask(unknown, j.inSpec(&asked.old.Spec, pathsOf(asked.oldRaw, asked.old)), asked)
}

func (j judge) inSpec(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var unknown field.ErrorList
	for i := range spec.Volumes {
		if full(unknown) {
			return unknown
		}
		unknown = append(unknown, j.inVolume(spec.Volumes[i].Raw, at.spec("volumes").Index(i))...)
	}
	for i := range spec.Tasks {
		if full(unknown) {
			break
		}
		unknown = append(unknown, j.inTemplate(spec.Tasks[i].Template.Raw, at.task(i, "template"))...)
	}
	return unknown
}

func (j judge) inTemplate(raw []byte, at *field.Path) field.ErrorList {
	if j.schema != nil {
		return unknownFields(j.schema.UnknownInTemplate(raw, at.String()))
	}
	_, found := readRaw[corev1.PodTemplateSpec](raw, at)
	return unknownFields(found.unknown)
}

func (j judge) inVolume(raw []byte, at *field.Path) field.ErrorList {
	if j.schema != nil {
		return unknownFields(j.schema.UnknownInVolume(raw, at.String()))
	}
	_, found := readRaw[corev1.Volume](raw, at)
	return unknownFields(found.unknown)
}

func unknownFields(paths []string) field.ErrorList {
	paths = paths[:min(len(paths), mostFindings)]
	unknown := make(field.ErrorList, len(paths))
	for i, path := range paths {
		unknown[i] = &field.Error{
			Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{},
			Detail: "unknown field: pods have none of this name here; correct it, or write with --validate=warn to keep it",
		}
	}
	return unknown
}
