// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
)

const subresourceStatus = "status"

// Request is an admission request for a job: the object and, for an update, the
// object that it replaces, each as it was sent and in the hub's form.
type Request struct {
	// Create is true for a new object.
	Create      bool
	Subresource string
	Raw, OldRaw []byte
	Job, Old    *v2alpha1.DIJob
	Bounds
	// Left returns an error once the caller has gone; nil if no caller waits.
	Left func() error
}

// Bounds limit the size of a job.
type Bounds struct {
	// MaxPods is how many pods a job may have; 0 for limits.PodsPerJob.
	MaxPods int32
	// Domain is the domain of the cluster's services, in which pods have their
	// addresses; empty for names.DefaultDomain.
	Domain string
}

// Decode decodes the objects of a request, unless the caller has gone. A stored
// object that does not decode is no error, because an update may repair it.
func (r *Request) Decode() error {
	var err error
	if r.Job, err = decodeHub(r.Raw); err != nil {
		return fmt.Errorf("object: %w", err)
	}
	if r.Create || r.HasLeft() {
		return nil
	}
	if r.Old, err = decodeHub(r.OldRaw); r.Old == nil {
		return fmt.Errorf("oldObject: %w", err)
	}
	return nil
}

// HasLeft reports whether the caller has gone, so that nobody reads the answer.
func (r *Request) HasLeft() bool {
	return r.Left != nil && r.Left() != nil
}

// decodeHub decodes a job of either version in the hub's form. If a value does not
// fit, it returns the rest of the job with the error.
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

// IsObject reports whether JSON is an object.
func IsObject(raw []byte) bool {
	return members(raw) != nil
}

// Mistyped returns the values of a job that the Go type of its version cannot hold.
func Mistyped(raw []byte) field.ErrorList {
	if writtenInV2(raw) {
		return compare(raw, reflect.TypeFor[v2alpha1.DIJob](), nil).mistyped
	}
	return compare(raw, reflect.TypeFor[v1alpha1.DIJob](), nil).mistyped
}

// Patch is a JSON patch with the defaults and nothing else: encoding the decoded job
// would drop fields that its type does not know.
type Patch []jsonpatch.Operation

// set adds or replaces the member at the path, whose parent must exist.
func (p *Patch) set(path string, value any) {
	*p = append(*p, jsonpatch.NewOperation("add", path, value))
}

// remove removes the member at the path, which must exist.
func (p *Patch) remove(path string) {
	*p = append(*p, jsonpatch.NewOperation("remove", path, nil))
}
