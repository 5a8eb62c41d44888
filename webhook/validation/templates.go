// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// Templates and volumes are the user's JSON, which the CRD does not check. Errors that would
// prevent every pod are rejected here. Ignored fields cause warnings. The API server applies its
// other rules when a pod is created.

// validateTemplate checks the rules that a template must satisfy for any pod to be created.
func validateTemplate(raw []byte, at *field.Path) field.ErrorList {
	template, found := jsontype.Read[corev1.PodTemplateSpec](raw, at)
	return append(found.Mistyped, found.Beside(validateDecoded(template, at))...)
}

func validateDecoded(template *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	if len(template.Spec.Containers) == 0 {
		return field.ErrorList{field.Required(at.Child("spec", "containers"), "a pod needs a container")}
	}
	taken := map[string]bool{}
	errs := validateContainers(template.Spec.InitContainers, at.Child("spec", "initContainers"), taken)
	errs = append(errs, validateContainers(template.Spec.Containers, at.Child("spec", "containers"), taken)...)
	volumes := map[string]bool{}
	for i := range template.Spec.Volumes {
		if full(errs) {
			break
		}
		path := at.Child("spec", "volumes").Index(i).Child("name")
		errs = append(errs, validateObjectName(template.Spec.Volumes[i].Name, path, volumes)...)
	}
	return errs
}

func validateContainers(containers []corev1.Container, at *field.Path, taken map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		if full(errs) {
			break
		}
		container, at := &containers[i], at.Index(i)
		errs = append(errs, validateObjectName(container.Name, at.Child("name"), taken)...)
		for j, port := range container.Ports {
			for _, message := range validation.IsValidPortNum(int(port.ContainerPort)) {
				errs = append(errs, field.Invalid(at.Child("ports").Index(j).Child("containerPort"), port.ContainerPort, message))
			}
		}
	}
	return errs
}

// notALabel says what a name may be that becomes a label of DNS.
const notALabel = "must be at most 63 lower-case letters, digits and -, and must not start or end with -"

// validateObjectName checks the name of a container or volume, which must be unique.
func validateObjectName(name string, at *field.Path, taken map[string]bool) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must be a name that is unique in the pod")}
	}
	if taken[name] {
		return field.ErrorList{field.Duplicate(at, name)}
	}
	taken[name] = true
	if len(validation.IsDNS1123Label(name)) > 0 {
		return field.ErrorList{field.Invalid(at, name, notALabel)}
	}
	return nil
}

// validateVolumes checks the volumes of a job. They are added to those of each template, so no two
// may have the same name.
func validateVolumes(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]bool{}
	for i := range spec.Volumes {
		if full(errs) {
			break
		}
		at := at.spec("volumes").Index(i)
		volume, found := jsontype.Read[corev1.Volume](spec.Volumes[i].Raw, at)
		errs = append(append(errs, found.Mistyped...), found.Beside(validateObjectName(volume.Name, at.Child("name"), taken))...)
	}
	if len(taken) == 0 {
		return errs
	}
	for i := range spec.Tasks {
		at := at.task(i, "template").Child("spec", "volumes")
		for j, name := range volumeNames(&spec.Tasks[i]) {
			if taken[name] && !full(errs) {
				errs = append(errs, field.Duplicate(at.Index(j).Child("name"), name))
			}
		}
	}
	return errs
}

// volumeNames returns the names of the volumes of a task's template if it decodes.
func volumeNames(task *v2alpha1.Task) []string {
	var template struct {
		Spec struct {
			Volumes []struct {
				Name string `json:"name"`
			} `json:"volumes"`
		} `json:"spec"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(task.Template.Raw, &template) != nil {
		// Another rule reports the error.
		return nil
	}
	volumes := make([]string, len(template.Spec.Volumes))
	for i := range volumes {
		volumes[i] = template.Spec.Volumes[i].Name
	}
	return volumes
}

// The CRD preserves unknown fields in templates, so the API server's check of unknown fields stops
// above them. This check continues below.

// PodFields are the fields of pods in the API server, which may be newer than the types of
// this program.
type PodFields interface {
	// UnknownInTemplate returns the paths of the unknown members of a pod template,
	// below a path.
	UnknownInTemplate(raw []byte, at string) []string
	// UnknownInVolume does the same for a volume of a pod.
	UnknownInVolume(raw []byte, at string) []string
}

// podFields finds members of templates and volumes that pods do not have.
type podFields struct {
	// fields are the API server's; if nil, the types of this program decide.
	fields PodFields
}

// UnknownFields returns the fields that a request adds and that pods do not have. The types of this
// program decide if the API server's fields are nil.
func UnknownFields(request *Request, fields PodFields) field.ErrorList {
	if request.Subresource == subresourceStatus {
		return nil
	}
	p := podFields{fields}
	unknown := p.inSpec(&request.Job.Spec, pathsOf(request.Raw, request.Job))
	if request.Create || len(unknown) == 0 {
		return unknown
	}
	return lessByTask(unknown, p.inSpec(&request.Old.Spec, pathsOf(request.OldRaw, request.Old)), request)
}

func (p podFields) inSpec(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	var unknown field.ErrorList
	for i := range spec.Volumes {
		if full(unknown) {
			return unknown
		}
		unknown = append(unknown, p.inVolume(spec.Volumes[i].Raw, at.spec("volumes").Index(i))...)
	}
	for i := range spec.Tasks {
		if full(unknown) {
			break
		}
		unknown = append(unknown, p.inTemplate(spec.Tasks[i].Template.Raw, at.task(i, "template"))...)
	}
	return unknown
}

func (p podFields) inTemplate(raw []byte, at *field.Path) field.ErrorList {
	if p.fields != nil {
		return unknownFields(p.fields.UnknownInTemplate(raw, at.String()))
	}
	_, found := jsontype.Read[corev1.PodTemplateSpec](raw, at)
	return unknownFields(found.Unknown)
}

func (p podFields) inVolume(raw []byte, at *field.Path) field.ErrorList {
	if p.fields != nil {
		return unknownFields(p.fields.UnknownInVolume(raw, at.String()))
	}
	_, found := jsontype.Read[corev1.Volume](raw, at)
	return unknownFields(found.Unknown)
}

func unknownFields(paths []string) field.ErrorList {
	paths = paths[:min(len(paths), jsontype.MaxFindings)]
	unknown := make(field.ErrorList, len(paths))
	for i, path := range paths {
		unknown[i] = &field.Error{
			Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{},
			Detail: "unknown field: pods in this cluster have no such field; correct it, or write with --validate=warn to keep it",
		}
	}
	return unknown
}
