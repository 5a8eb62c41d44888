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

// tokenSeconds is the lifetime of a token. The kubelet renews it long before it expires.
const tokenSeconds = 3600

// defaultServiceAccount is the service account of pods that name none.
const defaultServiceAccount = "default"

// addToken mounts a token in every container of a pod. The token identifies the pod to di-server,
// and no other server accepts it. A template with its own mount at that path keeps it; di-server
// then identifies the pod by its address.
func addToken(spec *corev1.PodSpec) {
	if slices.ContainsFunc(spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == names.TokenVolume }) {
		return
	}
	// A token belongs to a service account, so the API server's default is set explicitly.
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
