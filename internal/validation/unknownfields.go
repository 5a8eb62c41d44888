// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// The CRD keeps whatever stands in a template, so the API server's own check of
// unknown fields ends above it. This check continues below.

// PodFields are the fields that the API server's pods have, which may be more than
// the types of this program have.
type PodFields interface {
	// UnknownInTemplate returns the paths of the unknown members of a pod template,
	// below a path.
	UnknownInTemplate(raw []byte, at string) []string
	// UnknownInVolume does the same for a volume of a pod.
	UnknownInVolume(raw []byte, at string) []string
}

// judge finds the members of templates and volumes that pods do not have.
type judge struct {
	// fields are the API server's; if nil, the types of this program decide.
	fields PodFields
}

// UnknownFields returns the fields that a request adds and pods do not have. The types
// of this program decide if the API server's fields are nil.
func UnknownFields(request *Request, fields PodFields) field.ErrorList {
	if request.Subresource == subresourceStatus {
		return nil
	}
	j := judge{fields}
	unknown := j.inSpec(&request.Job.Spec, pathsOf(request.Raw, request.Job))
	if request.Create || len(unknown) == 0 {
		return unknown
	}
	return lessByTask(unknown, j.inSpec(&request.Old.Spec, pathsOf(request.OldRaw, request.Old)), request)
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
	if j.fields != nil {
		return unknownFields(j.fields.UnknownInTemplate(raw, at.String()))
	}
	_, found := readRaw[corev1.PodTemplateSpec](raw, at)
	return unknownFields(found.unknown)
}

func (j judge) inVolume(raw []byte, at *field.Path) field.ErrorList {
	if j.fields != nil {
		return unknownFields(j.fields.UnknownInVolume(raw, at.String()))
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
