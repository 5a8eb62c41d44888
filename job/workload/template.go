// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/quantity"
)

// Template decodes a stored pod template. The path is the template's position in the spec, for the
// error.
func Template(path string, raw v2alpha1.RawObject) (*corev1.PodTemplateSpec, error) {
	template := &corev1.PodTemplateSpec{}
	if err := decode(path, raw, quantity.CheckTemplate, template); err != nil {
		return nil, err
	}
	if len(template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("%s.spec.containers: is empty, a pod wants at least one container", path)
	}
	return template, nil
}

// Volumes decodes the volumes that a job adds to its pods.
func Volumes(job *v2alpha1.DIJob) ([]corev1.Volume, error) {
	if len(job.Spec.Volumes) == 0 {
		return nil, nil
	}
	volumes := make([]corev1.Volume, len(job.Spec.Volumes))
	for i := range job.Spec.Volumes {
		if err := decode(fmt.Sprintf("spec.volumes[%d]", i), job.Spec.Volumes[i], quantity.CheckVolume, &volumes[i]); err != nil {
			return nil, err
		}
	}
	return volumes, nil
}

// decode ignores unknown fields, because the webhook has warned about them. It returns an error
// only for a value that does not decode into the type. The check comes first: a quantity with a
// large exponent can take hours to decode, and an API server stores it.
func decode(path string, raw v2alpha1.RawObject, check func([]byte) error, into any) error {
	if len(raw.Raw) == 0 {
		return fmt.Errorf("%s: is missing", path)
	}
	if err := check(raw.Raw); err != nil {
		return fmt.Errorf("%s.%w", path, err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw.Raw, into); err != nil {
		return fmt.Errorf("%s: does not decode: %w", path, err)
	}
	return nil
}
