// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render writes the configuration files of the cluster's programs and
// the objects put into a new cluster. It only makes text.
package render

import (
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// object is a YAML mapping.
type object = map[string]any

// document turns a mapping into YAML. Maps of plain values always can be.
func document(o object) string {
	content, err := yaml.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("render: %v", err))
	}
	return string(content)
}

// Credential is what a client authenticates with.
type Credential struct {
	Server   string
	CAFile   string
	CertFile string
	KeyFile  string
}

// Kubeconfig renders a kubeconfig that refers to certificate files.
func Kubeconfig(c Credential) string {
	const name = "di-orchestrator"
	return document(object{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []object{{"name": name, "cluster": object{"server": c.Server, "certificate-authority": c.CAFile}}},
		"users":    []object{{"name": name, "user": object{"client-certificate": c.CertFile, "client-key": c.KeyFile}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": name}}},
	})
}

// KubeletFiles are the files that a kubelet reads.
type KubeletFiles struct {
	// CA is the certificate of who may call it.
	CA string
	// Cert and Key are what it serves with.
	Cert, Key string
	// ResolvConf lists the DNS servers of pods that do not ask the cluster's.
	ResolvConf string
}

// Kubelet renders the configuration of a node's kubelet. Pods ask the DNS server
// at the given address.
func Kubelet(n settings.Node, dns netip.Addr, files KubeletFiles) string {
	return document(object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": n.Address().String(), "healthzBindAddress": n.Address().String(),
		"tlsCertFile": files.Cert, "tlsPrivateKeyFile": files.Key,
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true},
			"x509": object{"clientCAFile": files.CA},
		},
		"authorization":            object{"mode": "Webhook"},
		"containerRuntimeEndpoint": "unix://" + n.ContainerdSocket(),
		"clusterDNS":               []string{dns.String()}, "clusterDomain": settings.Domain,
		"resolvConf":   files.ResolvConf,
		"cgroupDriver": "cgroupfs", "cgroupRoot": "/" + n.Cgroup(), "failCgroupV1": false, "failSwapOn": false,
		"podLogsDir": n.State("pod-logs"), "volumePluginDir": n.State("volume-plugins"),
		"nodeLeaseDurationSeconds": settings.LeaseSeconds,
		// Nothing of the machine is reserved, and neither its disk nor its memory
		// being full for other reasons ends pods. Images cannot be pulled again.
		"enforceNodeAllocatable": []string{},
		"evictionHard": object{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99, "imageMinimumGCAge": "8760h",
		"maxPods": 250, "makeIPTablesUtilChains": false, "oomScoreAdj": 0,
		"serializeImagePulls": false, "enableDebuggingHandlers": true,
	})
}

// Proxy renders the configuration of kube-proxy.
func Proxy(s settings.Settings, kubeconfig string) string {
	return document(object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "hostnameOverride": s.Nodes()[0].Name(),
		"clientConnection":   object{"kubeconfig": kubeconfig},
		"clusterCIDR":        s.PodCIDR.String(),
		"bindAddress":        s.Gateway().String(),
		"healthzBindAddress": s.OnGateway(10256), "metricsBindAddress": s.OnGateway(10249),
		"nodePortAddresses": []string{"primary"}, "oomScoreAdj": 0,
		// Zeros leave the connection tracking of the machine as it is.
		"conntrack": object{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	})
}

// Corefile renders the configuration of CoreDNS. Answers are not cached, for
// pods have to see the names of their peers as soon as they are there.
func Corefile(s settings.Settings, kubeconfig string, upstream []netip.Addr) string {
	servers := make([]string, len(upstream))
	for i, server := range upstream {
		servers[i] = server.String()
	}
	forward := ""
	if len(servers) > 0 {
		forward = "    forward . " + strings.Join(servers, " ") + "\n"
	}
	return fmt.Sprintf(`.:53 {
    bind %s
    errors
    kubernetes %s in-addr.arpa ip6.arpa {
        kubeconfig %s
        ttl 1
        fallthrough in-addr.arpa ip6.arpa
    }
%s}
`, s.Gateway(), settings.Domain, kubeconfig, forward)
}
