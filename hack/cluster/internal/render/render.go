// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render renders the templates of the configuration files of the cluster's programs and of
// the objects of a new cluster.
package render

import (
	"embed"
	"fmt"
	"net/netip"
	"strings"
	"text/template"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

const (
	// GPU is the extended resource that nodes advertise.
	GPU = "nvidia.com/gpu"
	// DNSUser is the user as which CoreDNS watches Services.
	DNSUser = "system:coredns"
)

//go:embed templates
var templates embed.FS

// fill renders a template. The data are those of this package, so no template fails.
func fill(name string, data any) string {
	var text strings.Builder
	if err := template.Must(template.ParseFS(templates, "templates/"+name)).Execute(&text, data); err != nil {
		panic(fmt.Sprintf("render: %v", err))
	}
	return text.String()
}

// Runtime contains the paths and choices that containerd needs.
type Runtime struct {
	// Shim is the path of containerd-shim-runc-v2.
	Shim string
	// Runc is the path of runc.
	Runc string
	// CNIBin is the folder with the network plugins.
	CNIBin string
	// PauseImage is the reference of the image that keeps a pod's namespaces open.
	PauseImage string
	// Snapshotter is overlayfs, or native if overlayfs is not possible.
	Snapshotter string
}

// Containerd renders the configuration of a node's containerd. All paths are below the state
// directory. Plugins that would create other folders are disabled.
func Containerd(n settings.Node, r Runtime) string {
	return fill("containerd.toml", struct {
		Runtime
		Node   settings.Node
		CNIDir string
	}{r, n, CNIDir(n)})
}

// CNIDir returns the folder from which containerd reads the pod network.
func CNIDir(n settings.Node) string { return n.State("config", "cni") }

// CNI renders the network of a node's pods: a bridge on this machine.
func CNI(n settings.Node) string {
	return fill("cni.json", map[string]any{"Network": settings.Network, "Node": n})
}

// Credential identifies and authenticates a client.
type Credential struct {
	Server, CAFile, CertFile, KeyFile string
}

// Kubeconfig renders a kubeconfig that refers to certificate files.
func Kubeconfig(c Credential) string { return fill("kubeconfig.yaml", c) }

// KubeletFiles are the files that a kubelet reads.
type KubeletFiles struct {
	// CA is the certificate authority of its callers.
	CA string
	// Cert and Key are those of the kubelet's server.
	Cert, Key string
	// ResolvConf lists the DNS servers of pods that do not use the cluster's.
	ResolvConf string
}

// Kubelet renders the configuration of a node's kubelet. Pods use the DNS server at the given
// address.
func Kubelet(n settings.Node, dns netip.Addr, files KubeletFiles) string {
	return fill("kubelet.yaml", struct {
		KubeletFiles
		Node         settings.Node
		DNS          netip.Addr
		Domain       string
		LeaseSeconds int
	}{files, n, dns, settings.Domain, settings.LeaseSeconds})
}

// Proxy renders the configuration of kube-proxy.
func Proxy(s settings.Settings, kubeconfig string) string {
	return fill("kube-proxy.yaml", map[string]any{"Settings": s, "Kubeconfig": kubeconfig})
}

// Corefile renders the configuration of CoreDNS. It does not cache answers because pods must find
// the names of their peers immediately.
func Corefile(s settings.Settings, kubeconfig string, upstream []netip.Addr) string {
	return fill("Corefile", map[string]any{"Settings": s, "Domain": settings.Domain, "Kubeconfig": kubeconfig, "Upstream": upstream})
}

// ClusterObjects renders the objects that a new cluster needs.
func ClusterObjects() string { return fill("objects.yaml", map[string]any{"DNSUser": DNSUser}) }

// MetricsObjects renders the objects by which the API server finds metrics-server.
func MetricsObjects(s settings.Settings) string {
	return fill("metrics.yaml", map[string]any{"Gateway": s.Gateway(), "Port": settings.MetricsPort})
}

// Neighbour renders the kustomization of a neighbour on a node, from the folder of its manifests
// and the version of its image, which was loaded.
func Neighbour(name, manifests, version string, n settings.Node) string {
	return fill(name+".yaml", map[string]any{"Manifests": manifests, "Version": version, "Node": n.Name()})
}

// GPUPatch renders the patch of a node's status that advertises GPUs.
func GPUPatch() string {
	return fmt.Sprintf(`{"status":{"capacity":{%[1]q:"%[2]d"},"allocatable":{%[1]q:"%[2]d"}}}`, GPU, settings.GPUs)
}
