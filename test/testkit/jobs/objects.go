// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Raw returns the JSON of a pod template or a report as a field of a job.
func Raw(content string) v2alpha1.RawObject {
	return v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(content)}}
}

// Template returns a pod template with only the required fields.
func Template() v2alpha1.RawObject {
	return Raw(`{"spec":{"containers":[{"name":"di-container","image":"di"}]}}`)
}

// Serving returns a pod template whose container serves on port 22270.
func Serving() v2alpha1.RawObject {
	return Raw(`{"spec":{"containers":[{"name":"di-container","image":"di","ports":[{"name":"di-port","containerPort":22270}]}]}}`)
}

// CoordinatorLed returns the spec of a coordinator-led job whose tasks have the same template.
func CoordinatorLed(template v2alpha1.RawObject) v2alpha1.DIJobSpec {
	return v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed, Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeCoordinator, Template: template},
		{Type: v2alpha1.TaskTypeCollector, Template: template},
		{Type: v2alpha1.TaskTypeLearner, Template: template},
	}}
}

// Membership returns the empty Membership that the operator creates for a job.
func Membership(job *v2alpha1.DIJob) *v2alpha1.Membership {
	return &v2alpha1.Membership{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}, Spec: v2alpha1.MembershipSpec{JobUID: job.UID},
	}
}

// Owner returns the owner references of the objects of a job.
func Owner(job *v2alpha1.DIJob) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind("DIJob"))}
}
