// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"fmt"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// ToHub returns a job of v1alpha1 as v2alpha1.
func ToHub(job *v1alpha1.DIJob) (*v2alpha1.DIJob, error) {
	in := job.DeepCopy()
	in.APIVersion, in.Kind = v1alpha1.GroupVersion.String(), "DIJob"
	return through[v2alpha1.DIJob](in, v2alpha1.GroupVersion.String())
}

// FromHub returns a job of v2alpha1 as v1alpha1.
func FromHub(job *v2alpha1.DIJob) (*v1alpha1.DIJob, error) {
	in := job.DeepCopy()
	in.APIVersion, in.Kind = v2alpha1.GroupVersion.String(), "DIJob"
	return through[v1alpha1.DIJob](in, v1alpha1.GroupVersion.String())
}

// through converts typed objects by way of JSON, on which the only mapping works.
func through[T any](in any, apiVersion string) (*T, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encoding the object to convert: %w", err)
	}
	converted, err := Convert(raw, apiVersion)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(converted, out); err != nil {
		return nil, fmt.Errorf("decoding the converted object: %w", err)
	}
	return out, nil
}
