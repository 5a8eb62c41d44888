// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/names"
)

// tokenSeconds is for how long a token is valid; the kubelet renews it long before.
const tokenSeconds = 3600

// defaultServiceAccount is whose name pods run under that do not say.
const defaultServiceAccount = "default"

// addToken gives every container of a pod a token that tells di-server which
// pod it is from, and is of use to nobody else. A template that has something
// of its own in that place keeps it: di-server then knows the pod by its
// address.
func addToken(spec *corev1.PodSpec) {
	if slices.ContainsFunc(spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == names.TokenVolume }) {
		return
	}
	// A token is of a service account, so what the API server would default is said.
	spec.ServiceAccountName = cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount, defaultServiceAccount)
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: names.TokenVolume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience:          names.ServerAudience,
				ExpirationSeconds: ptr.To[int64](tokenSeconds),
				Path:              path.Base(names.TokenFile),
			}}},
		}},
	})
	mount := corev1.VolumeMount{Name: names.TokenVolume, MountPath: path.Dir(names.TokenFile), ReadOnly: true}
	mountEverywhere(spec, &mount)
}
