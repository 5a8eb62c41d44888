// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// OwnerIndex is the name of the index of pods, services and ConfigMaps by the name of the job that
// controls them. An index by UID would miss the objects of an earlier job of the same name, which still
// use their names.
const OwnerIndex = "metadata.controllerName"

// JobKind is the kind of the owners that the reconcilers handle.
const JobKind = "DIJob"

// FieldOwner is the operator's field manager. It distinguishes the operator's writes from others.
const FieldOwner = client.FieldOwner(names.ControllerName)

// OwnerName is the index function of OwnerIndex.
func OwnerName(object client.Object) []string {
	if len(OwnerUID(object)) == 0 {
		return nil
	}
	return []string{metav1.GetControllerOf(object).Name}
}

// OwnerUID returns the UID of the job that controls an object; nil if no job does. Pods of a legacy
// installation refer to another version of the kind.
func OwnerUID(object client.Object) []string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != JobKind || !strings.HasPrefix(owner.APIVersion, v2alpha1.GroupName+"/") {
		return nil
	}
	return []string{string(owner.UID)}
}

// PodsOf returns the pods of a job among those that OwnerIndex finds by its name. The others are of an earlier
// job of this name, and still terminate.
func PodsOf(job *v2alpha1.DIJob, pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !slices.Contains(OwnerUID(&pod), string(job.UID)) })
}
