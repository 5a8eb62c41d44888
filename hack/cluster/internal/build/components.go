// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build makes the programs of the local cluster from Go modules and
// keeps them in a cache outside the checkout. What is there is never built
// again, what is half built never shows.
package build

import "time"

// component is a Go module under binaries with the programs built from it.
type component struct {
	// folder is the folder below binaries with the go.mod.
	folder string
	// module is the module whose version gives the programs theirs.
	module   string
	programs []program
	// versionFlags makes linker flags that tell a program its version.
	versionFlags func(version string) string
	// cgo builds with the C compiler, statically.
	cgo  bool
	tags string
	// files are copied from the module as they are.
	files []string
}

// program is one package main.
type program struct {
	name     string
	path     string
	expected time.Duration
}

// Names of the programs other packages ask the cache for.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	Kubectl           = "kubectl"
	Containerd        = "containerd"
	ContainerdShim    = "containerd-shim-runc-v2"
	Ctr               = "ctr"
	Runc              = "runc"
	CNIBridge         = "bridge"
	CoreDNS           = "coredns"
	Kwok              = "kwok"
	PauseImage        = "pause.tar"
	KwokNodeStage     = "node-initialize.yaml"
	KwokPodReady      = "pod-ready.yaml"
	KwokPodComplete   = "pod-complete.yaml"
	KwokPodDelete     = "pod-delete.yaml"
)

func components() []component {
	const seconds = time.Second
	return []component{
		{folder: "etcd", module: "go.etcd.io/etcd/server/v3", programs: []program{
			{Etcd, "go.etcd.io/etcd/server/v3", 45 * seconds},
		}},
		{folder: "kubernetes", module: "k8s.io/kubernetes", versionFlags: kubernetesVersionFlags, programs: []program{
			{APIServer, "k8s.io/kubernetes/cmd/kube-apiserver", 200 * seconds},
			{Kubectl, "k8s.io/kubernetes/cmd/kubectl", 35 * seconds},
			{ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager", 60 * seconds},
			{Scheduler, "k8s.io/kubernetes/cmd/kube-scheduler", 7 * seconds},
			{Kubelet, "k8s.io/kubernetes/cmd/kubelet", 20 * seconds},
			{Proxy, "k8s.io/kubernetes/cmd/kube-proxy", 7 * seconds},
		}},
		{folder: "containerd", module: "github.com/containerd/containerd/v2", programs: []program{
			{Containerd, "github.com/containerd/containerd/v2/cmd/containerd", 50 * seconds},
			{ContainerdShim, "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", 3 * seconds},
			{Ctr, "github.com/containerd/containerd/v2/cmd/ctr", 4 * seconds},
		}},
		{folder: "cni", module: "github.com/containernetworking/plugins", programs: []program{
			{"host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local", 4 * seconds},
			{CNIBridge, "github.com/containernetworking/plugins/plugins/main/bridge", 3 * seconds},
			{"loopback", "github.com/containernetworking/plugins/plugins/main/loopback", 2 * seconds},
		}},
		{
			folder: "runc", module: "github.com/opencontainers/runc", cgo: true, tags: "seccomp,netgo,osusergo",
			programs: []program{{Runc, "github.com/opencontainers/runc", 40 * seconds}},
		},
		{folder: "coredns", module: "github.com/coredns/coredns", programs: []program{
			// Its main is ours: only the plugins that the Corefile names.
			{CoreDNS, ".", 70 * seconds},
		}},
		{
			folder: "kwok", module: "sigs.k8s.io/kwok",
			programs: []program{{Kwok, "sigs.k8s.io/kwok/cmd/kwok", 60 * seconds}},
			files: []string{
				"kustomize/stage/node/fast/" + KwokNodeStage, "kustomize/stage/pod/fast/" + KwokPodReady,
				"kustomize/stage/pod/fast/" + KwokPodComplete, "kustomize/stage/pod/fast/" + KwokPodDelete,
			},
		},
	}
}
