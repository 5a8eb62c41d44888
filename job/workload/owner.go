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

// Owner returns the controller reference to a job. Version is the storage version of jobs, v2alpha1
// if it is empty. The garbage collector resolves no version that is not served, and a release that
// knows only one version cannot use the other.
func Owner(job *v2alpha1.DIJob, version string) *metav1.OwnerReference {
	return metav1.NewControllerRef(job, jobVersion(version).WithKind(jobKind))
}

// WithOwnersAt returns an object's owner references, with those to a job in the given version. It
// also reports whether any was in another version. An empty UID stands for any job, and an empty
// version for v2alpha1. References to other owners are unchanged.
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
