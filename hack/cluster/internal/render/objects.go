// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// GPU is the extended resource nodes advertise.
const GPU = "nvidia.com/gpu"

// FakeLabel marks nodes that only pretend to run pods.
const FakeLabel = "di-orchestrator.opendilab.org/fake-node"

// kwokAnnotation makes kwok take care of a node.
const kwokAnnotation = "kwok.x-k8s.io/node"

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

// GPUPatch renders the patch of a node's status that advertises GPUs. A count
// of zero takes them away.
func GPUPatch(count int) string {
	var quantity any
	if count > 0 {
		quantity = strconv.Itoa(count)
	}
	resources := object{GPU: quantity}
	content, err := json.Marshal(object{"status": object{"capacity": resources, "allocatable": resources}})
	if err != nil {
		panic(fmt.Sprintf("render: %v", err)) // Maps of plain values always can be encoded.
	}
	return string(content)
}

// FakeNodeName is the name of a fake node.
func FakeNodeName(index int) string { return fmt.Sprintf(fakePrefix+"%04d", index) }

const fakePrefix = "fake-"

// FakeNodes renders the nodes that kwok plays. Unless they are open, only pods
// which tolerate their taint get there, so that no real pod is lost on them.
func FakeNodes(count, gpus int, open bool) string {
	nodes := make([]string, 0, count)
	for i := range count {
		nodes = append(nodes, document(fakeNode(FakeNodeName(i), gpus, open)))
	}
	return strings.Join(nodes, "---\n")
}

func fakeNode(name string, gpus int, open bool) object {
	resources := object{"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "1Ti"}
	if gpus > 0 {
		resources[GPU] = strconv.Itoa(gpus)
	}
	spec := object{}
	if !open {
		spec["taints"] = []object{{"key": FakeLabel, "value": "true", "effect": "NoSchedule"}}
	}
	return object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{
			"name": name, "annotations": object{kwokAnnotation: "fake", "node.alpha.kubernetes.io/ttl": "0"},
			"labels": object{
				FakeLabel: "true", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "type": "kwok",
			},
		},
		"spec":   spec,
		"status": object{"capacity": resources, "allocatable": resources, "nodeInfo": object{"kubeletVersion": "fake"}},
	}
}

// SurplusNodes are the fake nodes among the existing ones which should go.
func SurplusNodes(existing []string, count int) []string {
	wanted := map[string]bool{}
	for i := range count {
		wanted[FakeNodeName(i)] = true
	}
	var surplus []string
	for _, name := range existing {
		if strings.HasPrefix(name, fakePrefix) && !wanted[name] {
			surplus = append(surplus, name)
		}
	}
	return surplus
}
