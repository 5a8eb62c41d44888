// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const jobKind = "DIJob"

// Owner returns the reference by which an object names a job as its controller.
// Version is the one that jobs are to be stored in, v2alpha1 where it is empty:
// the garbage collector resolves no version that is not served, and a release
// that knows one version only does not know the other.
func Owner(job *v2alpha1.DIJob, version string) *metav1.OwnerReference {
	return metav1.NewControllerRef(job, jobVersion(version).WithKind(jobKind))
}

// WithOwnersAt returns an object's owner references with those to a job, or to any
// where its UID is empty, at a version, v2alpha1 where it is empty, and whether
// any was at another. The other owners stay.
func WithOwnersAt(references []metav1.OwnerReference, version string, job types.UID) (moved []metav1.OwnerReference, changed bool) {
	wanted := jobVersion(version).String()
	for i := range references {
		group, _, _ := strings.Cut(references[i].APIVersion, "/")
		if references[i].Kind != jobKind || group != v2alpha1.GroupName || references[i].APIVersion == wanted ||
			job != "" && references[i].UID != job {
			continue
		}
		if !changed {
			moved, changed = slices.Clone(references), true
		}
		moved[i].APIVersion = wanted
	}
	if !changed {
		return references, false
	}
	return moved, true
}

func jobVersion(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: v2alpha1.GroupName, Version: cmp.Or(version, v2alpha1.Version)}
}
