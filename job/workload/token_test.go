// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestEveryContainerGetsATokenForDIServerAlone(t *testing.T) {
	own := corev1.VolumeMount{Name: "own", MountPath: "/var/run/secrets/diengine.opendilab.org/"}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers:     []corev1.Container{{Name: "main"}, {Name: "sidecar", VolumeMounts: []corev1.VolumeMount{own}}},
	}
	addToken(&spec)
	token := corev1.VolumeMount{Name: "di-server-token", MountPath: "/var/run/secrets/diengine.opendilab.org", ReadOnly: true}
	want := corev1.PodSpec{
		ServiceAccountName: "default",
		InitContainers:     []corev1.Container{{Name: "init", VolumeMounts: []corev1.VolumeMount{token}}},
		Containers: []corev1.Container{
			{Name: "main", VolumeMounts: []corev1.VolumeMount{token}},
			{Name: "sidecar", VolumeMounts: []corev1.VolumeMount{own}},
		},
		Volumes: []corev1.Volume{{Name: "di-server-token", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					Audience: "di-server", ExpirationSeconds: ptr.To[int64](3600), Path: "token",
				},
			}}},
		}}},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	addToken(&spec)
	expect.Equal(t, "a template that has the volume is changed", want, spec)
}
