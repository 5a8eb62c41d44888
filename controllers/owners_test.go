// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestPodsOfAnEarlierJobOfTheNameAreNotThoseOfTheJob(t *testing.T) {
	t.Parallel()
	job := func(uid types.UID) *v2alpha1.DIJob {
		return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: uid}}
	}
	pod := func(name string, owner *v2alpha1.DIJob) corev1.Pod {
		reference := metav1.NewControllerRef(owner, v2alpha1.GroupVersion.WithKind(JobKind))
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{*reference}}}
	}
	found := PodsOf(job("now"), []corev1.Pod{pod("a", job("before")), pod("b", job("now"))})
	if len(found) != 1 || found[0].Name != "b" {
		t.Errorf("the pods are %v", found)
	}
}
