// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// GPU is the extended resource nodes advertise.
const GPU = "nvidia.com/gpu"

// DNSUser is the user CoreDNS watches Services as.
const DNSUser = "system:coredns"

// ClusterObjects renders the objects a new cluster needs.
func ClusterObjects() string {
	meta := object{"name": DNSUser}
	role := object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta,
		"rules": []object{
			{"apiGroups": []string{""}, "resources": []string{"services", "pods", "namespaces", "endpoints"}, "verbs": []string{"list", "watch"}},
			{"apiGroups": []string{"discovery.k8s.io"}, "resources": []string{"endpointslices"}, "verbs": []string{"list", "watch"}},
		},
	}
	binding := object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta,
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": DNSUser},
		"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": DNSUser}},
	}
	return document(role) + "---\n" + document(binding)
}

// GPUPatch renders the patch of a node's status that advertises GPUs.
func GPUPatch() string {
	return fmt.Sprintf(`{"status":{"capacity":{%[1]q:"%[2]d"},"allocatable":{%[1]q:"%[2]d"}}}`, GPU, settings.GPUs)
}
